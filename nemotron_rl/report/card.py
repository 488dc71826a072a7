"""The model card of an exported checkpoint: README.md with the front matter that the Hub reads, and the run's facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import JsonValue

from nemotron_rl.checkpoint.layout import CONFIG_FILE, read_json_object
from nemotron_rl.checkpoint.slice_plan import PROVENANCE_FILE
from nemotron_rl.checkpoint.source import source_name
from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.config.base import Frozen
from nemotron_rl.config.settings import Settings
from nemotron_rl.gates.measures import Metrics, reward_before_after
from nemotron_rl.report import format as fmt
from nemotron_rl.store.versions import installed_versions

CARD_FILE = "README.md"
SOURCE_CARD_FILE = "SOURCE_README.md"
_CARRIED = ("license", "license_name", "license_link", "language")
"""What the front matter takes over from the source's."""
_SHOWN_SETTINGS = ("slice", "model", "parallel", "warmup", "train", "algorithm", "rollout", "reward", "seed")
"""Sections of the settings that decide what was trained. The others say where, and may name private places."""
_HUB = re.compile(r"hf://([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?")
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?\r?\n)---\r?\n", re.DOTALL)


class Measured(Frozen):
    """One figure before and after training."""

    name: str
    before: float | None
    after: float | None


class CardFacts(Frozen):
    """What a card says."""

    name: str
    source: str
    """Address of the checkpoint that was trained, or the name of a local folder."""
    revision: str | None
    """The source's revision, where it has one."""
    layers: tuple[int, ...] | None
    """Layers of the source that were kept; None for all."""
    pattern: str
    """Blocks of the model, with the MTP head after a slash."""
    mtp_depth: int
    algorithm: str
    """Policy loss and advantage estimator."""
    steps: int
    settings: dict[str, JsonValue]
    versions: dict[str, str]
    measured: tuple[Measured, ...] = ()


def card_facts(settings: Settings, start: Path, measured: Sequence[Measured] = ()) -> CardFacts:
    """The facts of a training run that started from the folder `start`."""
    said = read_json_object(start / PROVENANCE_FILE) if (start / PROVENANCE_FILE).exists() else {}
    source, pattern = (
        str(said.get("source", source_name(settings.source.uri))),
        read_pattern(read_json_object(start / CONFIG_FILE)),
    )
    hub = _HUB.fullmatch(source)
    layers, revision = said.get("layers"), said.get("revision") or (hub[2] if hub else None)
    shown = settings.model_dump(mode="json")
    return CardFacts(
        name=settings.run_id,
        source=source,
        revision=str(revision) if revision else None,
        layers=tuple(map(int, layers)) if isinstance(layers, list) else None,
        pattern=str(pattern),
        mtp_depth=pattern.mtp_depth,
        algorithm=f"{settings.algorithm.name} with {settings.algorithm.advantage} advantages",
        steps=settings.train.steps,
        settings={section: shown[section] for section in _SHOWN_SETTINGS},
        versions=installed_versions(),
        measured=tuple(measured),
    )


def measured_reward(metrics: Sequence[Metrics]) -> tuple[Measured, ...]:
    """The samples' mean reward in the first step and over the last quarter; nothing when it was not recorded."""
    found = reward_before_after(metrics)
    return (Measured(name="mean reward of the samples", before=found[0], after=found[1]),) if found else ()


def write_card(folder: Path, facts: CardFacts) -> None:
    """Write the card into a checkpoint folder; a card of the source that lies there is kept beside it."""
    card = folder / CARD_FILE
    text = card.read_text(encoding="utf-8", errors="replace") if card.exists() else ""
    if text:
        card.rename(folder / SOURCE_CARD_FILE)
    card.write_text(render_card(facts, front_matter(text)), encoding="utf-8")


def front_matter(card: str) -> dict[str, Any]:
    """The YAML block at the start of a model card; empty without one that can be read."""
    found = _FRONT_MATTER.match(card)
    try:
        said = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:  # the source's card is not ours to judge
        return {}
    return said if isinstance(said, dict) else {}


def render_card(facts: CardFacts, source_says: Mapping[str, Any]) -> str:
    """The card as Markdown.

    Args:
        facts: What it says.
        source_says: Front matter of the source's card, from which the licence is carried over.
    """
    hub = _HUB.fullmatch(facts.source)
    head: dict[str, Any] = {key: source_says[key] for key in _CARRIED if key in source_says}
    head |= {"base_model": hub[1], "base_model_relation": "finetune"} if hub else {}
    head |= {"library_name": "transformers", "pipeline_tag": "text-generation"}
    head["tags"] = ["nemotron_h", "nemotron-rl", "reinforcement-learning", *(["mtp"] if facts.mtp_depth else [])]
    environment = Environment(
        loader=PackageLoader("nemotron_rl.report"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown; `cell` escapes what could break a table
    )
    environment.filters |= {"number": fmt.number, "cell": _cell}
    return environment.get_template("card.md.j2").render(
        head=yaml.safe_dump(head, sort_keys=False, allow_unicode=True).strip(),
        facts=facts,
        hub=hub[1] if hub else None,
        license=head.get("license_name") or head.get("license"),
        settings=yaml.safe_dump(facts.settings, sort_keys=False, allow_unicode=True).strip(),
    )


def _cell(text: str) -> str:
    """Text that stays within its table cell and is shown as it is."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
