"""Causal attention for [s, b, h, d] and packed [t, h, d] inputs, grouped queries and context parallelism.

In the place of TEDotProductAttention; megatron's own DotProductAttention refuses packing and context parallelism.
"""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn
from torch.nn import functional as F

from nemotron_rl.megatron.modules.documents import context_parallel_order, document_bounds


class CoreAttention(nn.Module):
    """softmax(q k / sqrt(d)) v; the keys and values of all context-parallel ranks are gathered first."""

    def __init__(
        self,
        config: TransformerConfig,
        layer_number: int,
        attn_mask_type: AttnMaskType,
        pg_collection: ProcessGroupCollection,
        softmax_scale: float | None = None,
        **_: Any,
    ) -> None:
        super().__init__()
        if config.attention_dropout != 0.0 or attn_mask_type != AttnMaskType.causal:
            raise NotImplementedError(f"causal attention without dropout only, in layer {layer_number}")
        self.cp_group, self.scale = pg_collection.cp, softmax_scale

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        packed_seq_params: PackedSeqParams | None = None,
        **_: Any,
    ) -> Tensor:
        """[s, b, h * d], or [t, h * d] for packed inputs. `attention_mask` is ignored: the mask is causal."""
        packed = query.dim() == 3
        if packed:
            query, key, value = (t.unsqueeze(1) for t in (query, key, value))
        local, cp_size = query.size(0), self.cp_group.size()
        position_S = torch.arange(local, device=query.device)
        if cp_size > 1:
            order = context_parallel_order(local * cp_size, cp_size, packed_seq_params).to(query.device)
            position_S = order.chunk(cp_size)[self.cp_group.rank()]
            back = torch.argsort(order)
            key, value = (gather_from_sequence_parallel_region(t, group=self.cp_group)[back] for t in (key, value))
        query, key, value = (rearrange(t, "s b h d -> b h s d") for t in (query, key, value))
        bounds = document_bounds(local * cp_size, packed_seq_params)
        # A rank holds its tokens of one document after the other. Split, not sliced: a slice's gradient is a whole row.
        held = [int(((position_S >= start) & (position_S < end)).sum()) for start, end in bounds]
        lengths = [end - start for start, end in bounds]
        documents = zip(query.split(held, 2), key.split(lengths, 2), value.split(lengths, 2), strict=True)
        attended = [
            F.scaled_dot_product_attention(
                *document,
                attn_mask=mine[:, None] >= torch.arange(start, end, device=query.device)[None],
                scale=self.scale,
                enable_gqa=True,
            )
            for document, mine, (start, end) in zip(documents, position_S.split(held), bounds, strict=True)
        ]
        out = attended[0] if len(attended) == 1 else torch.cat(attended, 2)
        out = rearrange(out, "b h s d -> s b (h d)")
        return out.squeeze(1) if packed else out
