"""Task: the training and the held-out prompts as an artifact, checked line by line."""

from __future__ import annotations

import hashlib
from pathlib import Path

from nemotron_rl.config.data import DataSettings
from nemotron_rl.config.settings import Settings
from nemotron_rl.data.arithmetic import generate_arithmetic
from nemotron_rl.data.prompts import Prompt, load_prompts, write_prompts
from nemotron_rl.store import Artifact
from tasks.policy import HOUR, stage_task
from tasks.stage import Facts, Recipe, build, fresh_folder

STAGE = "prompts"
TRAIN_FILE = "train.jsonl"
EVAL_FILE = "eval.jsonl"


@stage_task(STAGE, retries=2, delay_s=5, timeout_s=HOUR)
def make_prompts(settings: Settings) -> Artifact:
    """Generate the prompts, or read the user's files."""

    def make(out: Path) -> Facts:
        fresh_folder(out)
        training, held_out = read_prompts(settings.data)
        write_prompts(out / TRAIN_FILE, training)
        write_prompts(out / EVAL_FILE, held_out)
        return {"training": len(training), "held_out": len(held_out)}

    return build(STAGE, settings, Recipe("prompts", (), _depends_on(settings.data)), make)


def read_prompts(data: DataSettings) -> tuple[list[Prompt], list[Prompt]]:
    """(training, held-out) prompts; of a held-out file the first `eval_prompts`."""
    if data.train_file is None or data.eval_file is None:  # settings have both or neither
        return generate_arithmetic(data.seed, data.eval_prompts, data.arithmetic)
    return load_prompts(data.train_file), load_prompts(data.eval_file)[: data.eval_prompts]


def _depends_on(data: DataSettings) -> Facts:
    if data.train_file is None or data.eval_file is None:
        generated = data.model_dump(mode="json", include={"seed", "eval_prompts", "arithmetic"})
        return {"revision": 1, "generated": generated}
    read: Facts = {
        "train": _sha256(data.train_file),
        "eval": _sha256(data.eval_file),
        "eval_prompts": data.eval_prompts,
    }
    return {"revision": 1, "read": read}


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
