"""Task: hold what was measured against the gates."""

from __future__ import annotations

from nemotron_rl.config.settings import Settings
from nemotron_rl.evaluate.scores import Evaluation
from nemotron_rl.gates.judge import judge
from nemotron_rl.gates.verdict import Verdict
from nemotron_rl.jobs.requests import METRICS_FILE
from nemotron_rl.report.metrics import read_metrics
from nemotron_rl.store import Artifact
from tasks.evaluate import EVALUATION_FILE
from tasks.policy import HOUR, stage_task
from tasks.stage import run_store, running

STAGE = "gate"


@stage_task(STAGE, retries=2, delay_s=5, timeout_s=HOUR)
def gate(trained: Artifact, scores: Artifact, settings: Settings) -> Verdict:
    """Task for nemotron_rl.gates. A failed gate is a result here; the flow raises it after everything is published."""
    with running(STAGE, settings):
        store = run_store(settings)
        metrics = read_metrics(store.fetch(trained) / METRICS_FILE)
        evaluation = Evaluation.read(store.fetch(scores) / EVALUATION_FILE)
        return judge(settings.gates, metrics, evaluation)
