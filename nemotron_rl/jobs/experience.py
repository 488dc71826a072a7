"""Samples to a training batch, the policy's objective, and what a step reports about both.

B samples of this data-parallel rank · L tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import torch
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.config.settings import Settings
from nemotron_rl.megatron import process
from nemotron_rl.megatron.trainer import TokenLoss, Trainer
from nemotron_rl.rl.advantages import group_normalized
from nemotron_rl.rl.agreement import agreement
from nemotron_rl.rl.batch import Batch, make_batch, token_weights
from nemotron_rl.rl.kl import k3
from nemotron_rl.rl.losses import LossTerms, policy_loss
from nemotron_rl.rollout.collect import Sample
from nemotron_rl.sync.push import SyncProof


def experience(samples: Sequence[Sample], trainer: Trainer, settings: Settings, pad_token: int) -> Batch:
    """The batch of these samples with advantages, log-probs before the update, and weights of tokens."""
    batch = make_batch([s.sequence for s in samples], pad_token, multiple=settings.parallel.tp)
    reward_B = torch.tensor([s.reward for s in samples])
    group_B = torch.tensor([s.prompt_index for s in samples])
    advantage_B = group_normalized(reward_B, group_B, settings.algorithm.normalize_std)
    counts = torch.tensor([batch.mask_BL.sum(), len(samples)], dtype=torch.float64)
    tokens, in_all = process.sum_over_dp(counts.to(process.device())).tolist()
    batch = batch.with_(
        advantage_BL=advantage_B[:, None] * batch.mask_BL,
        weight_BL=token_weights(batch.mask_BL, settings.algorithm.aggregation, tokens, in_all),
        old_logprob_BL=trainer.logprobs(batch),
    )
    if settings.algorithm.kl_coef > 0:
        batch = batch.with_(reference_logprob_BL=trainer.reference_logprobs(batch))
    return batch


def policy_objective(settings: AlgorithmSettings) -> TokenLoss:
    """The registered policy loss, plus the KL penalty where its weight is above zero."""
    loss = policy_loss(settings.name)

    def objective(logprob_BL: Tensor, batch: Batch) -> LossTerms:
        terms = loss(logprob_BL, batch.old_logprob_BL, batch.advantage_BL, settings)
        if settings.kl_coef == 0:
            return terms
        kl_BL = k3(logprob_BL, batch.reference_logprob_BL)
        return LossTerms(terms.loss_BL + settings.kl_coef * kl_BL, terms.means | {"train/kl": kl_BL.detach()})

    return objective


def sample_metrics(samples: Sequence[Sample], batch: Batch) -> dict[str, float]:
    """Rewards, lengths and agreement of log-probs over the samples of all ranks."""
    difference_BL = batch.old_logprob_BL - batch.rollout_logprob_BL
    differences = process.gathered_over_dp([difference_BL[batch.mask_BL > 0]])
    everyone = process.gathered_over_dp([(s.reward, len(s.sequence.response), s.finish == "stop") for s in samples])
    rewards, lengths, stopped = zip(*everyone, strict=True)
    return {
        "reward/mean": fmean(rewards),
        "reward/std": pstdev(rewards),
        "response/length_mean": fmean(lengths),
        "response/stopped": fmean(stopped),
        **agreement(torch.cat(differences)),
    }


def sync_metrics(proof: SyncProof) -> dict[str, float]:
    """What the proof of a push compared."""
    return {"sync/tensors": proof.tensors, "sync/mismatched": proof.mismatched, "sync/bytes": proof.nbytes}
