"""Mamba-2's state-space scan in plain torch: over a whole sequence in chunks, and one token at a time.

B sequences · L tokens · H heads · P head dim · G groups · N state · R heads per group · K chunks
T, S tokens in a chunk
Dao and Gu, "Transformers are SSMs" (arXiv 2405.21060), section 6. transformers 5.12.1 sums over the wrong dimension
between chunks, so it must not be compared against beyond one chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def ssd_scan(
    x_BLHP: Tensor,
    dt_BLH: Tensor,
    A_H: Tensor,
    B_BLGN: Tensor,
    C_BLGN: Tensor,
    D_H: Tensor,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    """The outputs [B, L, H, P] and the state after the last token [B, H, P, N], both fp32; the first state is zero.

    state_t = exp(dt_t A) state_{t-1} + dt_t x_t B_t,  y_t = state_t C_t + D x_t. A token with dt 0 leaves the state
    as it is. `A_H` is negative, `dt_BLH` is after softplus.
    """
    batch, length, heads, head_dim = x_BLHP.shape
    groups, state_dim = B_BLGN.shape[2:]
    x_BLHP, dt_BLH = x_BLHP.float(), dt_BLH.float()
    chunk = min(chunk, length)
    padding, chunks = -length % chunk, -(-length // chunk)

    def chunked(t: Tensor, *shape: int) -> Tensor:
        t = F.pad(t.float(), (0, 0) * (t.dim() - 2) + (0, padding)) if padding else t.float()
        return t.reshape(batch, chunks, chunk, *shape)

    per_group = heads // groups
    dx_BKGRTP = chunked(x_BLHP * dt_BLH[..., None], groups, per_group, head_dim).permute(0, 1, 3, 4, 2, 5)
    B_BKGTN = chunked(B_BLGN, groups, state_dim).transpose(2, 3)
    C_BKGTN = chunked(C_BLGN, groups, state_dim).transpose(2, 3)
    # Log decay since the chunk's start.
    decay_BKGRT = chunked(dt_BLH * A_H, groups, per_group).permute(0, 1, 3, 4, 2).contiguous().cumsum(-1)

    # Within a chunk: token t sees s <= t, decayed by the tokens in between.
    later_TS = torch.ones(chunk, chunk, dtype=torch.bool, device=x_BLHP.device).triu(1)
    between = (decay_BKGRT[..., None] - decay_BKGRT[..., None, :]).masked_fill(later_TS, float("-inf"))
    scores_BKGTS = C_BKGTN @ B_BKGTN.transpose(-1, -2)
    y_BKGRTP = (scores_BKGTS.unsqueeze(3) * torch.exp(between)) @ dx_BKGRTP

    # Between chunks: each chunk adds to the state, which decays over the next one.
    to_end_BKGRT = torch.exp(decay_BKGRT[..., -1:] - decay_BKGRT)
    added_BKGRPN = (dx_BKGRTP * to_end_BKGRT[..., None]).transpose(-1, -2) @ B_BKGTN.unsqueeze(3)
    whole_BKGR = torch.exp(decay_BKGRT[..., -1])
    state_BGRPN, before = added_BKGRPN[:, 0], []
    for k in range(1, chunks):
        before.append(state_BGRPN)
        state_BGRPN = state_BGRPN * whole_BKGR[:, k, :, :, None, None] + added_BKGRPN[:, k]
    if before:  # the first chunk has no state before it
        seen_BKGRTP = C_BKGTN[:, 1:].unsqueeze(3) @ torch.stack(before, 1).transpose(-1, -2)
        seen_BKGRTP = seen_BKGRTP * torch.exp(decay_BKGRT[:, 1:, ..., None])
        y_BKGRTP = torch.cat([y_BKGRTP[:, :1], y_BKGRTP[:, 1:] + seen_BKGRTP], 1)

    y_BKTGRP = y_BKGRTP.permute(0, 1, 4, 2, 3, 5)
    y_BLHP = y_BKTGRP.reshape(batch, length + padding, heads, head_dim)[:, :length]
    return y_BLHP + x_BLHP * D_H.float()[:, None], state_BGRPN.flatten(1, 2)


def ssd_step(
    state_BHPN: Tensor, x_BHP: Tensor, dt_BH: Tensor, A_H: Tensor, B_BGN: Tensor, C_BGN: Tensor, D_H: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of `ssd_scan`: the output [B, H, P] and the new state [B, H, P, N], fp32."""
    per_group = x_BHP.shape[1] // B_BGN.shape[1]
    x_BHP, dt_BH = x_BHP.float(), dt_BH.float()
    B_BHN, C_BHN = (t.float().repeat_interleave(per_group, 1) for t in (B_BGN, C_BGN))
    added_BHPN = (dt_BH[..., None] * x_BHP)[..., None] * B_BHN[:, :, None]
    state_BHPN = state_BHPN * torch.exp(dt_BH * A_H)[..., None, None] + added_BHPN
    y_BHP = torch.einsum("bhpn,bhn->bhp", state_BHPN, C_BHN) + x_BHP * D_H.float()[:, None]
    return y_BHP, state_BHPN
