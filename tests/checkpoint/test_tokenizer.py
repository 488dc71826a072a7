from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.bpe import byte_alphabet, merge
from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
from nemotron_rl.checkpoint.tokenizer_files import SMALLEST_VOCAB, SPECIAL_TOKENS, build_tokenizer, write_tokenizer
from nemotron_rl.errors import CheckpointError, SettingsError
from tests.oracles.checkpoint_bpe import encode

Copier = Callable[[Path], Path]
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 123 + 45?"}]


@pytest.fixture(scope="module")
def tokenizer(tiny: Path) -> ChatTokenizer:
    return ChatTokenizer.from_folder(tiny)


@pytest.fixture(scope="module")
def parts(tiny: Path) -> dict[str, Any]:
    model: dict[str, Any] = json.loads((tiny / "tokenizer.json").read_text())["model"]
    return model


@given(text=st.text(max_size=40) | st.text("What is 12+34? the answer\n<|im_end|>", max_size=40))
def test_any_text_comes_back(tokenizer: ChatTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert all(0 <= token < tokenizer.vocab_size for token in ids)
    if not any(special in text for special in SPECIAL_TOKENS):
        assert tokenizer.decode(ids) == text


@given(text=st.text("Whatis theanswer 0123456789+-*/=?!\n_éß", max_size=40))
def test_encoding_is_bpe_by_its_definition(tokenizer: ChatTokenizer, parts: dict[str, Any], text: str) -> None:
    merges = [(left, right) for left, right in parts["merges"]]
    assert tokenizer.encode(text) == encode(text, parts["vocab"], merges, byte_alphabet())


@given(text=st.text("0123456789 +=ab", max_size=30))
def test_a_digit_is_always_a_token_of_its_own(tokenizer: ChatTokenizer, text: str) -> None:
    pieces = [tokenizer.decode([token]) for token in tokenizer.encode(text)]
    assert all(len(piece) == 1 for piece in pieces if any(letter.isdigit() for letter in piece))


def test_no_token_of_the_vocabulary_holds_a_digit_and_more(parts: dict[str, Any]) -> None:
    words = [token for token in parts["vocab"] if token not in SPECIAL_TOKENS]
    assert not [token for token in words if len(token) > 1 and any("0" <= letter <= "9" for letter in token)]


def test_special_tokens_are_those_of_the_config(tokenizer: ChatTokenizer, tiny: Path) -> None:
    config = json.loads((tiny / "config.json").read_text())
    ids = {token: tokenizer.encode(token) for token in ("<pad>", "<s>", "</s>", "<|im_end|>")}
    assert ids == {"<pad>": [0], "<s>": [1], "</s>": [2], "<|im_end|>": [11]}
    assert (config["pad_token_id"], config["bos_token_id"], config["eos_token_id"]) == (0, 1, 11)
    assert tokenizer.eos_token_ids == (2, 11)
    assert tokenizer.pad_token_id == 0
    assert tokenizer.vocab_size == config["vocab_size"] == 512
    assert tokenizer.decode([1, *tokenizer.encode("12"), 11]) == "12"


def test_a_conversation_is_chatml(tokenizer: ChatTokenizer) -> None:
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 123 + 45?<|im_end|>\n"
    assert tokenizer.render(CHAT, add_generation_prompt=False) == text
    assert tokenizer.render(CHAT) == text + "<|im_start|>assistant\n"
    assert tokenizer.encode_chat(CHAT) == tokenizer.encode(text + "<|im_start|>assistant\n")


def test_roles_are_single_tokens(tokenizer: ChatTokenizer) -> None:
    assert [len(tokenizer.encode(role)) for role in ("system", "user", "assistant")] == [1, 1, 1]


@pytest.mark.parametrize("size", [SMALLEST_VOCAB, 300, 512])
def test_the_vocabulary_has_the_models_size_and_is_the_same_every_time(size: int) -> None:
    one, two = build_tokenizer(size), build_tokenizer(size)
    assert one.get_vocab_size() == size
    assert one.to_str() == two.to_str()


def test_large_models_get_no_larger_vocabulary_and_small_ones_are_refused(tmp_path: Path) -> None:
    assert write_tokenizer(tmp_path, 131_072, 4096) == 512
    with pytest.raises(SettingsError, match=f"at least {SMALLEST_VOCAB}"):
        write_tokenizer(tmp_path, SMALLEST_VOCAB - 1, 4096)


def test_merges_join_from_the_left() -> None:
    assert merge(["a", "a", "a", "b"], ("a", "a")) == ["aa", "a", "b"]


def test_the_byte_alphabet_is_one_printable_character_per_byte() -> None:
    alphabet = byte_alphabet()
    assert sorted(alphabet) == list(range(256))
    assert len(set(alphabet.values())) == 256
    assert all(letter.isprintable() for letter in alphabet.values())


def _set(folder: Path, file: str, **values: object) -> None:
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_templates_and_tokens_are_found_where_real_checkpoints_have_them(tiny: Path, copy_of: Copier) -> None:
    folder = copy_of(tiny)
    (folder / "chat_template.jinja").unlink()
    templates = [
        {"name": "tool", "template": "no"},
        {"name": "default", "template": "{{ bos_token }}{{ messages | length }}"},
    ]
    _set(folder, "tokenizer_config.json", chat_template=templates, bos_token={"content": "<s>"}, pad_token=None)
    _set(folder, "generation_config.json", eos_token_id=2)
    _set(folder, "config.json", pad_token_id=7)
    tokenizer = ChatTokenizer.from_folder(folder)
    assert tokenizer.render(CHAT) == "<s>2"
    assert (tokenizer.eos_token_ids, tokenizer.pad_token_id) == ((2,), 7)
    (folder / "generation_config.json").unlink()
    assert ChatTokenizer.from_folder(folder).eos_token_ids == (11,)


def test_templates_may_refuse_and_may_not_escape(tiny: Path, copy_of: Copier) -> None:
    folder = copy_of(tiny)
    template = folder / "chat_template.jinja"
    template.write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(CheckpointError, match="roles must alternate"):
        ChatTokenizer.from_folder(folder).render(CHAT)
    template.write_text("{{ messages.__class__.__mro__ }}")
    with pytest.raises(CheckpointError, match="refuses"):
        ChatTokenizer.from_folder(folder).render(CHAT)
    template.write_text("{% if %}")
    with pytest.raises(CheckpointError, match="broken"):
        ChatTokenizer.from_folder(folder).render(CHAT)
    template.unlink()
    with pytest.raises(CheckpointError, match="no chat template"):
        ChatTokenizer.from_folder(folder).render(CHAT)


def test_a_broken_tokenizer_is_named(tiny: Path, copy_of: Copier) -> None:
    folder = copy_of(tiny)
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: is not a tokenizer"):
        ChatTokenizer.from_folder(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be read"):
        ChatTokenizer.from_folder(folder)
