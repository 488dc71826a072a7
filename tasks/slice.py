"""Task: the chosen layers of the source as a checkpoint of their own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.checkpoint.source import source_name
from nemotron_rl.config.settings import Settings
from nemotron_rl.store import Artifact
from tasks.download import Source
from tasks.policy import HOUR, stage_task
from tasks.progress import reporter
from tasks.stage import Facts, Recipe, build, fresh_folder

STAGE = "slice"


@stage_task(STAGE, retries=3, delay_s=10, timeout_s=4 * HOUR, tags=("network",))
def slice_layers(source: Source, settings: Settings) -> Artifact:
    """Task for nemotron_rl.checkpoint.slicing."""

    def make(out: Path) -> Facts:
        report = slice_checkpoint(
            source.folder,
            fresh_folder(out),
            settings.slice.layers,
            settings.slice.mtp,
            partial(reporter().advance, STAGE),
            source_name=source_name(settings.source.uri),
        )
        return report.model_dump(mode="json")

    recipe = Recipe("slice", (source.artifact,), {"revision": 1, "slice": settings.slice.model_dump(mode="json")})
    return build(STAGE, settings, recipe, make)
