"""The evaluation job: accuracy of several checkpoints on the same held-out prompts, with the rollout engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
from nemotron_rl.data.prompts import Prompt, load_prompts
from nemotron_rl.evaluate.scores import Evaluation, ModelScore, score_samples
from nemotron_rl.jobs.entry import run
from nemotron_rl.jobs.measure import MetricsLog, Phases
from nemotron_rl.jobs.requests import EvaluateRequest
from nemotron_rl.jobs.results import start_over
from nemotron_rl.reward.registry import reward_function
from nemotron_rl.rollout.collect import Collector, Sample
from nemotron_rl.rollout.engine import Engine
from nemotron_rl.rollout.reference.engine import ReferenceEngine
from nemotron_rl.rollout.reference.load import folder_weights


def evaluate(request: EvaluateRequest) -> None:
    """Write `evaluation.json` and `samples.jsonl`; started again, it starts over."""
    start_over(request)
    torch.set_num_threads(request.settings.model.threads)
    prompts = load_prompts(request.prompts)
    scores: dict[str, ModelScore] = {}
    with MetricsLog(request.metrics) as log, (request.out / "samples.jsonl").open("w", encoding="utf-8") as file:
        for step, (name, folder) in enumerate(request.models.items()):
            phases = Phases()
            samples = _samples(request, folder, prompts)
            scores[name] = score_samples([s.reward for s in samples], [len(s.sequence.response) for s in samples])
            file.writelines(json.dumps({"model": name, **asdict(sample)}) + "\n" for sample in samples)
            log.write(step, {"evaluate/accuracy": scores[name].accuracy} | phases.metrics())
    Evaluation(models=scores).write(request.out / "evaluation.json")


def _samples(request: EvaluateRequest, folder: Path, prompts: Sequence[Prompt]) -> list[Sample]:
    settings = request.settings
    tokenizer = ChatTokenizer.from_folder(folder)
    with _engine(request, folder, tokenizer.eos_token_ids) as engine:
        collector = Collector(
            engine,
            tokenizer,
            prompts,
            reward_function(settings.reward.name),
            samples_per_prompt=settings.evaluate.samples_per_prompt,
            sampling=settings.evaluate.sampling,
            seed=settings.seed,
        )
        return collector.collect(range(len(prompts)), step=0)


def _engine(request: EvaluateRequest, folder: Path, stop_tokens: Sequence[int]) -> Engine:
    """The engine that the run's training uses, with the checkpoint's weights."""
    settings = request.settings
    if settings.rollout.engine == "sglang":
        from nemotron_rl.rollout.sglang.engine import SglangEngine

        return SglangEngine.of_checkpoint(folder, stop_tokens, settings.rollout.sglang, seed=settings.seed)
    engine = ReferenceEngine.from_folder(folder, stop_tokens)
    engine.receive(folder_weights(folder), version=0)
    return engine


if __name__ == "__main__":
    run(EvaluateRequest, evaluate)
