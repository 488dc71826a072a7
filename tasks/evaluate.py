"""Task: accuracy of the base and the trained checkpoint on held-out prompts, measured by a job."""

from __future__ import annotations

from pathlib import Path

from nemotron_rl.config.settings import Settings
from nemotron_rl.jobs.requests import EvaluateRequest
from nemotron_rl.store import Artifact
from tasks.job import StageJob
from tasks.policy import DAY, stage_task
from tasks.prompts import EVAL_FILE
from tasks.stage import Facts, Recipe, build, run_store
from tasks.train import WHERE

STAGE = "evaluate"
EVALUATION_FILE = "evaluation.json"


@stage_task(STAGE, retries=1, delay_s=10, timeout_s=DAY, tags=("job",))
def evaluate(base: Artifact, trained: Artifact, prompts: Artifact, settings: Settings) -> Artifact:
    """Task for nemotron_rl.jobs.evaluate; the artifact is `evaluation.json` with every sample beside it."""
    recipe = Recipe("evaluate", (base, trained, prompts), settings.model_dump(mode="json", exclude=WHERE))
    job = StageJob(STAGE, settings, recipe, steps=2, distributed=False)

    def make(out: Path) -> Facts:
        store = run_store(settings)
        models = {"base": store.fetch(base), "trained": store.fetch(trained)}
        questions = store.fetch(prompts) / EVAL_FILE
        return job.run(EvaluateRequest, out, models=models, prompts=questions)

    return build(STAGE, settings, recipe, make)
