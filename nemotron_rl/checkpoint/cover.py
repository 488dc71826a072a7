"""Which layers make the cheapest slice that still has everything the model has. Pure; reads and writes nothing.

The rule. In these models a layer that mixes tokens (M or *) is nearly everywhere followed by one that does not (E or
-), and the MTP head repeats such a pair. So a slice must have every block type, and each kind of mixer together with
each kind of feed-forward that follows it in the source, as neighbours. Of all selections that do, the one of fewest
bytes is taken; of equals the earliest.

By bytes and block types alone Ultra's `MEMEMEM*E…` would give 0,1,7 (`ME*`), a trunk that ends in attention, which no
Nemotron-3 model does, and that never routes what attention wrote. The rule gives 0,1,7,8 (`ME*E`). The run 7 to 10
(`*EME`) costs the same; the earliest of equals begins with the layer that has always read the embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_MIXERS, _FEED_FORWARDS = "M*", "E-"


@dataclass(frozen=True)
class Candidate:
    """A selection of layers and what speaks for it."""

    layers: tuple[int, ...]
    """Ascending."""
    pattern: str
    """Their block letters."""
    nbytes: int
    """Bytes of these layers' tensors."""
    lacks: tuple[str, ...]
    """Block types (`E`) and pairs (`*E`) of the source that it does not have."""


@dataclass(frozen=True)
class Choice:
    """The cheapest selection, beside what else there is."""

    needs: tuple[str, ...]
    """What a selection must have: pairs, and the block types that are in none."""
    chosen: Candidate
    types_only: Candidate
    """The cheapest with every block type, whatever its neighbours."""
    in_a_row: Candidate
    """The cheapest without a gap that has all that is needed."""


def requirements(pattern: str) -> tuple[str, ...]:
    """Each kind of mixer with its feed-forward, in the order in which they appear, and every block type in no pair."""
    pairs = dict.fromkeys(a + b for a, b in pairwise(pattern) if a in _MIXERS and b in _FEED_FORWARDS)
    return (*pairs, *(letter for letter in dict.fromkeys(pattern) if letter not in "".join(pairs)))


def cheapest_cover(pattern: str, layer_bytes: Sequence[int] | None = None) -> tuple[int, ...]:
    """The layers, ascending, that have all `requirements` in the fewest bytes; of equals the earliest.

    No two requirements can share a layer: it is a mixer or a feed-forward, and has one neighbour on either side. So
    each takes its own cheapest place, and nothing has to be searched.

    Args:
        pattern: Block letters of the source.
        layer_bytes: Bytes per layer; without it all layers count the same.
    """
    return _cheapest_of(requirements(pattern), pattern, layer_bytes or [1] * len(pattern))


def choose_layers(pattern: str, layer_bytes: Sequence[int]) -> Choice:
    """The cheapest cover with its reasons. `pattern` has at least one layer; `layer_bytes` one number for each."""
    needs = requirements(pattern)

    def candidate(layers: tuple[int, ...]) -> Candidate:
        has = {pattern[i] for i in layers} | {pattern[i : i + 2] for i in layers if i + 1 in layers}
        return Candidate(
            layers,
            "".join(pattern[i] for i in layers),
            sum(layer_bytes[i] for i in layers),
            tuple(need for need in needs if need not in has),
        )

    return Choice(
        needs=needs,
        chosen=candidate(_cheapest_of(needs, pattern, layer_bytes)),
        types_only=candidate(_cheapest_of(tuple(dict.fromkeys(pattern)), pattern, layer_bytes)),
        in_a_row=candidate(_cheapest_window(needs, pattern, layer_bytes)),
    )


def _cheapest_of(needs: Sequence[str], pattern: str, layer_bytes: Sequence[int]) -> tuple[int, ...]:
    """The cheapest place of each need; no two needs have a layer in common."""
    layers: list[int] = []
    for need in needs:
        runs = [range(i, i + len(need)) for i in range(len(pattern)) if pattern.startswith(need, i)]
        layers += min(runs, key=lambda run: sum(layer_bytes[i] for i in run))
    return tuple(sorted(layers))


def _cheapest_window(needs: Sequence[str], pattern: str, layer_bytes: Sequence[int]) -> tuple[int, ...]:
    """The cheapest run of neighbours that has every need: for each end the latest start that will do."""
    latest: dict[str, int] = {}
    best: tuple[int, int, int] | None = None
    for end in range(1, len(pattern) + 1):
        latest |= {need: end - len(need) for need in needs if pattern[:end].endswith(need)}
        if len(latest) == len(needs):
            start = min(latest.values())
            found = (sum(layer_bytes[start:end]), start, end)
            best = min(best, found) if best else found
    return tuple(range(best[1], best[2])) if best else ()
