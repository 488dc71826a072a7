"""The optimizer, the supervised warm-up and the RL training run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from nemotron_rl.config.base import Frozen


class LrScaleSettings(Frozen):
    """Learning rates of groups of parameters, as multiples of the schedule's; 0 freezes a group.

    A parameter belongs to the first group here that it fits: a router of the MTP head is part of the head.
    """

    mtp: float = Field(1.0, ge=0)
    """The multi-token-prediction head."""
    router: float = Field(1.0, ge=0)
    """MoE routers."""
    experts: float = Field(1.0, ge=0)
    """Routed experts."""
    mamba: float = Field(1.0, ge=0)
    """Mamba mixers."""
    embeddings: float = Field(1.0, ge=0)
    """Token embedding and output layer."""


class OptimizerSettings(Frozen):
    """AdamW and its learning-rate schedule. Under bf16 it works on fp32 masters of the weights."""

    distributed: bool = False
    """Split masters and moments over data-parallel ranks (DistributedOptimizer): the same steps, less memory."""
    moments: Literal["fp32", "bf16"] = "fp32"
    """Type of Adam's moments (megatron's precision-aware optimizer); bf16 needs CUDA and Transformer Engine."""
    cpu_offload: float = Field(0.0, ge=0, le=1)
    """Share of the optimizer that lives, and steps, in host memory; above 0 needs CUDA."""
    lr: float = Field(1e-6, ge=0)
    """Peak learning rate."""
    lr_scale: LrScaleSettings = LrScaleSettings()
    """Other learning rates for some groups of parameters."""
    min_lr: float = Field(0.0, ge=0)
    """Learning rate at the end of the decay."""
    warmup_steps: int = Field(0, ge=0)
    """Optimizer steps of linear warm-up from 0 to `lr`; an RL step may have several."""
    decay: Literal["constant", "linear", "cosine"] = "constant"
    """Shape of the schedule after the warm-up."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Adam's first-moment decay."""
    beta2: float = Field(0.95, ge=0, lt=1)
    """Adam's second-moment decay."""
    eps: float = Field(1e-8, gt=0)
    """Adam's epsilon."""
    clip_grad: float = Field(1.0, ge=0)
    """Largest global gradient norm; 0 does not clip."""


class MtpSettings(Frozen):
    """Training of the multi-token-prediction head."""

    enabled: bool = True
    """Off: the head is kept as it is, synced and exported, but gets no loss."""
    loss_scale: float = Field(0.1, ge=0)
    """Weight of the mean MTP cross-entropy in the total loss."""
    detach_heads: bool = True
    """Stops MTP's gradient at the embedding, trunk and output layer, so that it does not move the policy."""


class MoeSettings(Frozen):
    """Routing of the trunk's mixture-of-experts layers in RL. The MTP head always routes for itself."""

    routing_replay: Literal["off", "auto", "on"] = "auto"
    """`on`: the trainer computes each token with the experts that the engine chose for it, and does not start where the
    engine cannot say which these were. `auto`: where the engine is known to; `nemotron_rl/config/routing.py` says why
    not. `off`: the trainer routes for itself. The gate weights and their gradient are the trainer's own in any case."""
    expert_bias: Literal["frozen", "updated"] = "frozen"
    """`frozen`: the bias of expert choice stays what the checkpoint has, bit for bit. `updated`: after each step it
    moves by `expert_bias_rate` towards equal load (arXiv 2408.15664). fp32 in any case."""
    expert_bias_rate: float = Field(1e-3, gt=0)
    """How far an `updated` bias moves per step."""


AnswerStyle = Annotated[str, Field(pattern=r"^[^{}]*\{label\}[^{}]*$")]


class WarmupSettings(Frozen):
    """A short supervised phase that makes the reward of a random-weight model learnable. Off for real models."""

    steps: int = Field(0, ge=0)
    """Optimizer steps; 0 skips the stage."""
    batch_size: int = Field(32, ge=1)
    """Documents per step, all ranks together."""
    answers: tuple[AnswerStyle, ...] = Field(("{label}",), min_length=1)
    """Ways to write an answer, of which each document gets one by chance; `{label}` stands for the right answer.

    With several, the model learns to answer in a style that the reward does not ask for: something RL can teach fast.
    """
    optimizer: OptimizerSettings = OptimizerSettings(lr=1e-3)
    """Its own optimizer and schedule."""


class CheckpointSettings(Frozen):
    """When training is saved, in `{output_dir}/{run_id}/checkpoints/step_N`, so that it can go on after an end."""

    every: int = Field(10, ge=0)
    """Steps between saves; the last step is saved too. 0 saves nothing: a run that ends starts again from step 0.

    A save that is due while the one before is still being written waits for the next step.
    """
    keep: int = Field(2, ge=1)
    """Complete checkpoints that are kept; older ones are deleted."""
    background: bool = True
    """Write while training goes on, from a copy in host memory. Off: training waits, and needs no memory for it."""


class TrainSettings(Frozen):
    """The RL phase."""

    steps: int = Field(10, ge=1)
    """Rollout, update, sync: how often."""
    prompts_per_step: int = Field(16, ge=1)
    """Prompts per step, all ranks together; each gives `rollout.samples_per_prompt` samples."""
    updates_per_rollout: int = Field(1, ge=1)
    """Optimizer steps into which a step's prompts are split, in the order of drawing, each prompt whole (PPO's
    mini-batches). From the second one on the policy is no longer the one that sampled: clipping begins to act.
    """
    epochs_per_rollout: int = Field(1, ge=1)
    """How often a step's mini-batches are gone through, in the same order. The optimizer's schedule counts each."""
    micro_batch_size: int = Field(32, ge=1)
    """Samples per forward and backward pass on one rank, padded to the longest of the batch."""
    max_tokens_per_gpu: int | None = Field(None, ge=1)
    """Instead of `micro_batch_size`: as many samples per pass as have together up to so many tokens per GPU.

    They are packed without padding, and shared out so that all data-parallel ranks get about equally many tokens.
    """
    optimizer: OptimizerSettings = OptimizerSettings()
    """AdamW and its schedule."""
    mtp: MtpSettings = MtpSettings()
    """The multi-token-prediction head."""
    moe: MoeSettings = MoeSettings()
    """The mixture-of-experts layers."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    """Saving of the training state."""
    resume: int | str = "auto"
    """`auto`: from this run's newest complete checkpoint, if there is one. `none`: from step 0, deleting them.

    A step number, or the path of a run or of a checkpoint of another run: from there, and later ones of this run are
    deleted. A job that is started again goes on from what it saved itself, except with `none`.
    """
    dump_details: bool = False
    """Keep each step's samples, log-probs, advantages and loss inputs, for `nemotron-rl replay`."""

    @property
    def updates_per_step(self) -> int:
        """Optimizer steps of one RL step."""
        return self.updates_per_rollout * self.epochs_per_rollout
