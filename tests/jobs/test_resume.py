"""Real two-rank runs that are killed, resumed, reshaped and refused; twenty points are in benchmarks/resume.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from nemotron_rl.cluster.failure import read_failure
from nemotron_rl.errors import InputError, StoreError
from nemotron_rl.jobs.replayed import Replays
from nemotron_rl.jobs.requests import ReplayRequest, TrainRequest
from nemotron_rl.store.steps import StepStore
from tests.jobs.killing import Point, Setup, killed_and_resumed, metrics, outcome, prepare
from tests.jobs.ranks import Ranks

pytestmark = pytest.mark.slow
STEPS = 4


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory, ranks: Ranks) -> Setup:
    return prepare(tmp_path_factory.mktemp("resume"), ranks, STEPS)


@pytest.fixture(scope="module")
def alone(setup: Setup, ranks: Ranks) -> Path:
    """A run that nobody disturbed; not to be changed."""
    return setup.run_alone(ranks)


def failed(setup: Setup, ranks: Ranks, run_id: str, file_limit: int | None = None, **overrides: object) -> Exception:
    """What a run that must not succeed says."""
    request, log = setup.request(run_id, **overrides), setup.work / f"{run_id}.log"
    codes = ranks.wait(ranks.start(request, 2, log, file_limit=file_limit))
    assert all(codes), codes
    assert "Traceback" not in log.read_text()
    error = read_failure(request.parent)
    assert error is not None
    return error


@pytest.mark.parametrize(
    "point",
    [Point("save", 2, 0.0, (0, 1)), Point("step", 2, 0.1, (1,)), Point("export", 0, 0.0, (0, 1))],
    ids=lambda point: point.phase,
)
def test_a_killed_run_ends_as_if_nothing_had_happened(setup: Setup, ranks: Ranks, alone: Path, point: Point) -> None:
    run, _ = killed_and_resumed(setup, ranks, f"killed-{point.phase}", point)
    assert outcome(run) == outcome(alone)


def test_only_the_last_checkpoints_are_kept_and_nothing_half_written(alone: Path) -> None:
    store = StepStore(alone / "checkpoints")
    assert store.complete() == [STEPS - 1, STEPS]
    assert store.sweep() == []
    assert store.manifest(STEPS).settings["train.optimizer.lr"] == 1e-2


@pytest.fixture
def copy(setup: Setup, alone: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the undisturbed run, to be changed."""
    run = setup.work / f"copy-{abs(hash(request.node.name)) % 10**6}"
    shutil.copytree(alone, run)
    return run


def test_a_missing_file_is_named_and_training_does_not_start_again(setup: Setup, ranks: Ranks, copy: Path) -> None:
    lost = next((copy / "checkpoints" / f"step_{STEPS}").rglob("*.distcp"))
    lost.unlink()
    before = (copy / "train" / "metrics.jsonl").read_bytes()
    error = failed(setup, ranks, copy.name)
    assert isinstance(error, StoreError)
    assert f"{lost} is missing" in str(error)
    assert (copy / "train" / "metrics.jsonl").read_bytes() == before


def test_an_altered_file_is_named(setup: Setup, ranks: Ranks, copy: Path) -> None:
    altered = next((copy / "checkpoints" / f"step_{STEPS}").rglob("rank_00001.safetensors"))
    altered.write_bytes(altered.read_bytes()[:-1] + b"?")
    assert f"{altered} was altered" in str(failed(setup, ranks, copy.name))


def test_a_checkpoint_of_other_settings_is_refused_setting_by_setting(setup: Setup, ranks: Ranks, copy: Path) -> None:
    error = failed(setup, ranks, copy.name, **{"train.optimizer.lr": 1e-3, "rollout.sampling.temperature": 0.5})
    assert isinstance(error, InputError)
    assert "train.optimizer.lr = 0.01 there, 0.001 in this run" in str(error)
    assert "rollout.sampling.temperature = 1.0 there, 0.5 in this run" in str(error)


def test_a_step_that_is_not_there_is_refused_with_those_that_are(setup: Setup, ranks: Ranks, copy: Path) -> None:
    assert f"complete steps: {STEPS - 1}, {STEPS}" in str(failed(setup, ranks, copy.name, **{"train.resume": 2}))


def test_a_run_goes_on_from_a_step_of_another_run(setup: Setup, ranks: Ranks, alone: Path) -> None:
    source = alone / "checkpoints" / f"step_{STEPS - 1}"
    request = setup.request("branch", **{"train.resume": str(source)})
    ranks.run(request, 2, setup.work / "branch.log")
    assert outcome(setup.work / "branch") == outcome(alone)


