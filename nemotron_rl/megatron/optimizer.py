"""Megatron's optimizer and learning-rate schedule from our settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from torch import nn

from nemotron_rl.config.training import OptimizerSettings


def build_optimizer(settings: OptimizerSettings, chunks: Sequence[nn.Module], bf16: bool) -> MegatronOptimizer:
    """AdamW over all trainable parameters, with fp32 masters under bf16."""
    config = OptimizerConfig(
        optimizer="adam",
        lr=settings.lr,
        min_lr=settings.min_lr,
        weight_decay=settings.weight_decay,
        adam_beta1=settings.beta1,
        adam_beta2=settings.beta2,
        adam_eps=settings.eps,
        clip_grad=settings.clip_grad,
        bf16=bf16,
        fp16=False,
        use_distributed_optimizer=False,
    )
    return get_megatron_optimizer(config, list(chunks))


def build_schedule(settings: OptimizerSettings, optimizer: MegatronOptimizer, steps: int) -> OptimizerParamScheduler:
    """Linear warm-up, then the decay down to `min_lr` at step `steps`. Counted in optimizer steps."""
    return OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=settings.lr,
        min_lr=settings.min_lr,
        lr_warmup_steps=settings.warmup_steps,
        lr_decay_steps=max(steps, settings.warmup_steps + 1),
        lr_decay_style=settings.decay,
        start_wd=settings.weight_decay,
        end_wd=settings.weight_decay,
        wd_incr_steps=0,
        wd_incr_style="constant",
    )


def learning_rate(optimizer: Any) -> float:
    """The learning rate that the next step uses."""
    return float(optimizer.param_groups[0]["lr"])
