"""Checkpoints that a conversion could spoil: random bits in every tensor, mixed types, several MTP depths."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np

from tests.oracles.checkpoint_files import Tensor, read_checkpoint, write_shard

INDEX = "model.safetensors.index.json"
FULL_PRECISION = (
    "layers.0.mixer.A_log",
    "layers.0.mixer.D",
    "layers.0.mixer.dt_bias",
    "layers.0.mixer.conv1d.weight",
    "layers.1.mixer.gate.weight",
    "layers.1.mixer.experts.5.up_proj.weight",
    "layers.2.mixer.k_proj.weight",
    "layers.4.mixer.in_proj.weight",
    "norm_f.weight",
    "mtp.layers.0.eh_proj.weight",
)
"""Ends of the names of fp32 tensors in `mixed`: alone in a parameter, or beside bf16 ones, as k and the expert."""
CARRIED = {
    "LICENSE": "the terms",
    "README.md": "---\nlicense: other\n---\n",
    "configuration_nemotron_h.py": "raise RuntimeError('nobody asked for remote code')\n",
    "modeling_nemotron_h.py": "raise RuntimeError('nobody asked for remote code')\n",
}
"""Files that published checkpoints have and synthetic ones have not."""
AUTO_MAP = {
    "auto_map": {
        "AutoConfig": "configuration_nemotron_h.NemotronHConfig",
        "AutoModelForCausalLM": "modeling_nemotron_h.NemotronHForCausalLM",
    }
}


def mixed(source: Path, folder: Path) -> Path:
    """bf16 with a few fp32 tensors whose values bf16 cannot hold; two MTP depths with weights of their own."""

    def dtype(name: str) -> str:
        return "F32" if name.endswith(("e_score_correction_bias", *FULL_PRECISION)) else "BF16"

    return _write(source, folder, dtype, mtp_depth=2)


def full_precision(source: Path, folder: Path) -> Path:
    """Everything in fp32."""
    return _write(source, folder, lambda name: "F32", mtp_depth=1, config={"dtype": "float32"})


def _write(
    source: Path, folder: Path, dtype: Callable[[str], str], mtp_depth: int, config: dict[str, object] | None = None
) -> Path:
    folder.mkdir()
    for file in source.iterdir():
        if file.suffix != ".safetensors" and file.name not in (INDEX, "config.json"):
            shutil.copyfile(file, folder / file.name)
    shapes = {name: shape for name, (_, shape, _) in read_checkpoint(source).items()}
    mtp = {name: shape for name, shape in shapes.items() if name.startswith("mtp.")}
    for name, shape in mtp.items():
        head, layer, rest = name.split(".", 3)[:2], int(name.split(".")[2]), name.split(".", 3)[3]
        shapes |= {".".join([*head, str(layer + 2 * depth), rest]): shape for depth in range(1, mtp_depth)}
    rng = np.random.default_rng(7)
    write_shard(folder / "model.safetensors", {name: _random(rng, name, shapes[name], dtype(name)) for name in shapes})
    for name, text in CARRIED.items():
        (folder / name).write_text(text)
    said = json.loads((source / "config.json").read_text()) | {"num_nextn_predict_layers": mtp_depth} | (config or {})
    (folder / "config.json").write_text(json.dumps(said | AUTO_MAP))
    return folder


def _random(rng: np.random.Generator, name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
    values = rng.standard_normal(shape, dtype=np.float32)
    if name.endswith("e_score_correction_bias"):
        values = 64 + values * np.float32(1e-3)  # alike in bf16
    if dtype == "F32":
        return dtype, shape, values.tobytes()
    halves = values.astype(ml_dtypes.bfloat16)
    if halves.size > 4:  # minus zero, a subnormal number, infinity, and a NaN with a payload
        halves.view(np.uint16).reshape(-1)[:4] = (0x8000, 0x0001, 0xFF80, 0x7FC5)
    return dtype, shape, halves.tobytes()
