"""DistributedOptimizer with torch's AdamW, which megatron-core falls back to without Transformer Engine and Apex.

AdamW keeps a `step` tensor per parameter where FusedAdam keeps one number per group, and megatron-core 0.19.2's
checkpoint code was not written for that. Whoever loads a checkpoint must also set the steps: `optimizer.set_step`.
"""

from __future__ import annotations

from typing import Any

import torch

from nemotron_rl.megatron.backend.replacement import Replacement

_OWNER = "megatron.core.optimizer.distrib_optimizer:DistributedOptimizer"


def torch_adam_replacements() -> list[Replacement]:
    """What stands in; nothing where Transformer Engine or Apex is there."""
    from megatron.core.optimizer import distrib_optimizer

    if distrib_optimizer.HAVE_APEX_OR_TE:
        return []
    state_dict = distrib_optimizer.DistributedOptimizer.state_dict
    set_states = distrib_optimizer.DistributedOptimizer._set_main_param_and_optimizer_states

    def state_dict_with_steps(self: Any) -> Any:
        _fill_states(self.optimizer)
        if any(group["params"] for group in self.optimizer.param_groups):
            return state_dict(self)
        # Upstream takes the step from a parameter; a pipeline stage without experts has none in its expert part.
        groups = [{**group, "step": 0.0} for group in self.optimizer.state_dict()["param_groups"]]
        return {"optimizer": {"param_groups": [_without_parameters(group) for group in groups]}}

    @torch.no_grad()
    def set_states_but_steps(self: Any, model_param: Any, tensors: dict[str, Any]) -> None:
        set_states(self, model_param, {**tensors, "step": None})

    return [
        Replacement(
            _OWNER,
            "state_dict",
            state_dict_with_steps,
            "asserts that some parameter has been stepped, when loading too",
        ),
        Replacement(
            _OWNER,
            "_set_main_param_and_optimizer_states",
            set_states_but_steps,
            "KeyError: 'step'; and fp32 shards are views of parameters, which autograd must not see written",
        ),
    ]


def _fill_states(adam: torch.optim.AdamW) -> None:
    """Give parameters that were never stepped the state that AdamW would give them at their first step."""
    for group in adam.param_groups:
        for parameter in group["params"]:
            if not adam.state[parameter]:
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                adam.state[parameter] = {"step": torch.tensor(0.0), **moments}


def _without_parameters(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}
