from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import common


def options(folder: Path, quick: bool = False) -> common.Options:
    return common.Options(quick=quick, results=folder, commit="abc", command="python -m benchmarks.x")


def test_ours_and_the_reference_take_turns_and_neither_is_always_first() -> None:
    calls: list[str] = []
    values = iter([1.0, 10.0, 20.0, 3.0, 2.0, 40.0])

    def measure(who: str) -> float:
        calls.append(who)
        return next(values)

    pair = common.alternate(lambda: measure("ours"), lambda: measure("theirs"), rounds=3)
    assert calls == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert (pair.ours, pair.reference) == ((1.0, 3.0, 2.0), (10.0, 20.0, 40.0))
    assert pair.ratio == 0.1
    assert pair.ours_figure("s") == common.Figure(value=2.0, unit="s", rounds=(1.0, 3.0, 2.0))
    assert pair.reference_figure("s").value == 20.0


def test_too_few_rounds_have_no_median() -> None:
    with pytest.raises(ValueError, match="at least 3 rounds"):
        common.alternate(lambda: 1.0, lambda: 1.0, rounds=2)


def test_timed_measures_the_action() -> None:
    done: list[int] = []
    assert 0 <= common.timed(lambda: done.append(1))() < 60
    assert done == [1]


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (common.at_least(0.8, 0.8), True),
        (common.at_least(0.79, 0.8), False),
        (common.at_most(600, 600), True),
        (common.at_most(601, 600), False),
        (common.at_least(float("nan"), 0), False),
        (common.at_most(float("nan"), 0), False),
    ],
)
def test_a_goal_is_met_or_not(goal: common.Goal, met: bool) -> None:
    assert goal.met is met


def test_a_result_has_what_the_docs_are_made_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"slice": common.figure([2.0, 1.0, 3.0], "s")}
    goals = {"speed": common.at_least(0.5, 0.8), "memory": common.at_most(5, 6)}
    device = common.Device("cpu", "Some CPU, 2 cores")
    assert common.finish(options(tmp_path), "slice", device, figures, goals) == 1
    written = json.loads((tmp_path / "slice-cpu.json").read_text())
    assert written.keys() == {"name", "commit", "device", "versions", "command", "figures", "goals"}
    assert written["figures"] == {"slice": {"value": 2.0, "unit": "s", "rounds": [2.0, 1.0, 3.0]}}
    assert written["goals"] == {
        "speed": {"value": 0.5, "at_least": 0.8, "met": False},
        "memory": {"value": 5.0, "at_most": 6.0, "met": True},
    }
    assert common.Result.model_validate(written).device == "Some CPU, 2 cores"
    assert "MISSED: speed is 0.5, at least 0.8 is wanted" in capsys.readouterr().out


def test_a_smoke_test_does_not_fail_for_a_goal(tmp_path: Path) -> None:
    goals = {"speed": common.at_least(0.5, 0.8)}
    assert common.finish(options(tmp_path, quick=True), "slice", common.cpu(), {}, goals) == 0


def test_a_broken_measurement_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'speed' is nan"):
        common.finish(options(tmp_path), "slice", common.cpu(), {"speed": common.figure([float("nan")], "1")}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_smoke_test_leaves_the_kept_results_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks/slice.py", "--quick"])
    quick = common.parse(common.parser("what it measures"))
    assert quick.quick and quick.results == common.QUICK_RESULTS != common.RESULTS
    assert quick.command == "python -m benchmarks.slice --quick"
    monkeypatch.setattr(sys, "argv", ["benchmarks/slice.py", "--results", str(tmp_path), "--commit", "abc"])
    full = common.parse(common.parser("what it measures"))
    assert (full.quick, full.results, full.commit) == (False, tmp_path, "abc")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("--rounds 7 --folder /a/b --quick", "--rounds 7 --quick"),
        ("--results=/a --set x=1", "--set x=1"),
        ("--commit abc --gpus 2", "--gpus 2"),
        ("", ""),
    ],
)
def test_a_recorded_command_names_no_place_on_the_machine(given: str, kept: str) -> None:
    assert common._measured_flags(given.split()) == kept.split()
