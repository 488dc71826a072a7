"""The process behind MathReward: JSON lines `[response, label]` in, `1.0` or `0.0` out, until its input ends."""

from __future__ import annotations

import json
import sys

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

SECONDS = 5
"""Limit of each step; the parent ends this process when a step does not respect it."""


def score(response: str, label: str) -> float:
    """1.0 when the last answer in `response` equals `label`, in LaTeX or as a plain expression; else 0.0."""
    configs = (LatexExtractionConfig(), ExprExtractionConfig())
    gold = parse(f"${label}$", configs, parsing_timeout=SECONDS) or parse(label, configs, parsing_timeout=SECONDS)
    answer = parse(response, configs, parsing_timeout=SECONDS)
    return float(bool(gold) and bool(answer) and verify(gold, answer, timeout_seconds=SECONDS))


def main() -> None:
    """Serve until the parent closes the pipe."""
    score("1", "1")  # imports and builds the parsers, which takes seconds once
    print("ready", flush=True)
    for line in sys.stdin:
        response, label = json.loads(line)
        print(score(response, label), flush=True)


if __name__ == "__main__":
    main()
