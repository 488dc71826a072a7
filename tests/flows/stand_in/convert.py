"""Stands in for nemotron_rl.jobs.convert."""

from nemotron_rl.jobs.requests import ConvertRequest
from tests.flows.stand_in.common import copy_checkpoint, started

request = started(ConvertRequest)
copy_checkpoint(request.hf, request.out)
