"""Checkpoints that are broken on purpose: a small sound one, and hypothesis's ways to break it, byte by byte."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from nemotron_rl.checkpoint.geometries import preset_config
from nemotron_rl.checkpoint.spelling import Pattern, write_pattern
from nemotron_rl.checkpoint.tensor_table import tensor_table

Files = dict[str, bytes]
"""A checkpoint folder: content by name."""
Draw = Callable[[st.SearchStrategy[Any]], Any]

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
PATTERN = "M*E-"
SIZES = {
    "hidden_size": 4, "vocab_size": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2,
    "mamba_num_heads": 2, "mamba_head_dim": 2, "n_groups": 1, "ssm_state_size": 2, "conv_kernel": 2,
    "intermediate_size": 4, "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 2,
    "moe_shared_expert_intermediate_size": 2, "moe_latent_size": 2,
}  # fmt: skip
WEIRD = [
    "null", "true", "-1", "0", "1.0", "1e400", "-1e999", "NaN", "Infinity", "-Infinity", '""', '"x"', "{}", "[]",
    "[1,[2]]", '{"a":{"a":1}}', "1" + "0" * 400, "9" * 5000, str(1 << 31), str(1 << 32), str((1 << 63) - 1),
    str(1 << 63), str(1 << 64), "[" * 900 + "]" * 900, "[" * 100_000, '{"a":' * 70 + "1" + "}" * 70, '"\\ud800"',
    '"\\udfff\\ud800"', '"\\u0000"', '"\\u001b[2J"', '"[/bold]"', '"../../x"', '"/etc/passwd"',
    '"' + "a" * 70_000 + '"', "[[[]]]", "\xa0", '"\xff"', "[0,0]", "[4,0]", "[-8,8]",
    "[9223372036854775807,9223372036854775807]", "[4294967296,4294967296,0]", "[" + ",".join(["1"] * 65) + "]",
    "[" + ",".join(["9223372036854775807"] * 64) + "]", '"F4"', '"BOOL"', '"I64"', '"F8_E4M3"',
]  # fmt: skip
"""Texts to stand where a JSON value is expected; some are no JSON at all."""
CONFIG_KEYS = [
    *SIZES, "hybrid_override_pattern", "layers_block_type", "num_hidden_layers", "mtp_hybrid_override_pattern",
    "mtp_layers_block_type", "num_nextn_predict_layers", "dtype", "torch_dtype", "tie_word_embeddings", "use_bias",
    "mlp_bias", "use_conv_bias",
]  # fmt: skip
CARRIED_KEYS = ["architectures", "auto_map", "layer_types", "quantization_config", "unknown"]
CONFIG_VALUES = [
    json.dumps("ME*-" * 100_000), json.dumps("E" * 9_999 + "*"), json.dumps("*"), json.dumps("M*E-/"),
    json.dumps("ĸ"), json.dumps(["attention"] * 4), json.dumps(["mamba", "attention", "moe", "mlp"]),
    json.dumps([["mamba"]]), "65536", "64", "2",
    json.dumps({"AutoConfig": "configuration_nemotron_h.NemotronHConfig"}), json.dumps({"AutoConfig": "../x.Y"}),
    "[1]",
]  # fmt: skip
FILE_NAMES = [
    "../x.safetensors", "/tmp/x.safetensors", "a/b.safetensors", "..\\x.safetensors", ".safetensors", "x.safetensors",
    "\0.safetensors", "model-00001-of-00002.SAFETENSORS", "x\n\x1b[31m.safetensors", "x" * 300 + ".safetensors",
    "CON.safetensors", "config.json", "", "model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors",
    "../src/model-00001-of-00002.safetensors",
]  # fmt: skip
"""What an index may name."""
COMPANIONS = [
    "Config.json", "CONFIG.JSON", "readme.md", "README.md", "MODEL.SAFETENSORS.INDEX.JSON",
    "model-00001-of-00001.safetensors", "pytorch_model.bin.index.json", "con", "aux.txt", "--help", "a b",
    "x\n\x1b[31m.txt", "[red].txt", "…", "nemotron_rl_slice.json", "x" * 255, "journal", ".hidden", "..x", "-",
    "configuration_nemotron_h.py", "model.safetensors", "\u202etxt.exe",
]  # fmt: skip
"""Other files that may lie there; all can be made on Linux."""
TENSOR_NAMES = [
    "backbone.layers.0.norm.weight", "backbone.layers.00.norm.weight", "backbone.layers.-1.x", "backbone.layers.9.x",
    "", "backbone.layers.99999999999999999999.x", "mtp.", "__metadata__", "../x", "[/red]", "\x1b[2J", "x\ny",
    "a" * 70_000, "🤖", "lm_head.weight", "backbone.layers.1.mixer.q_proj.k_scale", "backbone.layers.٣.x",
]  # fmt: skip


EMPTY = {"dtype": "U8", "shape": [0, 1 << 62], "data_offsets": [0, 0]}


def sound() -> Files:
    """A checkpoint of four layers and an MTP head in two shards; its bytes tell every element from every other."""
    config = write_pattern(preset_config("tiny", SIZES), Pattern(PATTERN, "*E", 1))
    tensors = list(tensor_table(config))
    half = len(tensors) // 2
    files: Files = {CONFIG: json.dumps(config).encode(), "README.md": b"read me", "tokenizer.json": b"{}"}
    weight_map: dict[str, str] = {}
    total = 0
    for file, group in zip(SHARDS, (tensors[:half], tensors[half:]), strict=True):
        header, body = {}, b""
        for spec in group:
            data = b"".join(struct.pack("<H", (total + i) % 0x7F00) for i in range(spec.nbytes // 2))
            total += len(data) // 2
            header[spec.name] = {
                "dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [len(body), len(body) + len(data)],
            }  # fmt: skip
            body += data
            weight_map[spec.name] = file
        files[file] = shard(json.dumps(header).encode(), body)
    files[INDEX] = json.dumps({"metadata": {"total_size": 2 * total}, "weight_map": weight_map}).encode()
    return files


def shard(text: bytes, body: bytes) -> bytes:
    """A safetensors file with this header."""
    return struct.pack("<Q", len(text)) + text + body


_SOUND = sound()
_NAMES = list(json.loads(_SOUND[INDEX])["weight_map"])
texts = st.sampled_from(WEIRD)


@st.composite
def hostile_files(draw: Draw) -> Files:
    """A sound checkpoint with one to three faults."""
    files = dict(_SOUND)
    faults = draw(st.lists(st.sampled_from(_FAULTS), min_size=1, max_size=3))
    for fault in sorted(faults, key=lambda fault: fault is _remove):  # the others need the files
        fault(draw, files)
    return files


def _config(draw: Draw, files: Files) -> None:
    """In the keys that decide the tensors, or in those that are only carried over."""
    keys, values = st.sampled_from(CONFIG_KEYS) | st.sampled_from(CARRIED_KEYS), texts | st.sampled_from(CONFIG_VALUES)
    _change(draw, files, CONFIG, [], keys, values)


def _index(draw: Draw, files: Files) -> None:
    names = st.sampled_from(_NAMES) | st.sampled_from(TENSOR_NAMES)
    where = draw(st.sampled_from(FILE_NAMES)) if draw(st.booleans()) else None
    _change(draw, files, INDEX, ["weight_map"], names, texts if where is None else st.just(json.dumps(where)))


def _index_top(draw: Draw, files: Files) -> None:
    _change(draw, files, INDEX, [], st.sampled_from(["weight_map", "metadata", "x"]), texts)


def _header(draw: Draw, files: Files) -> None:
    file = draw(st.sampled_from(SHARDS))
    path = [draw(st.sampled_from(_NAMES))] if draw(st.booleans()) else []
    fields = st.sampled_from(["dtype", "shape", "data_offsets", "more"])
    keys = fields if path else st.sampled_from(_NAMES) | st.sampled_from(TENSOR_NAMES)
    part = {"header": _text(files[file])}
    _change(draw, part, "header", path, keys, texts if path else texts | st.just(json.dumps(EMPTY)))
    files[file] = shard(part["header"], files[file][8 + len(_text(files[file])) :])


def _tensor(draw: Draw, files: Files) -> None:
    """One more tensor, of no bytes and with an odd name, as header and index agree; their checks let it through."""
    file, name = draw(st.sampled_from(SHARDS)), draw(st.sampled_from(TENSOR_NAMES))
    text = _text(files[file])
    try:
        header, index = json.loads(text), json.loads(files[INDEX])
        header[name] = EMPTY
        index["weight_map"][name] = file
        files[INDEX] = json.dumps(index).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return  # an earlier fault has left no such place
    files[file] = shard(json.dumps(header).encode(), files[file][8 + len(text) :])


def _data(draw: Draw, files: Files) -> None:
    """Other values in the tensors: NaN and infinity among them, and no fault at all."""
    file = draw(st.sampled_from(SHARDS))
    data, place = bytearray(files[file]), draw(st.integers(1, 400))
    data[-place:] = draw(st.sampled_from([b"\xff", b"\x7f", b"\x80\x7f"])) * place
    files[file] = bytes(data[: len(files[file])])


def _offsets(draw: Draw, files: Files) -> None:
    """Gaps, overlaps, and tensors that trade places: everything is a number, and the numbers do not fit."""
    file = draw(st.sampled_from(SHARDS))
    text = _text(files[file])
    try:
        header = json.loads(text)
        offsets = header[draw(st.sampled_from([name for name in _NAMES if name in header]))]["data_offsets"]
        offsets[draw(st.integers(0, 1))] += draw(st.sampled_from([-2, -1, 1, 2, 1 << 40]))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return  # an earlier fault has left no such place
    files[file] = shard(json.dumps(header).encode(), files[file][8 + len(text) :])


def _length(draw: Draw, files: Files) -> None:
    file = draw(st.sampled_from(SHARDS))
    length = draw(st.sampled_from([0, 1, 7, 1 << 20, 100_000_000, 100_000_001, 1 << 40, 1 << 63, (1 << 64) - 1]))
    files[file] = struct.pack("<Q", length) + files[file][8:]


def _cut(draw: Draw, files: Files) -> None:
    name = draw(st.sampled_from(sorted(files)))
    files[name] = files[name][: draw(st.integers(0, len(files[name])))]


def _append(draw: Draw, files: Files) -> None:
    files[draw(st.sampled_from(sorted(files)))] += draw(st.sampled_from([b"\0", b"\xff\xfe", b"}", b" ", b"\0" * 100]))


def _flip(draw: Draw, files: Files) -> None:
    name = draw(st.sampled_from(sorted(name for name in files if files[name]) or [CONFIG]))
    data = bytearray(files[name] or b" ")
    data[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
    files[name] = bytes(data)


def _junk(draw: Draw, files: Files) -> None:
    whole = st.binary(max_size=30) | texts.map(_encoded)
    files[draw(st.sampled_from(sorted(files)))] = draw(whole)


def _remove(draw: Draw, files: Files) -> None:
    files.pop(draw(st.sampled_from(sorted(files))))


def _companion(draw: Draw, files: Files) -> None:
    name = draw(st.sampled_from(COMPANIONS))
    files[name] = files.get(SHARDS[0], b"") if name.endswith(".safetensors") else draw(texts.map(_encoded))


_FAULTS = [
    _config, _config, _config, _config, _index, _index, _index_top, _header, _header, _header, _offsets, _length, _cut,
    _append, _flip, _junk, _remove, _companion, _companion, _tensor, _tensor, _data, _data,
]  # fmt: skip


def _change(
    draw: Draw, files: Files, name: str, path: list[str], keys: st.SearchStrategy[str], values: st.SearchStrategy[str]
) -> None:
    """Set, remove, or set twice a key of the object at `path` in a JSON file; the value is a text as it is."""
    try:
        document = json.loads(files[name].decode())
        target = document
        for step in path:
            target = target[step]
        key, how = draw(keys), draw(st.sampled_from(["set", "set", "set", "remove", "twice"]))
        if how == "remove":
            target.pop(key, None)
        else:
            target[key] = "@1@"
            target.update({"@2@": "@3@"} if how == "twice" else {})
        text = json.dumps(document, ensure_ascii=False)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return  # an earlier fault has left no such place
    text = text.replace('"@2@"', json.dumps(key)).replace('"@3@"', draw(values)).replace('"@1@"', draw(values))
    files[name] = _encoded(text)


def _encoded(text: str) -> bytes:
    """UTF-8, except for a ÿ: that becomes the byte 0xff, which is not."""
    return text.encode("utf-8", "surrogatepass").replace("ÿ".encode(), b"\xff")


def _text(data: bytes) -> bytes:
    """The header of a shard; the whole rest when its length is a lie."""
    length = int.from_bytes(data[:8], "little")
    return data[8 : 8 + min(length, len(data))]
