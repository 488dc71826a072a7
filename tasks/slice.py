"""Task: the chosen layers of the source as a checkpoint of their own."""

from __future__ import annotations

from pathlib import Path

from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.checkpoint.source import source_name
from nemotron_rl.config.settings import Settings
from nemotron_rl.report.transfer import bytes_progress
from nemotron_rl.store import Artifact
from tasks.download import Source, opened
from tasks.policy import DAY, stage_task
from tasks.progress import reporter
from tasks.stage import Facts, Recipe, build, fresh_folder

STAGE = "slice"


@stage_task(STAGE, retries=3, delay_s=10, timeout_s=DAY, tags=("network",))
def slice_layers(source: Source, settings: Settings) -> Artifact:
    """Task for nemotron_rl.checkpoint.slicing. Of a remote source only the needed bytes are fetched."""

    def make(out: Path) -> Facts:
        with opened(source, settings) as checkpoint:
            report = slice_checkpoint(
                checkpoint,
                fresh_folder(out),
                settings.slice.layers,
                settings.slice.mtp,
                bytes_progress(reporter(), STAGE),
                source_name=source_name(settings.source.uri),
            )
        return report.model_dump(mode="json")

    recipe = Recipe("slice", (source.artifact,), {"revision": 1, "slice": settings.slice.model_dump(mode="json")})
    return build(STAGE, settings, recipe, make)
