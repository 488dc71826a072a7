"""Stands in for nemotron_rl.jobs.evaluate."""

from nemotron_rl.evaluate.scores import Evaluation, score_samples
from nemotron_rl.jobs.requests import EvaluateRequest
from tests.flows.stand_in.common import started

request = started(EvaluateRequest)
Evaluation(models={name: score_samples([1.0, 0.0], [2, 3]) for name in request.models}).write(
    request.out / "evaluation.json"
)
(request.out / "samples.jsonl").write_text("")