@pytest.mark.parametrize(("axis", "size"), [("tp", 2), ("pp", 2), ("ep", 2), ("world_size", 1)])
def test_a_run_goes_on_at_another_split(setup: Setup, ranks: Ranks, alone: Path, axis: str, size: int) -> None:
    run_id = f"as-{axis}"
    source = alone / "checkpoints" / f"step_{STEPS - 1}"
    request = setup.request(run_id, **{f"parallel.{axis}": size, "train.resume": str(source)})
    ranks.run(request, 1 if axis == "world_size" else 2, setup.work / f"{run_id}.log")
    here, there = metrics(setup.work / run_id), metrics(alone)
    assert here[: STEPS - 1] == there[: STEPS - 1]
    for name in ("train/grad_norm", "train/mtp_loss", "train/lr", "reward/mean", "logprob/abs_diff_max"):
        assert here[-1][name] == pytest.approx(there[-1][name], rel=1e-3, abs=1e-4)


def replayed(ranks: Ranks, run: Path, step: int) -> Replays:
    """What a replay of a run's step finds."""
    folder = run / "replay" / str(step)
    (folder / "out").mkdir(parents=True)
    train = TrainRequest.read(run / "train" / "request.json")
    # A copied run's request still names the original's folder.
    train = train.model_copy(update={"run_dir": run})
    request = ReplayRequest(
        settings=train.settings, out=folder / "out", metrics=folder / "metrics.jsonl", train=train, step=step
    )
    ranks.run(request.write(folder / "request.json"), 2, folder / "log", "replay")
    return Replays.read(folder / "out")


@pytest.mark.parametrize(("step", "checkpoint", "steps"), [(STEPS - 1, STEPS - 1, 1), (1, 0, 2)])
def test_a_kept_step_replays_bit_for_bit(ranks: Ranks, copy: Path, step: int, checkpoint: int, steps: int) -> None:
    found = replayed(ranks, copy, step)
    assert (found.checkpoint, len(found.steps)) == (checkpoint, steps)
    assert all(one.equal and one.tensors == 95 for one in found.steps), found.text()
    assert any(one.loss_now != 0 for one in found.steps)


def test_a_kept_step_has_the_experts_that_the_engine_chose(alone: Path) -> None:
    for rank in range(2):
        kept = load_file(alone / "details" / "step_1" / f"rank_{rank:05d}.safetensors")
        routes_BLMK, mask_BL = kept["routes_BLMK"], kept["mask_BL"]
        assert ((routes_BLMK >= 0).all(-1).all(-1).sum(-1) + 1 == (mask_BL.cumsum(-1).argmax(-1) + 1)).all()
    for step in metrics(alone):
        assert 0 <= step["routing/changed"] <= 1e-3  # fp32 on both sides
        assert step["logprob/abs_diff_max"] <= 1e-4


def test_a_replay_of_something_else_says_what_differs(ranks: Ranks, copy: Path) -> None:
    path = copy / "details" / f"step_{STEPS - 1}" / "rank_00001.safetensors"
    tensors = load_file(path)
    tensors["advantage_BL"] = tensors["advantage_BL"] + 1e-3
    save_file(tensors, path)
    (one,) = replayed(ranks, copy, STEPS - 1).steps
    assert not one.equal
    assert one.loss_now != one.loss_then and one.grad_norm_now != one.grad_norm_then and one.different


def test_two_runs_of_one_name_at_a_time_are_refused(setup: Setup, ranks: Ranks, copy: Path) -> None:
    with StepStore(copy / "checkpoints").locked():
        assert "is in use by process" in str(failed(setup, ranks, copy.name))


@pytest.mark.parametrize("background", [True, False])
def test_a_save_that_cannot_be_written_ends_the_run_and_leaves_nothing(
    setup: Setup, ranks: Ranks, background: bool
) -> None:
    run_id = f"full-{background}".lower()
    settings: dict[str, object] = {"train.checkpoint.background": background, "train.dump_details": False}
    error = failed(setup, ranks, run_id, file_limit=1 << 20, **settings)
    assert isinstance(error, StoreError)
    checkpoints = setup.work / run_id / "checkpoints"
    assert f"cannot save {checkpoints / 'step_1'}" in str(error)
    assert "File too large" in str(error)
    assert not list(checkpoints.rglob("*.distcp"))
