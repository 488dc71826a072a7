"""The conversion job's way back, under torchrun: a converted folder to the Hugging Face layout."""

from __future__ import annotations

from nemotron_rl.jobs.entry import run
from nemotron_rl.jobs.requests import ExportRequest
from nemotron_rl.megatron import backend


def export(request: ExportRequest) -> None:
    """Load torch_dist at the run's split over ranks and write the checkpoint that it was made from."""
    settings = request.settings
    backend.activate(settings.model.backend)
    from nemotron_rl.megatron.export import export_checkpoint
    from nemotron_rl.megatron.model import exact_model
    from nemotron_rl.megatron.process import model_parallel
    from nemotron_rl.megatron.weights import exported_weights

    with model_parallel(settings.model, settings.parallel, settings.seed):
        model = exact_model(request.converted, settings.model, settings.parallel)
        export_checkpoint(exported_weights(model), request.converted, request.out, shard_size=request.shard_size)


if __name__ == "__main__":
    run(ExportRequest, export)
