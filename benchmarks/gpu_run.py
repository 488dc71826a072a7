"""A GRPO run on GPUs: the train job alone, on a synthetic slice of Ultra, with Megatron and SGLang on the same devices.

    python -m benchmarks.gpu_run [--gpus 1] [--num-experts 64] [--vocab-size 16384] [--steps 6] [--folder DIR]

Shows whether weights were equal after every sync, the MTP loss, log-prob agreement, time per phase and memory per step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks import common
from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.checkpoint.synth import synthesize
from nemotron_rl.config.load import load_settings
from nemotron_rl.config.settings import Settings
from nemotron_rl.data.arithmetic import generate_arithmetic
from nemotron_rl.data.prompts import write_prompts
from nemotron_rl.gates.measures import memory_growth
from nemotron_rl.jobs.requests import EvaluateRequest, TrainRequest

LAYERS = (0, 1, 7, 8)
QUICK = {"hidden_size": 1024, "moe_latent_size": 256, "moe_intermediate_size": 512, "vocab_size": 2048}


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--num-experts", type=int, default=64)
    parser.add_argument("--vocab-size", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument(
        "--set", action="append", default=[], help="a setting, such as rollout.sampling.max_new_tokens=64"
    )
    parser.add_argument("--folder", type=Path, help="keeps the checkpoint, log and metrics there")
    arguments = parser.parse_args()
    options = common.options_of(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        metrics = run(arguments, options.quick, arguments.folder or Path(scratch))
    figures, goals = judged(metrics)
    return common.finish(options, "gpu_run", common.gpu(arguments.gpus), figures, goals)


def run(arguments: argparse.Namespace, quick: bool, folder: Path) -> list[dict[str, float]]:
    """Run the job in `folder`; the metrics of its steps."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"n_routed_experts": arguments.num_experts, "vocab_size": arguments.vocab_size}
    overrides = sizes | QUICK if quick else sizes
    start = folder / "start"
    if not start.exists():
        began = time.perf_counter()
        total = synthesize("ultra-550b-a55b", start, layers=LAYERS, overrides=overrides).tally.total
        print(f"{total}, written in {time.perf_counter() - began:.0f} s", flush=True)
    settings = load_settings("ultra-4layer", overrides=settings_for(arguments, start), environ={})
    launch(settings, start, folder)
    check_export(start, folder / "out")
    evaluate(settings, folder)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def settings_for(arguments: argparse.Namespace, start: Path) -> Sequence[str]:
    """The preset for 8 GPUs, scaled down."""
    gpus = arguments.gpus
    return [
        f"source.uri={start}",
        f"parallel.world_size={gpus}",
        f"parallel.ep={gpus}",
        f"rollout.sglang.gpus_per_engine={gpus}",
        f"train.steps={arguments.steps}",
        "cluster.kind=local",
        "train.checkpoint.every=0",  # masters and moments of a large model would fill this host's memory and disk
        *arguments.set,
    ]


def launch(settings: Settings, start: Path, folder: Path) -> None:
    """The job under torchrun, to its end; its output in `folder/job.log`.

    Raises:
        CalledProcessError: when it failed.
    """
    process = started(settings, start, folder)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, process.args)


def started(settings: Settings, start: Path, folder: Path) -> subprocess.Popen[bytes]:
    """The job under torchrun."""
    out = folder / "out"
    out.mkdir()
    questions, _ = generate_arithmetic(settings.data.shuffle_seed, settings.data.eval_prompts, settings.data.arithmetic)
    request = TrainRequest(
        settings=settings,
        out=out,
        run_dir=folder / "run",
        metrics=folder / "metrics.jsonl",
        start=start,
        prompts=write_prompts(folder / "prompts.jsonl", questions),
    )
    ranks = str(settings.parallel.world_size)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
    module = ["-m", "nemotron_rl.jobs.train", str(request.write(folder / "request.json"))]
    with (folder / "job.log").open("wb") as log:
        return subprocess.Popen([*launcher, *module], stdout=log, stderr=subprocess.STDOUT)


def evaluate(settings: Settings, folder: Path) -> None:
    """The evaluation job on the exported checkpoint: the engine loads it from disk and answers held-out prompts."""
    data = settings.data
    _, questions = generate_arithmetic(data.shuffle_seed, data.eval_prompts, data.arithmetic)
    out = folder / "evaluation"
    out.mkdir()
    request = EvaluateRequest(
        settings=settings,
        out=out,
        metrics=out / "metrics.jsonl",
        models={"trained": folder / "out"},
        prompts=write_prompts(folder / "questions.jsonl", questions),
    )
    path = request.write(folder / "evaluate.json")
    with (folder / "evaluate.log").open("wb") as log:
        command = [sys.executable, "-m", "nemotron_rl.jobs.evaluate", str(path)]
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True)
    print((out / "evaluation.json").read_text(), flush=True)


def check_export(start: Path, out: Path) -> None:
    """Every tensor of the source is there, in its type and shape."""
    source, written = CheckpointFolder.open(start).tensors, CheckpointFolder.open(out).tensors
    wanted = {name: (tensor.dtype, tensor.shape) for name, tensor in source.items()}
    if {name: (tensor.dtype, tensor.shape) for name, tensor in written.items()} != wanted:
        raise RuntimeError("the exported checkpoint does not have the source's tensors")


def judged(steps: list[dict[str, float]]) -> tuple[dict[str, common.Figure], dict[str, common.Goal]]:
    """Figures over the steps, the first of which compiles kernels."""
    later = steps[1:]
    names = [name for name in later[-1] if name.startswith(("time/", "memory/", "logprob/", "sync/", "reward/"))]
    figures = {name: common.figure([step[name] for step in later], _unit(name)) for name in names}
    figures |= {"train/mtp_loss": common.figure([step["train/mtp_loss"] for step in steps], "nat")}
    rates = [step["sync/bytes"] / step["time/sync_transfer_s"] / 1e9 for step in later]
    figures["sync rate"] = common.figure(rates, "GB/s")
    growth = memory_growth(steps)
    if growth is None:
        raise RuntimeError("the run has too few steps to say whether its memory grows; use --steps 5")
    goals = {
        "steps": common.at_least(len(steps), 5),
        "tensors that differed after a sync": common.at_most(max(step["sync/mismatched"] for step in steps), 0),
        "largest log-prob difference": common.at_most(max(step["logprob/abs_diff_max"] for step in steps), 0.05),
        "device memory growth per step, %": common.at_most(growth[1], 0.1),
        "proof as part of a step": common.at_most(
            median(step["time/sync_proof_s"] / step["time/step_s"] for step in later), 0.1
        ),
    }
    return figures, goals


def _unit(name: str) -> str:
    for ending, unit in (("_s", "s"), ("_gib", "GiB"), ("bytes", "B")):
        if name.endswith(ending):
            return unit
    return "nat" if name.startswith("logprob/") else "1"


if __name__ == "__main__":
    sys.exit(main())
