"""Task: the supervised warm-up of a random-weight model, run as a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff

from nemotron_rl.config.settings import Settings
from nemotron_rl.jobs.requests import WarmupRequest
from nemotron_rl.store import Artifact
from nemotron_rl.store.versions import installed_versions
from tasks.job import StageJob
from tasks.policy import DAY, may_pass
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
def warmup(start: Artifact, prompts: Artifact, settings: Settings) -> Artifact:
    """Task for nemotron_rl.jobs.warmup; the same warm-up is not run twice."""
    read = settings.model_dump(mode="json", include=DEPENDS_ON)
    recipe = Recipe("warmup", (start, prompts), {"revision": 1, "versions": dict(installed_versions()), **read})
    job = StageJob(STAGE, settings, recipe, steps=settings.warmup.steps)

    def make(out: Path) -> Facts:
        store = run_store(settings)
        folder, questions = store.fetch(start), store.fetch(prompts) / TRAIN_FILE
        return job.run(
            lambda out, metrics: WarmupRequest(
                settings=settings, out=out, metrics=metrics, start=folder, prompts=questions
            ),
            out,
        )

    return build(STAGE, settings, recipe, make)
