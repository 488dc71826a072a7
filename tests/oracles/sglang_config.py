"""Run by tests in a process of its own: reads checkpoints' configs with SGLang's own class and prints what it saw.

python tests/oracles/sglang_config.py SGLANG CHECKPOINT... prints a JSON line for each. `import sglang` needs a GPU
stack, the module with the config class does not: its packages are entered without running their __init__ files.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = ("sglang", "sglang.srt", "sglang.srt.configs", "sglang.srt.distributed")


def main() -> None:
    installed, checkpoints = Path(sys.argv[1]), sys.argv[2:]
    for name in PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(installed.joinpath(*name.split(".")))]
        sys.modules[name] = package
    config_class = importlib.import_module("sglang.srt.configs.nemotron_h").NemotronHConfig
    for checkpoint in checkpoints:
        print(json.dumps(seen(config_class.from_pretrained(checkpoint))))


def seen(config: Any) -> dict[str, Any]:
    """What SGLang's model is built from."""
    return {
        "blocks": config.layers_block_type,
        "pattern": config.hybrid_override_pattern,
        "layers": config.num_hidden_layers,
        "mamba_layers": config.mamba_layer_ids,
        "attention_layers": config.full_attention_layer_ids,
        "mtp_blocks": config.mtp_layers_block_type,
        "mtp_pattern": config.mtp_hybrid_override_pattern,
        "mtp_depth": config.num_nextn_predict_layers,
        "sizes": [config.n_groups, config.mamba_num_heads, config.ssm_state_size, config.conv_kernel],
        "experts": [config.n_routed_experts, config.num_experts_per_tok, config.moe_latent_size],
        "chunk": config.mamba_chunk_size,
        "dtype": str(config.dtype),
    }


if __name__ == "__main__":
    main()
