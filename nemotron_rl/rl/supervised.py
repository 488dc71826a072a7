"""A prompt and its label as a supervised document."""

from __future__ import annotations

import random
from collections.abc import Sequence

from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
from nemotron_rl.data.prompts import Prompt
from nemotron_rl.rl.batch import TokenSequence


def supervised_document(prompt: Prompt, tokenizer: ChatTokenizer, style: str = "{label}") -> TokenSequence:
    """The chat prompt, and as its response the label in the given style and the token that ends a turn."""
    question = tokenizer.encode_chat(prompt.chat())
    answer = [*tokenizer.encode(style.format(label=prompt.label)), tokenizer.turn_end_id]
    return TokenSequence(tuple(question), tuple(answer))


def choose_style(styles: Sequence[str], seed: int, step: int, index: int) -> str:
    """The style of one document in one step, by chance, but the same whatever else is drawn."""
    return random.Random(f"{seed}/{step}/{index}").choice(styles)
