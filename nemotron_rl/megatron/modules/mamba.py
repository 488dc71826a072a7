"""Megatron's MambaMixer with its fused training kernel done in torch, each document from a zero state."""

from __future__ import annotations

import torch
from einops import rearrange
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.ssm.mamba_mixer import MambaMixer
from torch import Tensor
from torch.nn import functional as F

from nemotron_rl.megatron.modules.documents import document_bounds
from nemotron_rl.ops.conv import causal_conv
from nemotron_rl.ops.ssd import ssd_scan


class TorchMambaMixer(MambaMixer):
    """Parameters, TP shards, context parallelism and sharded_state_dict are the parent's."""

    def _ssm_training(self, zxBCdt: Tensor, packed_seq_params: PackedSeqParams | None = None) -> Tensor:
        cp, inner = self.cp, self.cp.d_inner_local_tpcp
        group_width = cp.ngroups_local_tpcp * self.d_state
        z, xBC, dt = torch.split(zxBCdt, [inner, inner + 2 * group_width, cp.nheads_local_tpcp], -1)
        lengths = [end - start for start, end in document_bounds(len(zxBCdt), packed_seq_params)]
        # Split, not sliced: the gradient of a slice is as long as the whole row.
        parts = [self._document(*part) for part in zip(xBC.split(lengths), dt.split(lengths), strict=True)]
        y = parts[0] if len(parts) == 1 else torch.cat(parts)
        y, z = (cp.post_conv_ssm(t.contiguous(), packed_seq_params) for t in (y, z))
        return self.norm(y, z) if self.rmsnorm else y * F.silu(z)

    def _document(self, xBC_LBD: Tensor, dt_LBH: Tensor) -> Tensor:
        """Convolution and scan of one document: y before the gated norm."""
        cp, inner = self.cp, self.cp.d_inner_local_tpcp
        group_width = cp.ngroups_local_tpcp * self.d_state
        mixed_LBD = F.silu(causal_conv(xBC_LBD, cp.get_conv1d_weight().squeeze(1), cp.get_conv1d_bias()))
        x, B, C = torch.split(mixed_LBD, [inner, group_width, group_width], -1)
        y_BLHP, _ = ssd_scan(
            rearrange(x, "l b (h p) -> b l h p", p=self.headdim),
            F.softplus(dt_LBH.transpose(0, 1).float() + cp.get_dt_bias().float()),
            -torch.exp(cp.get_A_log().float()),
            rearrange(B, "l b (g n) -> b l g n", n=self.d_state),
            rearrange(C, "l b (g n) -> b l g n", n=self.d_state),
            cp.get_D(),
            self.chunk_size,
        )
        return rearrange(y_BLHP, "b l h p -> l b (h p)").to(xBC_LBD.dtype)
