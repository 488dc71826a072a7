"""Samples to a training batch, and what a step reports about both.

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
from nemotron_rl.megatron.trainer import Trainer
from nemotron_rl.rl.advantages import BatchStatistics, estimator, normalized
from nemotron_rl.rl.agreement import agreement
from nemotron_rl.rl.batch import Batch, make_batch, token_weights
from nemotron_rl.rl.shaping import informative_groups, shaped_rewards
from nemotron_rl.rollout.collect import Sample
from nemotron_rl.rollout.engine import Engine
from nemotron_rl.sync.push import SyncProof


def experience(samples: Sequence[Sample], trainer: Trainer, settings: Settings, pad_token: int) -> Batch:
    """The batch of these samples with advantages, log-probs before the update, and weights of tokens."""
    algorithm = settings.algorithm
    batch = make_batch([s.sequence for s in samples], pad_token, multiple=settings.parallel.tp)
    batch = batch.with_(old_logprob_BL=trainer.logprobs(batch))
    if algorithm.kl_coef > 0:
        batch = batch.with_(reference_logprob_BL=trainer.reference_logprobs(batch))
    reward_B = torch.tensor([s.reward for s in samples])
    group_B = torch.tensor([s.prompt_index for s in samples])
    # Which prompts teach is up to the task's reward: penalties would tell apart answers that are equally right.
    keep_B = informative_groups(reward_B, group_B) if algorithm.drop_equal_groups else torch.ones_like(reward_B)
    shaped_B = shaped_rewards(reward_B, batch, algorithm, settings.rollout.sampling.max_new_tokens)
    advantage_B = advantages(shaped_B, group_B, keep_B, algorithm)
    return batch.with_(
        advantage_BL=advantage_B[:, None] * batch.mask_BL,
        weight_BL=mini_batch_weights(batch.mask_BL, keep_B, settings),
    )


def advantages(reward_B: Tensor, group_B: Tensor, keep_B: Tensor, settings: AlgorithmSettings) -> Tensor:
    """Advantages [B] by the chosen estimator; its batch statistics are of the kept samples of all ranks."""
    chosen = estimator(settings.advantage)
    value_B = chosen.centre(reward_B, group_B, settings)
    if not chosen.over_batch:
        return value_B
    everyone = process.gathered_over_dp(value_B[keep_B > 0].tolist())
    return normalized(value_B, BatchStatistics.of(everyone))


def mini_batch_weights(mask_BL: Tensor, keep_B: Tensor, settings: Settings) -> Tensor:
    """Weights of tokens [B, L]; the mean that they make is one over each mini-batch by itself."""
    parts = settings.train.updates_per_rollout
    pairs = zip(mask_BL.chunk(parts), keep_B.chunk(parts), strict=True)
    return torch.cat([loss_weights(mask_bL, keep_b, settings) for mask_bL, keep_b in pairs])


def loss_weights(mask_BL: Tensor, keep_B: Tensor, settings: Settings) -> Tensor:
    """Weights of tokens [B, L] that make the trainer's sum the chosen mean over the kept samples of all ranks."""
    kept_BL = mask_BL * keep_B[:, None]
    counts = torch.stack([mask_BL.sum(), kept_BL.sum(), keep_B.sum()]).double()
    tokens, kept_tokens, kept_samples = process.sum_over_dp(counts.to(process.device())).tolist()
    return token_weights(
        kept_BL,
        settings.algorithm.aggregation,
        kept_tokens,
        kept_samples,
        divisor=tokens,
        constant_length=settings.rollout.sampling.max_new_tokens,
    )


def sample_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Rewards and lengths over the samples of all ranks."""
    everyone = process.gathered_over_dp([(s.reward, len(s.sequence.response), s.finish == "stop") for s in samples])
    rewards, lengths, stopped = zip(*everyone, strict=True)
    return {
        "reward/mean": fmean(rewards),
        "reward/std": pstdev(rewards),
        "response/length_mean": fmean(lengths),
        "response/stopped": fmean(stopped),
    }


def batch_metrics(batch: Batch) -> dict[str, float]:
    """The share of samples with a weight in the loss, and agreement of log-probs, over all ranks."""
    difference_BL = batch.old_logprob_BL - batch.rollout_logprob_BL
    kept_B = (batch.weight_BL > 0).any(-1)
    return {
        "reward/kept": fmean(process.gathered_over_dp(kept_B.tolist())),
        **agreement(torch.cat(process.gathered_over_dp([difference_BL[batch.mask_BL > 0]]))),
    }


def engine_metrics(engine: Engine, samples: Sequence[Sample]) -> dict[str, float]:
    """How far the engine's log-probs while decoding are from its own prefill of the same tokens, over all ranks."""
    scores = engine.score([(*s.sequence.prompt, *s.sequence.response) for s in samples])
    differences = [
        score[len(s.sequence.prompt) - 1 :] - torch.tensor(s.sequence.response_logprobs)
        for s, score in zip(samples, scores, strict=True)
    ]
    named = agreement(torch.cat(process.gathered_over_dp([torch.cat(differences)])))
    return {name.replace("logprob/", "logprob/engine_"): value for name, value in named.items()}


def sync_metrics(proof: SyncProof) -> dict[str, float]:
    """What the proof of a push compared."""
    return {
        "sync/tensors": proof.tensors,
        "sync/mismatched": proof.mismatched,
        "sync/bytes": proof.nbytes,
        "time/sync_transfer_s": proof.transfer_s,
        "time/sync_exchange_s": proof.exchange_s,
        "time/sync_proof_s": proof.proof_s,
    }
