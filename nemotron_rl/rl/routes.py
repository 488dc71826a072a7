"""Which experts computed each token, as an engine recorded it. Pure.

A sequence of T tokens has routes for T - 1 of them: an engine never runs the last sampled token, and nothing that is
trained depends on what the trunk makes of it. Whatever has no record, padding included, routes for itself.

B samples · L tokens of the longest · T tokens of one · M mixture-of-experts layers of the trunk · K experts per token
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nemotron_rl.errors import NemotronRLError

NO_ROUTE = -1
"""In the place of an expert's index: the token has no record."""
DTYPE = torch.int16
"""Ultra has 512 experts; at 22 per token a token takes 44 bytes per layer."""


def stack_routes(routes: Sequence[Tensor | None], length: int) -> Tensor | None:
    """Routes [B, L, M, K] of samples whose own are [T - 1, M, K]; None when no sample has any.

    Raises:
        NemotronRLError: when only some samples have routes, or of other sizes.
    """
    known = [one for one in routes if one is not None]
    if not known:
        return None
    sizes = {tuple(one.shape[1:]) for one in known}
    if len(known) < len(routes) or len(sizes) > 1:
        raise NemotronRLError(
            f"{len(known)} of {len(routes)} samples have routes, of [MoE layers, experts per token] {sorted(sizes)}; "
            "all or none must have them, of one size"
        )
    stacked_BLMK = torch.full((len(routes), length, *known[0].shape[1:]), NO_ROUTE, dtype=DTYPE)
    for row, one in enumerate(known):
        stacked_BLMK[row, : len(one)] = one
    return stacked_BLMK


def check_routes(routes_TMK: Tensor, *, tokens: int, experts: int) -> None:
    """These are `tokens` tokens' routes, each of different experts of so many.

    Raises:
        NemotronRLError: they are not; names the first token and layer.
    """
    if len(routes_TMK) != tokens:
        raise NemotronRLError(f"the engine gave routes of {len(routes_TMK)} tokens; it ran {tokens}")
    sorted_TMK = routes_TMK.sort(-1).values
    wrong_TM = ((sorted_TMK < 0) | (sorted_TMK >= experts)).any(-1)
    wrong_TM |= (sorted_TMK[..., 1:] == sorted_TMK[..., :-1]).any(-1)
    if bool(wrong_TM.any()):
        token, layer = wrong_TM.nonzero()[0].tolist()
        given = routes_TMK[token, layer].tolist()
        raise NemotronRLError(
            f"the engine's route of token {token} in MoE layer {layer} is {given}; expected {len(given)} different "
            f"experts of {experts}. Set train.moe.routing_replay = off to train without"
        )


def changed_routes(ours_TK: Tensor, theirs_TK: Tensor) -> Tensor:
    """Whether two routes of a token are different sets of experts, bool [T]."""
    return (ours_TK.sort(-1).values != theirs_TK.sort(-1).values).any(-1)
