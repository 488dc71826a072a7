"""Megatron's MambaMixer with its fused training kernel done in torch, each document from a zero state."""

from __future__ import annotations

import torch
from einops import rearrange
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.ssm.mamba_mixer import MambaMixer
from torch import Tensor
from torch.nn import functional as F

from nemotron_rl.megatron.modules.documents import document_bounds
from nemotron_rl.ops.ssd import ssd_scan


class TorchMambaMixer(MambaMixer):
    """Parameters, TP shards, context parallelism and sharded_state_dict are the parent's."""

    def _ssm_training(self, zxBCdt: Tensor, packed_seq_params: PackedSeqParams | None = None) -> Tensor:
        zxBCdt_BLD = rearrange(zxBCdt, "l b d -> b l d")
        bounds = document_bounds(zxBCdt_BLD.size(1), packed_seq_params)
        parts = [self._document(zxBCdt_BLD[:, start:end]) for start, end in bounds]
        y, z = (
            self.cp.post_conv_ssm(rearrange(torch.cat(part, 1), "b l d -> l b d").contiguous(), packed_seq_params)
            for part in zip(*parts, strict=True)
        )
        return self.norm(y, z) if self.rmsnorm else y * F.silu(z)

    def _document(self, zxBCdt_BLD: Tensor) -> tuple[Tensor, Tensor]:
        """Convolution and scan of one document; y before the gated norm, and the gate z."""
        cp, inner = self.cp, self.cp.d_inner_local_tpcp
        group_width = cp.ngroups_local_tpcp * self.d_state
        z, xBC, dt = torch.split(zxBCdt_BLD, [inner, inner + 2 * group_width, cp.nheads_local_tpcp], -1)
        weight = cp.get_conv1d_weight()
        xBC = F.pad(xBC.transpose(1, 2), (weight.shape[-1] - 1, 0))
        xBC = F.silu(F.conv1d(xBC, weight, cp.get_conv1d_bias(), groups=weight.shape[0])).transpose(1, 2)
        x, B, C = torch.split(xBC, [inner, group_width, group_width], -1)
        y, _ = ssd_scan(
            rearrange(x, "b l (h p) -> b l h p", p=self.headdim),
            F.softplus(dt.float() + cp.get_dt_bias().float()),
            -torch.exp(cp.get_A_log().float()),
            rearrange(B, "b l (g n) -> b l g n", n=self.d_state),
            rearrange(C, "b l (g n) -> b l g n", n=self.d_state),
            cp.get_D(),
            self.chunk_size,
        )
        return rearrange(y, "b l h p -> b l (h p)").to(zxBCdt_BLD.dtype), z
