"""Task: the sliced checkpoint in Megatron's torch_dist format, made by a job."""

from __future__ import annotations

from pathlib import Path

from nemotron_rl.config.settings import Settings
from nemotron_rl.jobs.requests import ConvertRequest
from nemotron_rl.store import Artifact
from nemotron_rl.store.versions import installed_versions
from tasks.job import StageJob
from tasks.policy import DAY, stage_task
from tasks.stage import Facts, Recipe, build, run_store

STAGE = "convert"


@stage_task(STAGE, retries=1, delay_s=10, timeout_s=DAY, tags=("job",))
def convert(sliced: Artifact, settings: Settings) -> Artifact:
    """Task for nemotron_rl.jobs.convert. The split over ranks does not matter: torch_dist loads at any other."""
    recipe = Recipe(
        "convert",
        (sliced,),
        {"revision": 2, "model": settings.model.model_dump(mode="json"), "versions": dict(installed_versions())},
    )
    job = StageJob(STAGE, settings, recipe, steps=1)

    def make(out: Path) -> Facts:
        return job.run(ConvertRequest, out, hf=run_store(settings).fetch(sliced))

    return build(STAGE, settings, recipe, make)
