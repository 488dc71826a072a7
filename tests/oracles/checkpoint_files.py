"""Checkpoints the obvious way: everything in memory, by the safetensors format's definition."""

from __future__ import annotations

import json
import struct
from pathlib import Path

Tensor = tuple[str, tuple[int, ...], bytes]
"""dtype, shape, bytes."""


def read_shard(path: Path) -> dict[str, Tensor]:
    """Every tensor of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return {
        name: (item["dtype"], tuple(item["shape"]), body[item["data_offsets"][0] : item["data_offsets"][1]])
        for name, item in header.items()
    }


def write_shard(path: Path, tensors: dict[str, Tensor]) -> None:
    """A safetensors file with these tensors."""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_checkpoint(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder's shards."""
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in read_shard(file).items()}


def sliced(tensors: dict[str, Tensor], layers: list[int], keep_mtp: bool) -> dict[str, Tensor]:
    """The tensors that a slice must have, under their new names."""
    out = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[:2] == ["backbone", "layers"]:
            if int(parts[2]) not in layers:
                continue
            parts[2] = str(layers.index(int(parts[2])))
        elif parts[0] == "mtp" and not keep_mtp:
            continue
        out[".".join(parts)] = tensor
    return out
