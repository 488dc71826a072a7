"""The model's weights under their Hugging Face names: streamed for a sync, written for an export."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from nemotron_rl.megatron.model import MegatronModel


def exported_weights(model: MegatronModel) -> Iterator[tuple[str, Tensor]]:
    """(name, full tensor) of every weight on every rank, MTP and expert bias included; a collective call.

    Tensors have the trainer's dtype, may alias its memory, and are valid until the next one is asked for.
    """
    for name, tensor in model.bridge.export_hf_weights(list(model.chunks), show_progress=False):
        yield name, tensor.detach()
