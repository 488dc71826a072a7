"""The optimizer steps of one RL step."""

from __future__ import annotations

from nemotron_rl.config.training import TrainSettings
from nemotron_rl.megatron.trainer import TokenLoss, Trainer
from nemotron_rl.megatron.update import Update, summed_up
from nemotron_rl.rl.batch import Batch


def update_policy(trainer: Trainer, batch: Batch, loss: TokenLoss, settings: TrainSettings) -> Update:
    """An optimizer step on each mini-batch, in order, over all epochs; a collective call.

    Rows of the batch are prompt by prompt, mini-batch by mini-batch, equally many on each replica. Its log-probs of
    before the update, and with them the correction for the engine, stay those of before the first step.
    """
    mini_batches = list(batch.micro_batches(len(batch.tokens_BL) // settings.updates_per_rollout))
    steps = [one for _ in range(settings.epochs_per_rollout) for one in mini_batches]
    return summed_up([trainer.update(one, loss) for one in steps])
