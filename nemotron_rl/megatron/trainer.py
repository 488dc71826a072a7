"""The trainer: log-probs, updates and exported weights of one model. It does not know where samples come from.

B samples of this data-parallel rank · L tokens
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from megatron.core.distributed import finalize_model_grads
from megatron.core.optimizer.optimizer import MTP_GRAD_NORM_GROUP
from torch import Tensor

from nemotron_rl.config.training import MtpSettings, OptimizerSettings
from nemotron_rl.errors import NemotronRLError
from nemotron_rl.megatron import passes, process
from nemotron_rl.megatron.checkpointing.state import TrainingState
from nemotron_rl.megatron.division import divide
from nemotron_rl.megatron.local_views import local_views
from nemotron_rl.megatron.micro_batch import MicroBatch
from nemotron_rl.megatron.model import MegatronModel
from nemotron_rl.megatron.mtp_loss import MtpContext, mtp_targets
from nemotron_rl.megatron.optimizer import build_optimizer, build_schedule, learning_rate
from nemotron_rl.megatron.predictions import response_logprobs, response_logprobs_and_entropy
from nemotron_rl.megatron.reference import ReferenceWeights
from nemotron_rl.megatron.update import MtpReport, Update
from nemotron_rl.megatron.weights import exported_weights
from nemotron_rl.rl.batch import Batch
from nemotron_rl.rl.entropy import with_entropy
from nemotron_rl.rl.losses import LossTerms
from nemotron_rl.sync.placed import Placed

TokenLoss = Callable[[Tensor, Batch], LossTerms]
"""(logprob_BL with gradient, micro-batch) -> loss terms."""


class Trainer:
    """A model, its optimizer and schedule."""

    def __init__(
        self,
        model: MegatronModel,
        optimizer: OptimizerSettings,
        *,
        steps: int,
        micro_batch_size: int,
        mtp: MtpSettings,
        max_tokens_per_gpu: int | None = None,
        temperature: float = 1.0,
        entropy_coef: float = 0.0,
        report_entropy: bool = False,
        keep_reference: bool = False,
        reference_on_host: bool = False,
    ) -> None:
        self._model = model
        self._divide = partial(
            divide,
            micro_batch_size=micro_batch_size,
            max_tokens_per_gpu=max_tokens_per_gpu,
            moe_layers=model.routing.layers,
        )
        self._temperature = temperature
        self._entropy_coef, self._wants_entropy = entropy_coef, report_entropy or entropy_coef > 0
        self._mtp = mtp if mtp.enabled and model.mtp_depths else None
        self._optimizer = build_optimizer(optimizer, model.chunks, bf16=model.config.bf16)
        self._schedule = build_schedule(optimizer, self._optimizer, steps)
        self._reference = ReferenceWeights(model, reference_on_host) if keep_reference else None
        model.config.finalize_model_grads_func = finalize_model_grads

    def logprobs(self, batch: Batch) -> Tensor:
        """Log-probs of the batch's tokens now, fp32 [B, L], 0 outside the response; on every rank."""
        division = self._divide(batch)
        parts = passes.forward(self._model, division.micro_batches, self._read_logprobs)
        logprob_BL = division.restore(parts) if parts else torch.zeros_like(batch.mask_BL, device=process.device())
        return process.from_pipeline_last(logprob_BL.contiguous()).cpu()

    def reference_logprobs(self, batch: Batch) -> Tensor:
        """The same of the model that training started from, which routes for itself: it is a model of its own.

        Raises:
            RuntimeError: when the trainer was built without `keep_reference`.
        """
        if self._reference is None:
            raise RuntimeError("no reference weights are kept; build the trainer with keep_reference=True")
        with self._reference.in_place():
            return self.logprobs(batch.with_(routes_BLMK=None))

    def update(self, batch: Batch, loss: TokenLoss) -> Update:
        """One optimizer step on all data-parallel ranks' batches.

        Raises:
            NemotronRLError: when the gradient is not finite; the weights are spoiled, and the run must end.
        """
        tokens, *mtp_targets_per_depth = self._global_counts(batch)
        mtp = self._mtp_context(tokens, mtp_targets_per_depth)
        for chunk in self._model.chunks:
            chunk.zero_grad_buffer()  # type: ignore[operator]
        self._optimizer.zero_grad()
        lr = learning_rate(self._schedule)
        division = self._divide(batch)
        reported = passes.forward_backward(self._model, division.micro_batches, self._loss_function(loss), mtp)
        routing = self._routing_metrics()
        grad_norm = self._step()
        sums = _reduced(_added(reported))
        means = {name: value / max(tokens, 1) for name, value in sums.items()} | routing
        mtp_report = _mtp_report(mtp, mtp_targets_per_depth) if mtp else {}
        mtp_grad_norm = self._optimizer.grad_norms_by_group.get(MTP_GRAD_NORM_GROUP) if mtp else None
        real, computed = process.sum_over_dp(torch.tensor(division.tokens()).to(process.device())).tolist()
        padding = 1 - real / computed
        return Update(means.pop("loss"), grad_norm, lr, means, tokens, real, padding, mtp_report, mtp_grad_norm)

    @property
    def state(self) -> TrainingState:
        """What updates change; to be saved, and to be loaded into."""
        return TrainingState(self._model.unwrapped(), self._optimizer, self._schedule)

    def sleep(self) -> None:
        """Give a GPU's gradient buffers and cached memory to whoever shares it; weights stay where they are."""
        if process.device().type == "cuda":
            for chunk in self._model.chunks:
                chunk.offload_grad_buffers()  # type: ignore[operator]  # frees them: between updates they hold nothing

    def wake(self) -> None:
        """Take the gradient buffers again."""
        if process.device().type == "cuda":
            for chunk in self._model.chunks:
                chunk.restore_grad_buffers()  # type: ignore[operator]

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """See `exported_weights`."""
        return exported_weights(self._model)

    def local_views(self) -> list[Placed]:
        """See `megatron.local_views`."""
        return local_views(self._model)

    def _read_logprobs(self, micro_batch: MicroBatch, hidden_sRH: Tensor) -> Tensor:
        return response_logprobs(self._model.output_layer(), hidden_sRH, micro_batch, self._temperature)

    def _loss_function(self, loss: TokenLoss) -> passes.LossFunction:
        def summed(micro_batch: MicroBatch, hidden_sRH: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
            batch = micro_batch.batch
            terms = self._loss_terms(loss, micro_batch, hidden_sRH)
            total = (terms.loss_BL * batch.weight_BL).sum()
            sums = {name: (value_BL * batch.mask_BL).sum() for name, value_BL in terms.means.items()}
            # Context-parallel ranks hold parts of the same samples: the tokens count once.
            tokens = batch.mask_BL.sum().long() * process.is_first_cp_rank()
            return total, tokens, {"loss": total.detach(), **sums}

        return summed

    def _loss_terms(self, loss: TokenLoss, micro_batch: MicroBatch, hidden_sRH: Tensor) -> LossTerms:
        """The loss, and the entropy bonus where it is wanted: it costs a second pass over each chunk of logits."""
        if not self._wants_entropy:
            return loss(self._read_logprobs(micro_batch, hidden_sRH), micro_batch.batch)
        logprob_BL, entropy_BL = response_logprobs_and_entropy(
            self._model.output_layer(), hidden_sRH, micro_batch, self._temperature
        )
        return with_entropy(loss(logprob_BL, micro_batch.batch), entropy_BL, self._entropy_coef)

    def _routing_metrics(self) -> dict[str, float]:
        """Share of the routes replayed by all ranks in the last pass that the trainer would have chosen otherwise."""
        counts = self._model.routing.counts().to(process.device())
        torch.distributed.all_reduce(counts)
        changed, replayed = counts.tolist()
        return {"routing/changed": changed / replayed} if replayed else {}

    def _global_counts(self, batch: Batch) -> list[int]:
        """Response tokens and, for each MTP depth, targets of all data-parallel ranks."""
        depths = range(self._model.mtp_depths if self._mtp else 0)
        masks = [batch.mask_BL, *(mtp_targets(batch.mask_BL, depth) for depth in depths)]
        counts = process.sum_over_dp(torch.stack([mask.sum().double() for mask in masks]).to(process.device()))
        return [int(count) for count in counts.tolist()]

    def _mtp_context(self, tokens: int, targets_per_depth: Sequence[int]) -> MtpContext | None:
        if self._mtp is None or not any(targets_per_depth):
            return None
        # All gradients are divided by `tokens` in the end, MTP's mean is one over its own targets.
        share = self._mtp.loss_scale / len(targets_per_depth)
        return MtpContext([share * tokens / count if count else 0.0 for count in targets_per_depth])

    def _step(self) -> float:
        """Clip and step; the gradient norm."""
        successful, grad_norm, _ = self._optimizer.step()
        if not successful or not math.isfinite(grad_norm):
            raise NemotronRLError(f"the gradient norm is {grad_norm}; look at the last step's rewards and log-probs")
        self._schedule.step(increment=1)
        return float(grad_norm)


def _added(reported: Sequence[dict[str, Tensor]]) -> dict[str, float]:
    """Sums over micro-batches."""
    return {name: float(sum(one[name] for one in reported)) for name in (reported[0] if reported else ())}


def _reduced(sums: Mapping[str, float], *, with_cp: bool = False) -> dict[str, float]:
    """Sums over data-parallel ranks, on every rank and pipeline stage."""
    names = sorted(sums)
    own = torch.tensor([sums[name] for name in names], dtype=torch.float64).to(process.device())
    totals = process.sum_over_dp(own, with_cp=with_cp)
    return process.value_from_pipeline_last(dict(zip(names, totals.tolist(), strict=True)))


def _mtp_report(context: MtpContext, targets_per_depth: Sequence[int]) -> dict[int, MtpReport]:
    """What each depth did, equal on all ranks; of the depths that had targets."""
    sums = _reduced({name: float(value) for name, value in context.sums.items()}, with_cp=True)
    return {
        depth: MtpReport(sums[f"loss{depth}"] / count, sums[f"accepted{depth}"] / count, count)
        for depth, count in enumerate(targets_per_depth)
        if count
    }
