"""DAPO's dynamic sampling, prompt by prompt: no replicas, no rounds held in parallel."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def one_step(
    order: Sequence[int], position: int, batch: int, rounds: int, informative: Collection[int]
) -> tuple[list[int], int]:
    """The prompts of a step and the position after it; `order` is the endless list of prompts from position 0 on."""
    prompts = len(set(order))
    drawn: list[tuple[int, int]] = []  # (position, prompt)
    for number in range(1 + rounds):
        if sum(prompt in informative for _, prompt in drawn) >= batch:
            break
        if number and prompts - len({prompt for _, prompt in drawn}) < batch:
            break
        wanted = len(drawn) + batch
        while len(drawn) < wanted:
            if number == 0 or order[position] not in [prompt for _, prompt in drawn]:
                drawn.append((position, order[position]))
            position += 1
    good = [one for one in drawn if one[1] in informative][:batch]
    if len(good) == batch:
        return [prompt for _, prompt in good], good[-1][0] + 1
    rest = [one for one in drawn if one[1] not in informative][: batch - len(good)]
    return [prompt for _, prompt in sorted(good + rest)], position
