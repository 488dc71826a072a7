"""Task: the RL training run, as a job."""

from __future__ import annotations

from pathlib import Path

from nemotron_rl.config.settings import Settings
from nemotron_rl.jobs.requests import TrainRequest
from nemotron_rl.store import Artifact
from tasks.artifacts import StepProgress
from tasks.job import StageJob
from tasks.policy import DAY, stage_task
from tasks.prompts import TRAIN_FILE
from tasks.stage import Facts, Recipe, build, run_store

STAGE = "train"
WHERE = {"output_dir", "store", "cluster"}
"""Settings that say where a run happens, not what it computes."""


@stage_task(STAGE, retries=1, delay_s=30, timeout_s=7 * DAY, tags=("job",))
def train(start: Artifact, prompts: Artifact, settings: Settings) -> Artifact:
    """Task for nemotron_rl.jobs.train; the artifact is the trained checkpoint with its metrics.

    The run's id is part of the recipe: every run trains, and one that is tried again finds its own job or result.
    """
    recipe = Recipe("train", (start, prompts), settings.model_dump(mode="json", exclude=WHERE))
    progress = StepProgress(settings.train.steps)
    job = StageJob(
        STAGE, settings, recipe, steps=settings.train.steps, ranks=settings.train_ranks, on_step=progress.step
    )

    def make(out: Path) -> Facts:
        store = run_store(settings)
        folder, questions = store.fetch(start), store.fetch(prompts) / TRAIN_FILE
        return job.run(
            TrainRequest,
            out,
            run_dir=settings.run_dir.absolute(),
            start=folder,
            prompts=questions,
            inputs=(start.digest, prompts.digest),
        )

    return build(STAGE, settings, recipe, make)
