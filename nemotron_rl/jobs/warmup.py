"""The supervised warm-up job, under torchrun: teaches a random-weight model the shape of an answer before RL."""

from __future__ import annotations

from nemotron_rl.jobs.entry import run
from nemotron_rl.jobs.requests import WarmupRequest
from nemotron_rl.megatron import backend


def warmup(request: WarmupRequest) -> None:
    """Cross-entropy on the labels of the training prompts, then an export; started again, it starts over."""
    settings = request.settings
    backend.activate(settings.model.backend)
    from torch import Tensor

    from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
    from nemotron_rl.data.prompts import load_prompts
    from nemotron_rl.data.sampler import PromptSampler
    from nemotron_rl.jobs.measure import MetricsLog, Phases
    from nemotron_rl.jobs.results import start_over
    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.export import export_checkpoint
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.trainer import Trainer
    from nemotron_rl.rl.batch import Batch, make_batch
    from nemotron_rl.rl.losses import LossTerms
    from nemotron_rl.rl.supervised import choose_style, supervised_document

    def cross_entropy(logprob_BL: Tensor, _: Batch) -> LossTerms:
        return LossTerms(-logprob_BL)

    with process.model_parallel(settings.model, settings.parallel, settings.seed):
        process.from_first_rank(lambda: start_over(request))
        model = build_model(
            request.start,
            settings.model,
            settings.parallel,
            mtp=settings.train.mtp,
            distributed_optimizer=settings.warmup.optimizer.distributed,
        )
        trainer = Trainer(
            model,
            settings.warmup.optimizer,
            steps=settings.warmup.steps,
            micro_batch_size=settings.train.micro_batch_size,
            max_tokens_per_gpu=settings.train.max_tokens_per_gpu,
            mtp=settings.train.mtp,
        )
        tokenizer = ChatTokenizer.from_folder(request.start)
        prompts = load_prompts(request.prompts)
        sampler = PromptSampler(len(prompts), settings.warmup.batch_size, settings.data.shuffle_seed)
        with MetricsLog(request.metrics, process.is_first_rank()) as log:
            for step in range(settings.warmup.steps):
                phases = Phases()
                mine = process.share_of_dp(sampler.next_batch())
                styles = [choose_style(settings.warmup.answers, settings.seed, step, i) for i in mine]
                documents = [
                    supervised_document(prompts[i], tokenizer, style) for i, style in zip(mine, styles, strict=True)
                ]
                batch = make_batch(documents, tokenizer.pad_token_id, settings.parallel.tp)
                update = trainer.update(batch, cross_entropy)
                log.write(step, update.metrics("warmup") | phases.metrics())
        export_checkpoint(trainer.weights(), request.start, request.out)


if __name__ == "__main__":
    run(WarmupRequest, warmup)
