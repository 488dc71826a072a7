"""Replacements in megatron that every backend needs: faults of the pinned versions, not of the machine."""

from __future__ import annotations

from nemotron_rl.megatron.backend.replacement import Replacement, apply


def replace_megatron_parts() -> None:
    """Put them in place, and tell megatron-bridge how the module is split over TP that every backend has."""
    from queue import Queue

    from megatron.bridge.models.conversion.param_mapping import AutoMapping

    from nemotron_rl.megatron.backend.torch_adam import torch_adam_replacements
    from nemotron_rl.megatron.modules.output_layer import DeferredOutputLayer
    from nemotron_rl.megatron.mtp_loss import process_mtp_loss

    apply(
        [
            Replacement(
                "megatron.core.models.hybrid.hybrid_model",
                "process_mtp_loss",
                process_mtp_loss,
                "megatron-core 0.19.2 normalizes the MTP loss by token counts of one micro-batch on one rank",
            ),
            Replacement(
                "megatron.core.dist_checkpointing.strategies.filesystem_async",
                "get_write_results_queue",
                Queue,
                "it starts a manager process by spawn, for seconds, and checkpoints are written by threads here",
            ),
            *torch_adam_replacements(),
        ]
    )
    AutoMapping.register_module_type(DeferredOutputLayer.__name__, "column")
