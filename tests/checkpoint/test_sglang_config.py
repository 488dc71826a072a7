"""What a slice says, read by SGLang's own config class, taken from its pinned wheel without the GPU stack."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nemotron_rl.checkpoint.slicing import slice_checkpoint

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".tools" / "sglang"
SPELLINGS = {
    "both": set(),
    "lists": {"hybrid_override_pattern", "mtp_hybrid_override_pattern"},
    "strings": {"layers_block_type", "mtp_layers_block_type"},
}
"""Keys that the source's config lacks, by what it is then spelled in."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not INSTALLED.exists(), reason="`make .venv/.dev` installs SGLang's files"),
]


@pytest.fixture(scope="module")
def seen(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What SGLang saw of slices of differently spelled sources, and of one without MTP head."""
    place = tmp_path_factory.mktemp("sglang")
    config = json.loads((tiny / "config.json").read_text())
    for spelling, absent in SPELLINGS.items():
        source = place / f"source-{spelling}"
        source.mkdir()
        for file in tiny.iterdir():
            if file.name != "config.json":
                (source / file.name).symlink_to(file)
        (source / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k not in absent}))
        slice_checkpoint(source, place / spelling, [0, 1, 3, 4, 5, 6])
    slice_checkpoint(tiny, place / "dropped", [0, 1, 3], mtp="drop")
    names = [*SPELLINGS, "dropped"]
    program = [sys.executable, str(ROOT / "tests" / "oracles" / "sglang_config.py"), str(INSTALLED)]
    done = subprocess.run(
        [*program, *(str(place / name) for name in names)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_sglang_sees_the_blocks_of_a_slice_whatever_the_source_spelled(
    tiny: Path, seen: dict[str, dict[str, Any]], spelling: str
) -> None:
    config = json.loads((tiny / "config.json").read_text())
    assert seen[spelling] == {
        "blocks": ["mamba", "moe", "attention", "moe", "mamba", "mlp"],
        "pattern": "ME*EM-",
        "layers": 6,
        "mamba_layers": [0, 4],
        "attention_layers": [2],
        "mtp_blocks": ["attention", "moe"],
        "mtp_pattern": "*E",
        "mtp_depth": 1,
        "sizes": [config["n_groups"], config["mamba_num_heads"], config["ssm_state_size"], config["conv_kernel"]],
        "experts": [config["n_routed_experts"], config["num_experts_per_tok"], config["moe_latent_size"]],
        "chunk": config["chunk_size"],
        "dtype": "torch.bfloat16",
    }


def test_sglang_sees_no_head_when_it_was_dropped(seen: dict[str, dict[str, Any]]) -> None:
    assert (seen["dropped"]["pattern"], seen["dropped"]["mtp_depth"]) == ("ME*", 0)
