"""The model card of an exported checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from nemotron_rl.config.load import load_settings
from nemotron_rl.report.card import CardFacts, Measured, card_facts, front_matter, measured_reward, write_card

GOLDEN = Path(__file__).parent.parent / "golden" / "card"
NVIDIA_CARD = """---
license: other
license_name: nvidia-open-model-license
license_link: https://www.nvidia.com/en-us/agreements/enterprise-software/nvidia-open-model-license/
language: [en]
pipeline_tag: text-generation
base_model: [nvidia/Something-Else]
---
# Theirs
"""
FACTS = CardFacts(
    name="nightly-2026-11-30",
    source="hf://nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16@main",
    revision="1a2b3c",
    layers=(0, 1, 7, 8),
    pattern="ME*E/*E",
    mtp_depth=1,
    algorithm="grpo with group_normalized advantages",
    steps=40,
    settings={"train": {"steps": 40, "optimizer": {"lr": 1e-6}}, "seed": 0},
    versions={"python": "3.12.1", "torch": "2.11.0"},
    measured=(
        Measured(name="accuracy | held-out", before=0.045, after=0.268),
        Measured(name="x", before=None, after=2),
    ),
)


@pytest.mark.parametrize(("name", "facts", "source_card"), [
    ("hub", FACTS, NVIDIA_CARD),
    ("local", FACTS.model_copy(update={
        "source": "my-checkpoint", "revision": None, "layers": None, "mtp_depth": 0, "measured": (), "pattern": "ME*E",
    }), ""),
])  # fmt: skip
def test_a_card_is_as_reviewed(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, facts: CardFacts, source_card: str
) -> None:
    if source_card:
        (tmp_path / "README.md").write_text(source_card)
    write_card(tmp_path, facts)
    golden = GOLDEN / f"{name}.md"
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(exist_ok=True)
        shutil.copyfile(tmp_path / "README.md", golden)
    assert (tmp_path / "README.md").read_text() == golden.read_text()


def test_the_hub_library_reads_licence_base_model_and_tags(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    (tmp_path / "README.md").write_text(NVIDIA_CARD)
    write_card(tmp_path, FACTS)
    data = hub.ModelCard.load(tmp_path / "README.md").data
    assert (data.license, data.license_name) == ("other", "nvidia-open-model-license")
    assert data.license_link.endswith("nvidia-open-model-license/")
    assert data.base_model == "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"
    assert data.tags == ["nemotron_h", "nemotron-rl", "reinforcement-learning", "mtp"]
    assert (data.library_name, data.pipeline_tag) == ("transformers", "text-generation")
    assert (tmp_path / "SOURCE_README.md").read_text() == NVIDIA_CARD


@pytest.mark.parametrize(
    "card", ["", "# No front matter", "---\n: [\n---\n", "---\n- a list\n---\n", "---\nlicense: mit\n"]
)
def test_a_source_card_without_usable_front_matter_says_nothing(card: str) -> None:
    assert front_matter(card) == {}


def test_values_that_mean_something_to_yaml_or_markdown_stay_values(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: 'no: |\n  <b>'\n---\n")
    write_card(
        tmp_path, FACTS.model_copy(update={"name": "a|b", "source": "{{ 7 * 7 }} | <i>", "versions": {"a": "|"}})
    )
    card = (tmp_path / "README.md").read_text()
    assert front_matter(card)["license"] == "no: | <b>"
    assert "{{ 7 * 7 }} \\| &lt;i>" in card


def test_facts_of_a_run_name_source_revision_layers_and_no_private_place(four_layers: Path, tmp_path: Path) -> None:
    start = tmp_path / "start"
    shutil.copytree(four_layers, start)
    said = {"source": "hf://nvidia/Some-Model@main", "revision": "1a2b3c", "layers": [0, 1, 3, 4]}
    (start / "nemotron_rl_slice.json").write_text(json.dumps(said))
    settings = load_settings(
        "tiny", overrides={"run_id": "r", "store.uri": "s3://private/place", "output_dir": "/private"}, environ={}
    )
    facts = card_facts(settings, start, [Measured(name="reward", before=0.1, after=0.3)])
    assert (facts.source, facts.revision, facts.layers) == ("hf://nvidia/Some-Model@main", "1a2b3c", (0, 1, 3, 4))
    assert (facts.pattern, facts.mtp_depth, facts.steps) == ("ME*E/*E", 1, 40)
    write_card(tmp_path, facts)
    card = (tmp_path / "README.md").read_text()
    assert "private" not in card
    shown = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert shown["train"]["steps"] == 40 and shown["algorithm"]["name"] == "grpo"


def test_reward_before_is_the_first_steps_and_after_the_last_quarters() -> None:
    steps = [{"reward/mean": value} for value in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)]
    assert measured_reward(steps) == (Measured(name="mean reward of the samples", before=0.1, after=0.9),)
    assert measured_reward([{"x": 1.0}]) == measured_reward([]) == ()
