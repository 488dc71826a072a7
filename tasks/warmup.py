"""Task: the supervised warm-up of a random-weight model, run as a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nemotron_rl.config.settings import Settings
from nemotron_rl.jobs.requests import WarmupRequest
from nemotron_rl.store import Artifact
from nemotron_rl.store.versions import installed_versions
from tasks.job import StageJob
from tasks.policy import DAY, stage_task
from tasks.prompts import TRAIN_FILE
from tasks.stage import Facts, Recipe, build, run_store

STAGE = "warmup"
DEPENDS_ON: dict[str, Any] = {
    "seed": True,
    "model": True,
    "parallel": True,
    "warmup": True,
    "train": {"micro_batch_size", "mtp"},
    "data": {"shuffle_seed"},
}
"""The settings that the job reads."""


@stage_task(STAGE, retries=1, delay_s=10, timeout_s=DAY, tags=("job",))
def warmup(start: Artifact, prompts: Artifact, settings: Settings) -> Artifact:
    """Task for nemotron_rl.jobs.warmup; the same warm-up is not run twice."""
    read = settings.model_dump(mode="json", include=DEPENDS_ON)
    recipe = Recipe("warmup", (start, prompts), {"revision": 1, "versions": dict(installed_versions()), **read})
    job = StageJob(STAGE, settings, recipe, steps=settings.warmup.steps)

    def make(out: Path) -> Facts:
        store = run_store(settings)
        folder, questions = store.fetch(start), store.fetch(prompts) / TRAIN_FILE
        return job.run(WarmupRequest, out, start=folder, prompts=questions)

    return build(STAGE, settings, recipe, make)
