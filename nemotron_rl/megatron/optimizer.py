"""Megatron's optimizer and learning-rate schedule from our settings."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from megatron.core.optimizer import (
    MegatronOptimizer,
    OptimizerConfig,
    ParamKey,
    get_megatron_optimizer,
    get_standard_config_overrides,
)
from megatron.core.optimizer.optimizer_config import ParamWithNamePredicate
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from torch import nn

from nemotron_rl.config.fields import flat
from nemotron_rl.config.training import OptimizerSettings
from nemotron_rl.errors import InputError

GROUPS: dict[str, Callable[[list[str]], bool]] = {
    "mtp": lambda parts: "mtp" in parts,
    "router": lambda parts: "router" in parts,
    "experts": lambda parts: "experts" in parts,
    "mamba": lambda parts: "mixer" in parts,
    "embeddings": lambda parts: "embedding" in parts or "output_layer" in parts,
}
"""Groups of `LrScaleSettings` in their order: whether the dotted parts of a parameter's name say that it belongs."""


def build_optimizer(settings: OptimizerSettings, chunks: Sequence[nn.Module], bf16: bool) -> MegatronOptimizer:
    """AdamW over all trainable parameters, with fp32 masters under bf16.

    With `settings.distributed` the chunks' DDP must have been built for a distributed optimizer.

    Raises:
        InputError: bf16 moments without Transformer Engine.
    """
    if settings.moments == "bf16" and importlib.util.find_spec("transformer_engine") is None:
        raise InputError(
            "optimizer.moments = bf16 needs Transformer Engine's FusedAdam, which is not installed here; use fp32"
        )
    moments = torch.bfloat16 if settings.moments == "bf16" else torch.float32
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
        use_distributed_optimizer=settings.distributed,
        use_precision_aware_optimizer=settings.moments != "fp32",
        exp_avg_dtype=moments,
        exp_avg_sq_dtype=moments,
        optimizer_cpu_offload=settings.cpu_offload > 0,
        optimizer_offload_fraction=settings.cpu_offload,
        use_torch_optimizer_for_cpu_offload=settings.cpu_offload > 0,
    )
    overrides = {**get_standard_config_overrides(config), **_learning_rates(settings)}
    return get_megatron_optimizer(config, list(chunks), overrides)


def parameter_group(name: str) -> str | None:
    """The group of `LrScaleSettings` that a parameter of this dotted name belongs to; None for the rest."""
    parts = name.split(".")
    return next((group for group, belongs in GROUPS.items() if belongs(parts)), None)


def _learning_rates(settings: OptimizerSettings) -> dict[ParamKey, dict[str, float]]:
    """Megatron's overrides for the groups whose learning rate is not the schedule's own."""
    return {
        ParamKey(with_name_predicate=_membership(group)): {
            "max_lr": scale * settings.lr,
            "min_lr": scale * settings.min_lr,
        }
        for group, scale in flat(settings.lr_scale).items()
        if isinstance(scale, float) and scale != 1.0
    }


def _membership(group: str) -> ParamWithNamePredicate:
    return ParamWithNamePredicate(name=f"lr_scale_{group}", fn=lambda _, name: parameter_group(name) == group)


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


def learning_rate(schedule: OptimizerParamScheduler) -> float:
    """The learning rate that the next step uses, for parameters without one of their own."""
    return float(schedule.get_lr({}))


def set_step(optimizer: MegatronOptimizer, schedule: OptimizerParamScheduler, step: int) -> None:
    """Make schedule and Adam continue after `step` optimizer steps.

    Adam's own counters are set one by one: megatron-core 0.19.2 loads one step tensor for all parameters, which torch's
    AdamW then advances once per parameter, and none at all for parameters whose optimizer part the first rank has not.
    """
    schedule.num_steps = 0
    schedule.step(increment=step)
    for adam in torch_optimizers(optimizer):
        for parameter, state in adam.state.items():
            if "step" in state or isinstance(adam, torch.optim.AdamW):
                adam.state[parameter]["step"] = torch.tensor(float(step))


def torch_optimizers(optimizer: MegatronOptimizer) -> Iterator[Any]:
    """The torch optimizers below megatron's."""
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        if part.optimizer is not None:
            yield part.optimizer
