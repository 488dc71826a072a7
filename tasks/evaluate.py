"""Task: accuracy of the base and the trained checkpoint on held-out prompts, measured by a job."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff

from nemotron_rl.config.settings import Settings
from nemotron_rl.jobs.requests import EvaluateRequest
from nemotron_rl.store import Artifact
from tasks.job import StageJob
from tasks.policy import DAY, may_pass
from tasks.prompts import EVAL_FILE
from tasks.stage import Facts, Recipe, build, run_store
from tasks.train import WHERE

STAGE = "evaluate"
EVALUATION_FILE = "evaluation.json"


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
def evaluate(base: Artifact, trained: Artifact, prompts: Artifact, settings: Settings) -> Artifact:
    """Task for nemotron_rl.jobs.evaluate; the artifact is `evaluation.json` with every sample beside it."""
    recipe = Recipe("evaluate", (base, trained, prompts), settings.model_dump(mode="json", exclude=WHERE))
    job = StageJob(STAGE, settings, recipe, steps=2, distributed=False)

    def make(out: Path) -> Facts:
        store = run_store(settings)
        models = {"base": store.fetch(base), "trained": store.fetch(trained)}
        questions = store.fetch(prompts) / EVAL_FILE
        return job.run(
            lambda out, metrics: EvaluateRequest(
                settings=settings, out=out, metrics=metrics, models=models, prompts=questions
            ),
            out,
        )

    return build(STAGE, settings, recipe, make)
