"""Stands in for nemotron_rl.jobs.warmup."""

from nemotron_rl.jobs.requests import WarmupRequest
from tests.flows.stand_in.common import copy_checkpoint, started, write_steps

request = started(WarmupRequest)
write_steps(request, request.settings.warmup.steps)
copy_checkpoint(request.start, request.out)
