"""However a source's config spells its layers: the same slice, and one that every reader reads right."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nemotron_rl.checkpoint.spelling import Pattern, read_pattern
from tests.oracles.checkpoint_files import read_checkpoint

STRING, LIST, COUNT = "hybrid_override_pattern", "layers_block_type", "num_hidden_layers"
MTP_STRING, MTP_LIST = "mtp_hybrid_override_pattern", "mtp_layers_block_type"
SPELLINGS = {STRING, LIST, COUNT, MTP_STRING, MTP_LIST}
AUTO_MAP = {
    "AutoConfig": "configuration_nemotron_h.NemotronHConfig",
    "AutoModelForCausalLM": "modeling_nemotron_h.NemotronHForCausalLM",
}
READ_ONLY_LIST = '''
"""A config class that takes the string and derives the list, as the one published with the models does."""
from transformers.configuration_utils import PretrainedConfig


class NemotronHConfig(PretrainedConfig):
    model_type = "nemotron_h"

    def __init__(self, num_hidden_layers=2, hybrid_override_pattern="M*", **kwargs):
        self.num_hidden_layers = num_hidden_layers
        self.hybrid_override_pattern = hybrid_override_pattern
        assert len(hybrid_override_pattern) == num_hidden_layers
        super().__init__(**kwargs)

    @property
    def layers_block_type(self):
        names = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
        return [names[letter] for letter in self.hybrid_override_pattern]
'''
WITH_SETTER = (
    READ_ONLY_LIST
    + """
    @layers_block_type.setter
    def layers_block_type(self, value):
        pass
"""
)

PUBLISHED = {  # which spellings a source has: as in Nano and Super, as in Ultra, as in what we write
    "pattern": {STRING, COUNT, MTP_STRING},
    "list": {LIST, MTP_LIST},
    "both": SPELLINGS,
    "list with the count, MTP as a string": {LIST, COUNT, MTP_STRING},
    "pattern alone, MTP as a list": {STRING, MTP_LIST},
}


def source_with(tiny: Path, folder: Path, keys: set[str], code: str | None) -> Path:
    """The tiny checkpoint with these spellings in its config, and with code of its own."""
    folder.mkdir()
    config = {key: value for key, value in config_of(tiny).items() if key not in SPELLINGS - keys}
    if code is not None:
        config["auto_map"] = AUTO_MAP
        (folder / "configuration_nemotron_h.py").write_text(code)
        (folder / "modeling_nemotron_h.py").write_text("class NemotronHForCausalLM: pass\n")
    (folder / "config.json").write_text(json.dumps(config))
    for file in tiny.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    return folder


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


@pytest.mark.parametrize("code", [None, READ_ONLY_LIST, WITH_SETTER], ids=["native", "read-only list", "setter"])
@pytest.mark.parametrize("keys", PUBLISHED.values(), ids=PUBLISHED)
def test_every_spelling_gives_the_same_slice(cli, tiny, four_layers, tmp_path, keys, code):
    source = source_with(tiny, tmp_path / "source", keys, code)
    made = cli("slice", source, tmp_path / "dst", "--layers", "0,1,3,4")
    assert made.exit_code == 0, made.output
    assert read_checkpoint(tmp_path / "dst") == read_checkpoint(four_layers)
    got, wanted = config_of(tmp_path / "dst"), config_of(four_layers)
    assert read_pattern(got) == Pattern("ME*E", "*E", 1)
    assert got.pop("auto_map", None) == (None if code is None else AUTO_MAP)
    left_out = {LIST} if code == READ_ONLY_LIST else set()
    assert got == {key: value for key, value in wanted.items() if key not in left_out}
    for file in source.glob("*.py"):
        assert (tmp_path / "dst" / file.name).read_text() == file.read_text()
    assert cli("inspect", tmp_path / "dst").exit_code == 0


def test_a_list_under_its_other_name_does_not_stay_behind(cli, tiny, tmp_path):
    source = source_with(tiny, tmp_path / "source", SPELLINGS, None)
    config = config_of(source)
    (source / "config.json").write_text(json.dumps(config | {"layer_types": config[LIST]}))
    assert cli("slice", source, tmp_path / "dst", "--layers", "3,4").exit_code == 0
    assert config_of(tmp_path / "dst")["layer_types"] == config_of(tmp_path / "dst")[LIST] == ["attention", "moe"]


@pytest.mark.parametrize(
    "auto_map", [["x"], "x", {"AutoConfig": 1}, {"AutoConfig": "other--repo.X"}, {"AutoConfig": "../x.X"}]
)
def test_code_that_is_not_there_is_not_looked_for(cli, tiny, tmp_path, auto_map):
    source = source_with(tiny, tmp_path / "source", SPELLINGS, None)
    (source / "config.json").write_text(json.dumps(config_of(source) | {"auto_map": auto_map}))
    assert cli("slice", source, tmp_path / "dst", "--layers", "3,4").exit_code == 0
    assert config_of(tmp_path / "dst")["auto_map"] == auto_map and LIST in config_of(tmp_path / "dst")


_READ = """
import json, sys
from transformers import AutoConfig
found = []
for folder, trust in zip(sys.argv[1:], (False, True, True), strict=True):
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust)
        found.append([type(config).__module__.split(".")[0], config.num_hidden_layers, config.layers_block_type])
    except AttributeError as error:
        found.append(str(error))
print(json.dumps(found))
"""


@pytest.mark.slow
def test_transformers_reads_a_slice_by_its_own_class_and_by_the_sources_code(cli, tiny, tmp_path):
    pytest.importorskip("transformers")
    source = source_with(tiny, tmp_path / "source", PUBLISHED["pattern"], READ_ONLY_LIST)
    assert cli("slice", source, tmp_path / "dst", "--layers", "0,1,3,4").exit_code == 0
    names = ["mamba", "moe", "attention", "moe"]
    with_list = shutil.copytree(tmp_path / "dst", tmp_path / "with_list")
    (with_list / "config.json").write_text(json.dumps(config_of(with_list) | {LIST: names}))
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", _READ, *map(str, (tmp_path / "dst", tmp_path / "dst", with_list))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    own, sources_code, refused = json.loads(done.stdout.splitlines()[-1])
    assert (own, sources_code) == (["transformers", 4, names], ["transformers_modules", 4, names])
    assert "'layers_block_type'" in refused and "no setter" in refused  # or leaving it out would be for nothing
