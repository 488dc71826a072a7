"""Stands in for nemotron_rl.jobs.train. Files `slow`, `fail` and `fail-once` in its folder change what it does."""

import sys

from nemotron_rl.cluster import report_failure
from nemotron_rl.errors import WeightMismatch
from nemotron_rl.jobs.requests import TrainRequest
from tests.flows.stand_in.common import copy_checkpoint, started, write_steps

request = started(TrainRequest)
here = request.metrics.parent
write_steps(request, request.settings.train.steps, seconds=3600 if (here / "slow").exists() else 0)
if (here / "fail").exists():
    with report_failure(here):
        raise WeightMismatch("tensor 3 differs at index 7")
if (here / "fail-once").exists():
    (here / "fail-once").unlink()
    sys.exit(9)
copy_checkpoint(request.start, request.out)
