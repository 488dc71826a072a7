"""Task: the sliced checkpoint in Megatron's torch_dist format, made by a job."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff

from nemotron_rl.config.settings import Settings
from nemotron_rl.jobs.requests import ConvertRequest
from nemotron_rl.store import Artifact
from nemotron_rl.store.versions import installed_versions
from tasks.job import StageJob
from tasks.policy import DAY, may_pass
from tasks.stage import Facts, Recipe, build, run_store

STAGE = "convert"


@task(
    name=STAGE,
    retries=1,
    retry_delay_seconds=exponential_backoff(10),
    retry_jitter_factor=0.5,
    retry_condition_fn=may_pass,
    timeout_seconds=DAY,
    tags=["job"],
    cache_policy=NO_CACHE,
    persist_result=True,
)
def convert(sliced: Artifact, settings: Settings) -> Artifact:
    """Task for nemotron_rl.jobs.convert. The split over ranks does not matter: torch_dist loads at any other."""
    recipe = Recipe(
        "convert",
        (sliced,),
        {"revision": 1, "model": settings.model.model_dump(mode="json"), "versions": dict(installed_versions())},
    )
    job = StageJob(STAGE, settings, recipe, steps=1)

    def make(out: Path) -> Facts:
        hf = run_store(settings).fetch(sliced)
        return job.run(lambda out, metrics: ConvertRequest(settings=settings, out=out, metrics=metrics, hf=hf), out)

    return build(STAGE, settings, recipe, make)
