"""The memory plan of a run: per pipeline stage, what training and rollout need on a GPU, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemotron_rl.checkpoint.dimensions import dimensions
from nemotron_rl.config.base import Frozen
from nemotron_rl.config.model import ParallelSettings
from nemotron_rl.config.settings import Settings
from nemotron_rl.config.training import OptimizerSettings
from nemotron_rl.planner.activations import bytes_per_token, logprob_bytes
from nemotron_rl.planner.engine import EngineMemory, engine_memory
from nemotron_rl.planner.shards import ModelSizes, Shard, model_sizes, stage_shards

RUNTIME_BYTES = 6 * 2**30
"""CUDA context, communicators, kernels' workspaces and the allocator's fragmentation: assumed, not derived."""
ITEMSIZE = {"fp32": 4, "bf16": 2}


class Assumptions(Frozen):
    """What the settings do not say."""

    prompt_tokens: int = 1024
    """Longest prompt."""
    engine_gpus: int | None = None
    """GPUs of one rollout engine; None takes the larger of tp and ep."""


class StagePlan(Frozen):
    """Bytes on each GPU of one pipeline stage."""

    stage: int
    layers: str
    """Its blocks, such as `MEME*E`, and `+mtp` for the head."""
    parameters: int
    """That a rank holds."""
    weights: float
    gradients: float
    """fp32, as megatron reduces them."""
    optimizer: float
    """fp32 masters and Adam's two moments."""
    activations: float
    """Of all micro-batches in flight, and the log-prob pass on the last stage."""
    engine_weights: float
    kv_cache: float
    mamba_state: float
    runtime: float

    @property
    def kept(self) -> float:
        """What stays on the GPU in both phases."""
        return self.weights + self.gradients + self.optimizer + self.runtime

    @property
    def training(self) -> float:
        """While the trainer works; the engine sleeps, and has given its memory back."""
        return self.kept + self.activations

    @property
    def rollout(self) -> float:
        """While the engine works; the trainer's state stays."""
        return self.kept + self.engine_weights + self.kv_cache + self.mamba_state

    @property
    def peak(self) -> float:
        """The larger of the two."""
        return max(self.training, self.rollout)


class MemoryPlan(Frozen):
    """The plan of a run on GPUs of one type."""

    source: str
    pattern: str
    parallel: ParallelSettings
    capacity: float
    """Bytes of a GPU."""
    tokens_per_micro_batch: int
    """Per GPU, in one pass."""
    engine_gpus: int
    requests: int
    """That an engine runs at once per attention group."""
    tokens_per_request: int
    stages: tuple[StagePlan, ...]

    @property
    def fits(self) -> bool:
        """Whether every stage does."""
        return all(stage.peak <= self.capacity for stage in self.stages)


class Planner:
    """Plans for one model under varying settings; the model's sizes are counted once."""

    def __init__(self, config: Mapping[str, Any], source: str, capacity: float, assumptions: Assumptions) -> None:
        self._config, self._source, self._capacity, self._assumptions = config, source, capacity, assumptions
        self.sizes: ModelSizes = model_sizes(config)
        self._symbols = dimensions(config).sizes

    def plan(self, settings: Settings) -> MemoryPlan:
        """The plan; the split must be one that `check_parallel` accepts."""
        parallel = settings.parallel
        per_request = self._assumptions.prompt_tokens + settings.rollout.sampling.max_new_tokens
        tokens = settings.train.max_tokens_per_gpu or -(-settings.train.micro_batch_size * per_request // parallel.cp)
        engine_gpus = self._assumptions.engine_gpus or max(parallel.tp, parallel.ep)
        engine = engine_memory(
            self.sizes,
            self._symbols,
            n_groups=int(self._config["n_groups"]),
            ssm_state=int(self._config["ssm_state_size"]),
            world_size=parallel.world_size,
            engine_gpus=engine_gpus,
            requests=settings.train.prompts_per_step * settings.rollout.samples_per_prompt,
            tokens_per_request=per_request,
        )
        stages = [
            self._stage(stage, shard, settings, tokens, engine)
            for stage, shard in enumerate(stage_shards(self.sizes, parallel))
        ]
        return MemoryPlan(
            source=self._source,
            pattern=str(self.sizes.pattern),
            parallel=parallel,
            capacity=self._capacity,
            tokens_per_micro_batch=tokens,
            engine_gpus=engine_gpus,
            requests=engine.requests,
            tokens_per_request=per_request,
            stages=tuple(stages),
        )

    def _stage(self, stage: int, shard: Shard, settings: Settings, tokens: int, engine: EngineMemory) -> StagePlan:
        parallel, itemsize = settings.parallel, ITEMSIZE[settings.model.dtype]
        pattern, per_stage = self.sizes.pattern, len(self.sizes.layers) // parallel.pp
        last = stage == parallel.pp - 1
        blocks = pattern.main[stage * per_stage : (stage + 1) * per_stage]
        with_mtp = last and bool(self.sizes.mtp)
        return StagePlan(
            stage=stage,
            layers=blocks + ("+mtp" if with_mtp else ""),
            parameters=shard.trained + shard.bias,
            weights=shard.trained * itemsize + shard.bias * 4,
            gradients=shard.trained * 4,
            optimizer=optimizer_bytes(shard, settings.train.optimizer, parallel, settings.model.dtype),
            activations=self._activations(
                blocks + (pattern.mtp * pattern.mtp_depth if with_mtp else ""), stage, last, tokens, settings
            ),
            engine_weights=engine.weights,
            kv_cache=engine.kv_cache,
            mamba_state=engine.mamba_state,
            runtime=RUNTIME_BYTES,
        )

    def _activations(self, blocks: str, stage: int, last: bool, tokens: int, settings: Settings) -> float:
        """1F1B keeps pp - stage micro-batches in flight: Narayanan et al. (arXiv 2104.04473), section 2.2."""
        tp, itemsize = settings.parallel.tp, ITEMSIZE[settings.model.dtype]
        chosen = int(self._config.get("num_experts_per_tok") or 0)
        per_block = {block: bytes_per_token(block, self._symbols, chosen, tp, itemsize) for block in set(blocks)}
        kept = tokens * sum(per_block[block] for block in blocks) * (settings.parallel.pp - stage)
        return kept + (logprob_bytes(self._symbols["V"], self._symbols["H"], tp, tokens) if last else 0.0)


def optimizer_bytes(shard: Shard, settings: OptimizerSettings, parallel: ParallelSettings, dtype: str) -> float:
    """Masters, where the weights are not fp32 themselves, and two moments, on the GPU."""
    moment = 2 if settings.moments == "bf16" else 4
    per_parameter = (0 if dtype == "fp32" else 4) + 2 * moment
    dense_ranks = parallel.dp * parallel.cp if settings.distributed else 1
    expert_copies = parallel.world_size // (parallel.ep * parallel.etp * parallel.pp)
    expert_ranks = expert_copies if settings.distributed else 1
    return per_parameter * (shard.dense / dense_ranks + shard.expert / expert_ranks) * (1 - settings.cpu_offload)
