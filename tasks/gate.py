"""Task: hold what was measured against the gates."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from nemotron_rl.config.settings import Settings
from nemotron_rl.evaluate.scores import Evaluation
from nemotron_rl.gates.judge import judge
from nemotron_rl.gates.verdict import Verdict
from nemotron_rl.jobs.requests import METRICS_FILE
from nemotron_rl.report.metrics import read_metrics
from nemotron_rl.store import Artifact
from tasks.evaluate import EVALUATION_FILE
from tasks.policy import HOUR, may_pass
from tasks.progress import reporter
from tasks.stage import run_store
from tasks.timeline import timed

STAGE = "gate"


@task(
    name=STAGE,
    retries=2,
    retry_delay_seconds=5,
    retry_condition_fn=may_pass,
    timeout_seconds=HOUR,
    cache_policy=NO_CACHE,
    persist_result=True,
)
def gate(trained: Artifact, scores: Artifact, settings: Settings) -> Verdict:
    """Task for nemotron_rl.gates. A failed gate is a result here; the flow raises it after everything is published."""
    with reporter().stage(STAGE), timed(settings.run_dir, STAGE):
        store = run_store(settings)
        metrics = read_metrics(store.fetch(trained) / METRICS_FILE)
        evaluation = Evaluation.read(store.fetch(scores) / EVALUATION_FILE)
        return judge(settings.gates, metrics, evaluation)
