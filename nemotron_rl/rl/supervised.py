"""A prompt and its label as a supervised document."""

from __future__ import annotations

from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
from nemotron_rl.data.prompts import Prompt
from nemotron_rl.rl.batch import TokenSequence


def supervised_document(prompt: Prompt, tokenizer: ChatTokenizer) -> TokenSequence:
    """The chat prompt, and as its response the label and the token that ends a turn."""
    question = tokenizer.encode_chat([message.model_dump() for message in prompt.messages])
    answer = [*tokenizer.encode(prompt.label), tokenizer.eos_token_ids[0]]
    return TokenSequence(tuple(question), tuple(answer))
