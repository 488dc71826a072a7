"""The prompts of one step: drawn once, or again while too few of them teach something (DAPO's dynamic sampling)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched

from nemotron_rl.data.sampler import PromptSampler
from nemotron_rl.megatron import process
from nemotron_rl.rl.shaping import choose_groups
from nemotron_rl.rollout.collect import Sample

Collect = Callable[[Sequence[int]], Sequence[Sample]]
"""Prompt indices of this replica -> its samples, equally many of each prompt, in that order; a collective call."""


@dataclass(frozen=True)
class Drawn:
    """The samples of one step on this replica."""

    samples: list[Sample]
    """What it trains on: all samples of a prompt one after the other, equally many on each replica."""
    everything: list[Sample]
    """All that it generated. Measures of the policy are taken of these: prompts that are too easy or too hard count."""
    metrics: dict[str, float]
    """How many prompts were drawn, equal on all ranks."""


def draw(sampler: PromptSampler, collect: Collect, redraw_rounds: int, parts: int = 1) -> Drawn:
    """Draw `sampler.batch` prompts, and as many more up to `redraw_rounds` times while too few are informative.

    Every rank of every replica draws the same rounds. What is chosen depends neither on the number of replicas nor on
    how many prompts were drawn beyond the last one that was needed: the sampler is set back to right behind that one.
    Of each of the `parts` mini-batches every replica has an equal, consecutive share.

    Within a step no prompt is drawn again, because it would get the same samples again.
    """
    positions: list[int] = []
    held: dict[int, Sequence[Sample]] = {}  # by place in `positions`; of this replica
    informative: dict[int, bool] = {}  # of all replicas
    rounds = 0
    while rounds == 0 or (rounds <= redraw_rounds and _lacks(sampler, positions, informative)):
        seen = [sampler.at(position) for position in positions]
        first = len(positions)
        positions += sampler.next_unseen(seen) if rounds else sampler.next_positions()
        mine = process.share_of_dp(range(first, len(positions)), parts)
        held |= _by_place(mine, collect([sampler.at(positions[place]) for place in mine]))
        informative |= dict(process.gathered_over_dp([(place, _tells_apart(held[place])) for place in mine]))
        rounds += 1
    chosen = choose_groups([informative[place] for place in range(len(positions))], sampler.batch)
    if all(informative[place] for place in chosen):
        sampler.position = positions[chosen[-1]] + 1
    return Drawn(
        samples=_exchanged(held, chosen, parts) if rounds > 1 else _flat(held.values()),
        everything=_flat(held.values()),
        metrics={
            "rollout/rounds": rounds,
            "rollout/prompts_drawn": len(positions),
            "rollout/prompts_informative": sum(informative.values()),
        },
    )


def _lacks(sampler: PromptSampler, positions: Sequence[int], informative: Mapping[int, bool]) -> bool:
    """Whether informative prompts are missing, and there are prompts to look for them."""
    missing = sum(informative.values()) < sampler.batch
    return missing and sampler.unseen_are_left([sampler.at(position) for position in positions])


def _by_place(places: Sequence[int], samples: Sequence[Sample]) -> dict[int, Sequence[Sample]]:
    return dict(zip(places, batched(samples, len(samples) // len(places)), strict=True))


def _tells_apart(group: Sequence[Sample]) -> bool:
    return any(sample.reward != group[0].reward for sample in group)


def _exchanged(held: Mapping[int, Sequence[Sample]], chosen: Sequence[int], parts: int) -> list[Sample]:
    """This replica's share of the chosen groups; those that belong to another one go there. A collective call."""
    mine = process.share_of_dp(chosen, parts)
    leaving = [(place, held[place]) for place in chosen if place in held and place not in mine]
    reachable = {**held, **dict(process.gathered_over_dp(leaving))}
    return _flat(reachable[place] for place in mine)


def _flat(groups: Iterable[Sequence[Sample]]) -> list[Sample]:
    return [sample for group in groups for sample in group]
