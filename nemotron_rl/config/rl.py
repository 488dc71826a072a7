"""The RL algorithm."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nemotron_rl.config.base import Frozen


class OffPolicySettings(Frozen):
    """Correction for the engine sampling with other probabilities than the trainer computes; off by default."""

    correction: Literal["none", "truncate", "mask"] = "none"
    """`truncate`: weigh by p_trainer / p_engine, held within [low, high] (TIS). `mask`: the same, 0 outside (MIS)."""
    level: Literal["token", "sequence"] = "token"
    """The ratio of each token, or the product of the ratios of a whole response."""
    low: float = Field(0.0, ge=0)
    """Lower bound of the ratio; 0 for none."""
    high: float = Field(2.0, gt=0)
    """Upper bound of the ratio."""
    mismatch_max: float | None = Field(None, gt=0)
    """Responses whose mean |trainer - engine| log-prob per token, in nats, is above this are left out; null: none."""


class AlgorithmSettings(Frozen):
    """Rewards to advantages, and the policy loss."""

    name: Literal["cispo", "dual_clip", "grpo", "gspo", "reinforce"] = "grpo"
    """Policy loss, by its registered name."""
    advantage: Literal["dr_grpo", "group_normalized", "reinforce_pp", "reinforce_pp_baseline", "rloo"] = (
        "group_normalized"
    )
    """Advantage estimator, by its registered name."""
    clip_low: float = Field(0.2, ge=0, le=1)
    """The probability ratio is clipped below 1 - clip_low; 1 sets no lower bound (CISPO's paper).

    GSPO's ratio is that of a whole response, and its paper clips far closer: 3e-4 and 4e-4.
    """
    clip_high: float = Field(0.28, ge=0)
    """The probability ratio is clipped above 1 + clip_high (DAPO's clip-higher when above clip_low)."""
    clip_dual: float = Field(3.0, gt=1)
    """dual_clip: a token of negative advantage loses at most this many times its advantage."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL penalty to the reference model, the starting weights; above 0 `reference_weights` are kept."""
    reference_weights: Literal["device", "host", "none"] = "device"
    """Where a frozen copy of the starting weights is kept when the KL penalty needs one. `none`: nowhere."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """How the KL divergence is estimated from a sampled token. Unbiased gradients: k2 in the loss, k1 in the reward."""
    kl_in: Literal["loss", "reward"] = "loss"
    """`loss`: a term for every token. `reward`: the sum over a response's tokens lowers its reward."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of the entropy bonus: each token's loss is lowered by so many times the entropy it was drawn with."""
    report_entropy: bool = False
    """Report `train/entropy`, the mean entropy in nats of response tokens; a bonus reports it too."""
    aggregation: Literal["sequence", "token", "constant"] = "token"
    """`sequence`: mean over samples of the mean over tokens (GRPO's paper, GSPO). `token`: mean over all tokens (DAPO).

    `constant`: mean over samples of the sum over tokens / rollout.sampling.max_new_tokens (Dr. GRPO).
    """
    normalize_std: bool = True
    """group_normalized: divide a group's centred rewards by their standard deviation."""
    drop_equal_groups: bool = False
    """Leave out prompts whose samples all got one reward (DAPO's dynamic sampling).

    Their tokens still train the MTP head.
    """
    redraw_rounds: int = Field(0, ge=0)
    """With drop_equal_groups: how often a step draws `train.prompts_per_step` prompts more, at most, while it has fewer
    whose samples differ in reward. Trains on the first so many of these; on as many as there are at the limit.

    Prompts drawn beyond the last one needed are drawn again in the next step.
    """
    overlong_tokens: int = Field(0, ge=0)
    """The last so many of rollout.sampling.max_new_tokens lower the reward, evenly down to -1 (DAPO); 0: none do."""
    off_policy: OffPolicySettings = OffPolicySettings()
    """Correction between engine and trainer."""
