"""A module with the parameters that SGLang 0.5.16 gives NemotronH at an attention TP of 1: its names, fusions, padding.

SGLang itself needs a GPU, so the code that runs inside it meets this in its place; on a GPU host the benchmarks and the
train job run it in SGLang.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from nemotron_rl.checkpoint.tensor_table import tensor_table

PAD = 64


def mimic(config: dict[str, Any], ep_rank: int = 0, ep_size: int = 1) -> nn.Module:
    """The model, with made-up weights in bf16."""
    root = nn.Module()
    shapes = {spec.name: tuple(spec.shape) for spec in tensor_table(config) if not spec.name.startswith("mtp.")}
    for name, shape in shapes.items():
        if ".experts." not in name and not any(f".{part}_proj." in name for part in "qkv"):
            _add(root, *_renamed(name, shape))
    for block in sorted({name.partition(".experts.")[0] for name in shapes if ".experts." in name}):
        count = config["n_routed_experts"] // ep_size
        for ours, theirs in (("up_proj", "w13_weight"), ("down_proj", "w2_weight")):
            at = block.replace("backbone.", "model.") + ".experts"
            _add(root, f"{at}.{theirs}", (count, *shapes[f"{block}.experts.0.{ours}.weight"]), torch.bfloat16)
            module = root.get_submodule(at)
            module.moe_ep_rank, module.num_local_experts = ep_rank, count  # type: ignore[assignment]
    for q in [name for name in shapes if ".q_proj." in name]:
        rows = [shapes[q.replace("q_proj", f"{part}_proj")][0] for part in "qkv"]
        name = q.replace("backbone.", "model.").replace("q_proj", "qkv_proj")
        _add(root, name, (sum(rows), shapes[q][1]), torch.bfloat16)
        attention: Any = root.get_submodule(name.removesuffix(".qkv_proj.weight"))
        attention.q_size, attention.kv_size = rows[:2]
        attention.num_heads = attention.total_num_heads = config["num_attention_heads"]
    root.config = SimpleNamespace(vocab_size=config["vocab_size"])  # type: ignore[assignment]
    return root


def _renamed(name: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], torch.dtype]:
    name = name.replace("backbone.embeddings", "model.embed_tokens").replace("backbone.", "model.")
    if name.endswith("A_log"):
        return name.removesuffix("A_log") + "A", shape, torch.float32
    if name.endswith(("embed_tokens.weight", "lm_head.weight")):
        return name, (shape[0] + PAD, *shape[1:]), torch.bfloat16
    return name, shape, torch.float32 if name.endswith("e_score_correction_bias") else torch.bfloat16


def _add(root: nn.Module, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    *path, last = name.split(".")
    module = root
    for part in path:
        if part not in module._modules:
            module.add_module(part, nn.Module())
        module = module.get_submodule(part)
    generator = torch.Generator().manual_seed(len(name))
    module.register_parameter(last, nn.Parameter(torch.randn(shape, generator=generator).to(dtype)))
