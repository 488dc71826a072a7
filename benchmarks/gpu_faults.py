"""kill -9 of the engine's process and of a rank in the middle of a GPU run: how soon the job ends, and what is left.

python -m benchmarks.gpu_faults --folder DIR        # DIR/start may hold a checkpoint of benchmarks.gpu_run
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from benchmarks import common, gpu_run
from nemotron_rl.checkpoint.synth import synthesize
from nemotron_rl.config.load import load_settings

TARGETS = {"engine": "sglang::scheduler", "rank": "nemotron_rl.jobs.train"}
START_S, END_S = 300, 120


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=1)
    arguments = parser.parse_args()
    options = common.options_of(arguments)
    figures: dict[str, common.Figure] = {}
    goals: dict[str, common.Goal] = {}
    for target in TARGETS:
        seconds, left, memory = killed(arguments, target)
        figures[f"{target} killed: until the job's end"] = common.figure([seconds], "s")
        figures[f"{target} killed: device memory left"] = common.figure([memory], "GiB")
        goals[f"seconds to the end after the {target} was killed"] = common.at_most(seconds, 60)
        goals[f"processes left after the {target} was killed"] = common.at_most(left, 0)
        goals[f"GiB of device memory left after the {target} was killed"] = common.at_most(memory, 0.5)
    return common.finish(options, "gpu_faults", common.gpu(arguments.gpus), figures, goals)


def killed(arguments: argparse.Namespace, target: str) -> tuple[float, int, float]:
    """Seconds until the job ended, its processes that are left then, and GiB that are still in use on the device."""
    folder = arguments.folder / target
    folder.mkdir(parents=True)
    start = arguments.folder / "start"
    if not start.exists():
        synthesize("ultra-550b-a55b", start, layers=gpu_run.LAYERS, overrides={"n_routed_experts": 32} | gpu_run.QUICK)
    scaled = argparse.Namespace(gpus=arguments.gpus, steps=1000, set=["train.prompts_per_step=8"])
    settings = load_settings("ultra-4layer", overrides=gpu_run.settings_for(scaled, start), environ={})
    job = gpu_run.started(settings, start, folder)
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + START_S
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 2:
        if job.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the job did not get to its second step; see {folder / 'job.log'}")
        time.sleep(0.5)
    processes = psutil.Process(job.pid).children(recursive=True)
    victim = next(p for p in processes if TARGETS[target] in " ".join([p.name(), *p.cmdline()]))
    began = time.monotonic()
    victim.kill()
    job.wait(timeout=END_S)
    _, alive = psutil.wait_procs(processes, timeout=max(1, 60 - (time.monotonic() - began)))
    seconds = time.monotonic() - began
    for process in alive:
        process.kill()
    return seconds, len(alive), memory_in_use()


def memory_in_use() -> float:
    """GiB in use on the first device that this process may see."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    query = ["nvidia-smi", "-i", device, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return float(subprocess.run(query, capture_output=True, text=True, check=True).stdout) / 1024


if __name__ == "__main__":
    sys.exit(main())
