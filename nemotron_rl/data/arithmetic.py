"""Prompts that a model of a few million parameters can learn to answer: sums such as `3+4=`. No files, no tokenizer."""

from __future__ import annotations

import operator
import random

from nemotron_rl.config.data import ArithmeticSettings
from nemotron_rl.data.prompts import Message, Prompt
from nemotron_rl.errors import SettingsError

_OPERATORS = {"+": operator.add, "-": operator.sub}


def generate_arithmetic(
    seed: int, eval_prompts: int, settings: ArithmeticSettings | None = None
) -> tuple[list[Prompt], list[Prompt]]:
    """All problems of the settings, split into (training, held-out) prompts that have no prompt in common.

    The prompts are short on purpose: a byte-level tokenizer makes one token of each character. `3+4` and `4+3` are
    different prompts and may lie on different sides of the split.

    Args:
        seed: Seed of the split and of the order; equal seeds give equal prompts on every machine.
        eval_prompts: How many are held out.
        settings: What is asked; by default sums without a carry.

    Raises:
        SettingsError: Nothing would be left to train on.
    """
    settings = settings or ArithmeticSettings()
    problems = settings.problems
    if eval_prompts >= len(problems):
        raise SettingsError(
            f"data.eval_prompts = {eval_prompts} leaves nothing to train on: there are {len(problems)} problems; "
            f"hold out at most {len(problems) - 1}"
        )
    random.Random(seed).shuffle(problems)
    return _prompts(problems[eval_prompts:]), _prompts(problems[:eval_prompts])


def _prompts(problems: list[tuple[int, str, int]]) -> list[Prompt]:
    return [_prompt(index, *problem) for index, problem in enumerate(problems)]


def _prompt(index: int, left: int, sign: str, right: int) -> Prompt:
    question = Message(role="user", content=f"{left}{sign}{right}=")
    return Prompt(index=index, messages=(question,), label=str(_OPERATORS[sign](left, right)))
