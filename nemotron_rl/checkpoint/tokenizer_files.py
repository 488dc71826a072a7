"""Writes the tokenizer of a synthetic checkpoint: byte-level BPE, chat tokens and a ChatML template.

A digit is always one token: the pre-tokenizer cuts around each, so arithmetic can be learned.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from nemotron_rl.checkpoint.bpe import byte_alphabet, learn_merges
from nemotron_rl.checkpoint.writer import write_json
from nemotron_rl.errors import SettingsError

PAD, BOS, EOS, TURN_BEGIN, TURN_END = "<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (PAD, BOS, EOS, *(f"<reserved_{i}>" for i in range(3, 10)), TURN_BEGIN, TURN_END)
"""In the order of their ids. Ids 0, 1, 2 and 11 (the end of a turn) are those of the published models."""
SMALLEST_VOCAB = len(SPECIAL_TOKENS) + 256
LARGEST_VOCAB = 512
CHAT_TEMPLATE_FILE = "chat_template.jinja"

CHAT_TEMPLATE = (
    "{%- for message in messages -%}\n"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "{{- '<|im_start|>assistant\\n' -}}\n"
    "{%- endif -%}\n"
)

_DIGIT_WORD_OTHER = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+"
_ROLES = "system\nuser\nassistant\n" * 40
_TEXT = """
You are a careful assistant. You are a helpful assistant.
What is the sum of the numbers? What is the product of the numbers? What is the difference between the numbers?
Answer with the number only. Solve the problem step by step, then give the final answer. The answer is this number.
Compute the result. How many are there in all? Think first. Which of these is the largest, and which is the smallest?
plus minus times divided by equals modulo remainder greater less than zero one two three four five six seven eight nine
Let us check: this is right, that is wrong, and therefore it holds for every whole number. If it is even, then add one.
There was a time when people would write letters to each other, and they would wait for days before an answer came back.
Some of them were short and some were long; all of them had something to say about work, home, food, water and weather.
"""


def write_tokenizer(folder: Path, vocab_size: int, max_length: int) -> int:
    """Write tokenizer.json, tokenizer_config.json, special_tokens_map.json and the chat template; the number of tokens.

    The vocabulary has as many tokens as the model, but no more than 512.

    Raises:
        SettingsError: `vocab_size` has no room for 256 bytes and the special tokens.
    """
    if vocab_size < SMALLEST_VOCAB:
        raise SettingsError(
            f"`vocab_size` must be at least {SMALLEST_VOCAB} (bytes and special tokens), not {vocab_size}"
        )
    tokenizer = build_tokenizer(min(vocab_size, LARGEST_VOCAB))
    # Not by its own `save`, whose errors are plain Exceptions.
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    names = {"bos_token": BOS, "eos_token": TURN_END, "pad_token": PAD}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
    }
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "special_tokens_map.json", names)
    (folder / CHAT_TEMPLATE_FILE).write_text(CHAT_TEMPLATE, encoding="utf-8")
    return int(tokenizer.get_vocab_size())


def build_tokenizer(size: int) -> Tokenizer:
    """A tokenizer of at most `size` tokens: special tokens, then the 256 bytes, then merges of common English."""
    alphabet = byte_alphabet()
    merges = learn_merges(_words(alphabet), size - SMALLEST_VOCAB)
    tokens = [*SPECIAL_TOKENS, *(alphabet[byte] for byte in range(256)), *(left + right for left, right in merges)]
    vocab = {token: place for place, token in enumerate(tokens)}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_DIGIT_WORD_OTHER), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return tokenizer


def _words(alphabet: dict[int, str]) -> Counter[str]:
    """The letters-only pieces of the text, as the pre-tokenizer would cut them, in the byte alphabet."""
    pieces = re.findall(r" ?[A-Za-z]+", _ROLES + _TEXT)
    return Counter("".join(alphabet[byte] for byte in piece.encode()) for piece in pieces)
