"""The conversion job, under torchrun: a Hugging Face checkpoint to torch_dist."""

from __future__ import annotations

from nemotron_rl.jobs.entry import run
from nemotron_rl.jobs.requests import ConvertRequest
from nemotron_rl.megatron import backend


def convert(request: ConvertRequest) -> None:
    """Load the checkpoint at the run's split over ranks and save it as torch_dist, every value exact."""
    settings = request.settings
    backend.activate(settings.model.backend)
    from nemotron_rl.checkpoint.companions import carry_over
    from nemotron_rl.checkpoint.converted import write_source_tensors
    from nemotron_rl.megatron import torch_dist
    from nemotron_rl.megatron.model import exact_model
    from nemotron_rl.megatron.process import is_first_rank, model_parallel

    with model_parallel(settings.model, settings.parallel, settings.seed):
        model = exact_model(request.hf, settings.model, settings.parallel)
        if is_first_rank():
            carry_over(request.hf, request.out)
            write_source_tensors(request.hf, request.out)
        torch_dist.save(request.out, model.unwrapped())


if __name__ == "__main__":
    run(ConvertRequest, convert)
