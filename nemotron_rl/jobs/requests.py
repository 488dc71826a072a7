"""What a job is told. The head node writes one of these as JSON; the job reads it. No torch here.

`python -m nemotron_rl.jobs.NAME REQUEST.json` runs a job: under torchrun for convert, export, warmup and train,
plainly for evaluate. Every job writes its results into the folder `out`, and its metrics, one JSON object per line, to
`metrics`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from nemotron_rl.checkpoint.new_folder import writing
from nemotron_rl.checkpoint.writer import DEFAULT_SHARD_SIZE
from nemotron_rl.config.base import Frozen
from nemotron_rl.config.settings import Settings

METRICS_FILE = "metrics.jsonl"


class Request(Frozen):
    """What all requests have in common."""

    settings: Settings
    """The whole run's settings."""
    out: Path
    """Folder for the results; empty when the job starts."""
    metrics: Path
    """JSON-lines file for one object per step, with the key `step`."""

    def write(self, path: Path) -> Path:
        """Write the request as JSON and return its path. Raises InputError when it cannot be written."""
        with writing(path):
            path.write_text(self.model_dump_json(indent=1))
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a request that `write` wrote."""
        return cls.model_validate_json(path.read_text())


class ConvertRequest(Request):
    """Hugging Face layout to torch_dist; the result also carries config and tokenizer, so it can start a trainer."""

    hf: Path
    """Hugging Face checkpoint folder."""


class ExportRequest(Request):
    """torch_dist back to the Hugging Face layout."""

    converted: Path
    """Converted folder."""
    shard_size: int = DEFAULT_SHARD_SIZE
    """Bytes of tensors per shard."""


class WarmupRequest(Request):
    """Supervised warm-up; the result is a Hugging Face checkpoint folder."""

    start: Path
    """Converted folder or Hugging Face checkpoint folder."""
    prompts: Path
    """JSONL of training prompts."""


class TrainRequest(Request):
    """RL; the result is a Hugging Face checkpoint folder. The job may be started again, and goes on where it was."""

    run_dir: Path
    """The run's folder; `checkpoints` and `details` are below it."""
    start: Path
    """Converted folder or Hugging Face checkpoint folder."""
    prompts: Path
    """JSONL of training prompts."""
    inputs: tuple[str, ...] = ()
    """Digests of start and prompts; a checkpoint of others is not resumed. Empty: not compared."""


class ReplayRequest(Request):
    """The training half of kept steps again; the result is `replay.json`."""

    train: TrainRequest
    """The run's own request."""
    step: int
    """The step to replay, as numbered in the metrics; earlier ones are replayed where no checkpoint is right before."""


class EvaluateRequest(Request):
    """Accuracy of several checkpoints on the same prompts; the result is `evaluation.json` and `samples.jsonl`."""

    models: dict[str, Path]
    """Hugging Face checkpoint folders by the name they have in the table, such as `base` and `trained`."""
    prompts: Path
    """JSONL of held-out prompts."""
