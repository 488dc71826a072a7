"""Documents of the warm-up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
from nemotron_rl.data.prompts import Message, Prompt
from nemotron_rl.rl.supervised import choose_style, supervised_document

STYLES = ("{label}", "{label}.", "{label}!")
PROMPT = Prompt(index=0, messages=(Message(role="user", content="12+3="),), label="15")


@pytest.fixture(scope="module")
def tokenizer(tiny: Path) -> ChatTokenizer:
    return ChatTokenizer.from_folder(tiny)


@pytest.mark.parametrize(("style", "text"), [("{label}", "15"), ("{label}.", "15."), ("so {label}!", "so 15!")])
def test_a_document_asks_as_rollout_does_and_answers_in_the_style(
    tokenizer: ChatTokenizer, style: str, text: str
) -> None:
    document = supervised_document(PROMPT, tokenizer, style)
    assert list(document.prompt) == tokenizer.encode_chat([{"role": "user", "content": "12+3="}])
    assert tokenizer.decode(document.response) == text
    assert document.response[-1] in tokenizer.eos_token_ids
    assert not set(document.response[:-1]) & set(tokenizer.eos_token_ids)


def test_styles_are_drawn_evenly_and_repeatably() -> None:
    drawn = [choose_style(STYLES, 0, step, index) for step in range(60) for index in range(50)]
    assert drawn == [choose_style(STYLES, 0, step, index) for step in range(60) for index in range(50)]
    assert all(900 < count < 1100 for count in Counter(drawn).values())
