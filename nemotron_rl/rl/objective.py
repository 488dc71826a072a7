"""The objective of an update: the policy loss by its name, corrected for the engine's sampling, and the KL penalty."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings, OffPolicySettings
from nemotron_rl.rl.batch import Batch
from nemotron_rl.rl.kl import KL_ESTIMATES
from nemotron_rl.rl.losses import LossTerms, policy_loss
from nemotron_rl.rl.off_policy import rollout_weights


def policy_objective(settings: AlgorithmSettings) -> Callable[[Tensor, Batch], LossTerms]:
    """(logprob_BL with gradient, micro-batch) -> terms: the registered loss, plus the KL penalty where it belongs."""
    loss = policy_loss(settings.name)

    def objective(logprob_BL: Tensor, batch: Batch) -> LossTerms:
        # Batches hold 0 outside the response; against a real log-prob there an exp() can overflow, and 0 * inf is NaN.
        logprob_BL = torch.where(batch.mask_BL > 0, logprob_BL, 0.0)
        advantage_BL, corrected = _corrected_advantages(batch, settings.off_policy)
        terms = loss(logprob_BL, batch.old_logprob_BL, advantage_BL, batch.mask_BL, settings)
        means = terms.means | corrected
        if settings.kl_coef == 0:
            return LossTerms(terms.loss_BL, means)
        kl_BL = KL_ESTIMATES[settings.kl_estimator](logprob_BL, batch.reference_logprob_BL)
        loss_BL = terms.loss_BL + settings.kl_coef * kl_BL if settings.kl_in == "loss" else terms.loss_BL
        return LossTerms(loss_BL, means | {"train/kl": kl_BL.detach()})

    return objective


def _corrected_advantages(batch: Batch, settings: OffPolicySettings) -> tuple[Tensor, dict[str, Tensor]]:
    """Advantages times the weights between engine and trainer, and the metrics of these; unchanged when off.

    Policy losses scale with the advantages, so this weighs the loss and leaves the KL penalty alone.
    """
    if settings.correction == "none" and settings.mismatch_max is None:
        return batch.advantage_BL, {}
    weight_BL = rollout_weights(batch.old_logprob_BL, batch.rollout_logprob_BL, batch.mask_BL, settings)
    metrics = {"train/rollout_weight": weight_BL, "train/rollout_dropped": (weight_BL == 0).float()}
    return batch.advantage_BL * weight_BL, metrics
