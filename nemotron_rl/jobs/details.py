"""What training kept of a step, so that its training half can run again: one pair of files per step and rank.

    {run_dir}/details/step_N/rank_R.safetensors   the batch: tokens, masks, log-probs, advantages, weights
    {run_dir}/details/step_N/rank_R.json          version, samples with their text and reward, what the update said

N counts as in the metrics: the state before is that of checkpoint step_N, the state after that of step_(N+1).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from nemotron_rl.config.base import Frozen
from nemotron_rl.errors import InputError, StoreError
from nemotron_rl.jobs.replayed import DETAILS
from nemotron_rl.megatron import process
from nemotron_rl.megatron.update import Update
from nemotron_rl.ops.checksum import tensor_checksum
from nemotron_rl.rl.batch import Batch
from nemotron_rl.rollout.collect import Sample

Weights = Callable[[], Iterable[tuple[str, Tensor]]]


class Outcome(Frozen):
    """What an update did, such that equal outcomes mean equal bits."""

    loss: str
    """As a hexadecimal float."""
    grad_norm: str
    """As a hexadecimal float."""
    weights: dict[str, str]
    """Checksum of every exported weight after the update."""

    @classmethod
    def of(cls, update: Update, weights: Weights) -> Outcome:
        """The outcome of an update on the first rank; checksums are left out elsewhere. A collective call."""
        first = process.is_first_rank()
        checksums = {name: tensor_checksum(tensor) if first else "" for name, tensor in weights()}
        return cls(loss=update.loss.hex(), grad_norm=update.grad_norm.hex(), weights=checksums if first else {})


class Details(Frozen):
    """The JSON beside the tensors of one step and rank."""

    version: Literal[1] = 1
    step: int
    samples: tuple[dict[str, Any], ...]
    """Prompt index, tokens, engine log-probs, text, reward and finish of each."""
    others: dict[str, Any]
    """Fields of the batch that are not tensors."""
    update: dict[str, float]
    """The update's metrics."""
    outcome: Outcome


class Recorder:
    """Keeps the details of steps below a run's folder, or nothing when it is off."""

    def __init__(self, run_dir: Path, enabled: bool) -> None:
        self._root = run_dir / DETAILS if enabled else None

    def keep(self, step: int, samples: Sequence[Sample], batch: Batch, update: Update, weights: Weights) -> None:
        """Write this rank's files of a step, over those of an earlier try; a collective call.

        Raises:
            StoreError: on every rank, when one cannot write.
        """
        if self._root is None:
            return
        tensors = {f.name: getattr(batch, f.name) for f in fields(batch)}
        details = Details(
            step=step,
            samples=tuple(_without_routes(asdict(sample)) for sample in samples),
            others={name: value for name, value in tensors.items() if not isinstance(value, Tensor)},
            update=update.metrics("train"),
            outcome=Outcome.of(update, weights),
        )
        stem = _stem(self._root, step)
        process.agreed(lambda: _write(stem, details, {k: v for k, v in tensors.items() if isinstance(v, Tensor)}))


def _without_routes(sample: dict[str, Any]) -> dict[str, Any]:
    """They are among the batch's tensors."""
    sample["sequence"].pop("routes")
    return sample


def read_details(run_dir: Path, step: int) -> tuple[Details, Batch]:
    """What this rank kept of a step.

    Raises:
        InputError: nothing was kept.
    """
    stem = _stem(run_dir / DETAILS, step)
    path = stem.with_suffix(".json")
    if not path.exists():
        raise InputError(f"{path} is missing: step {step} was not kept; train with --dump-details")
    details = Details.model_validate_json(path.read_bytes())
    return details, Batch(**load_file(stem.with_suffix(".safetensors")), **details.others)


def _stem(root: Path, step: int) -> Path:
    return root / f"step_{step}" / f"rank_{process.rank():05d}"


def _write(stem: Path, details: Details, tensors: Mapping[str, Tensor]) -> None:
    """Tensors first: the JSON says that both are there."""
    partial = stem.with_name(f".{stem.name}.partial")
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        stem.with_suffix(".json").unlink(missing_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial)
        os.replace(partial, stem.with_suffix(".safetensors"))
        partial.write_text(details.model_dump_json())
        os.replace(partial, stem.with_suffix(".json"))
    except (OSError, SafetensorError) as error:
        raise StoreError(f"cannot keep the details {stem}: {error}; make room or leave out --dump-details") from error
