"""Claims about progress in the terminal."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console

from nemotron_rl.report.console import RichReporter
from nemotron_rl.report.reporter import NullReporter, Reporter
from nemotron_rl.report.steps import step_text

STEP = {"step": 1, "reward/mean": 0.25, "logprob/abs_diff_max": 3e-6, "train/mtp_loss": 5.0, "time/step_s": 2.5}


def told(tell, **console) -> str:
    console = Console(file=io.StringIO(), width=120, **console)
    with RichReporter(console) as reporter:
        tell(reporter)
    return console.file.getvalue()


def run(reporter: Reporter) -> None:
    reporter.cached("download")
    with reporter.stage("train"):
        reporter.advance("train", 0, 4, "starting")
        reporter.step("train", STEP)
    reporter.note("done")


def test_without_a_terminal_there_is_one_plain_line_per_event():
    lines = told(run).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["✓", "download"],
        ["·", "train"],
        ["train", "2/4"],
        ["✓", "train"],
        ["done"],
    ]
    assert "\x1b" not in told(run)


def test_a_terminal_gets_the_same_lasting_lines_and_a_bar():
    text = told(run, force_terminal=True)
    assert "✓ train" in text and "2/4" in text and "━" in text


def test_a_stage_that_raises_is_marked_and_its_error_passes():
    def fail(reporter):
        with pytest.raises(KeyError), reporter.stage("slice"):
            raise KeyError("x")

    assert "✗ slice" in told(fail)


def test_of_warmup_steps_every_tenth_and_the_last_have_a_line():
    def warm_up(reporter):
        with reporter.stage("warmup"):
            reporter.advance("warmup", 0, 25)
            for step in range(25):
                reporter.step("warmup", {"step": step, "warmup/loss": 1.0})

    assert [line.split()[1] for line in told(warm_up).splitlines()[1:-1]] == ["10/25", "20/25", "25/25"]


def test_text_that_looks_like_markup_is_printed_as_it_is():
    assert "[bold]x[/red]" in told(lambda reporter: reporter.note("[bold]x[/red]"))


def test_advance_of_a_stage_that_does_not_run_is_ignored():
    assert told(lambda reporter: reporter.advance("slice", 1, 2)) == ""


def test_stages_may_report_from_several_threads():
    def stage(reporter, name):
        with reporter.stage(name):
            for i in range(50):
                reporter.advance(name, i, 50)

    def many(reporter):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: stage(reporter, name), "abcdefgh"))

    assert told(many, force_terminal=True).count("✓") == 8


def test_a_step_shows_only_what_it_has_and_in_one_order():
    assert step_text(STEP) == "reward 0.250  |Δlogp| max 3.0e-06  mtp  5.000    2.50 s"
    assert "mtp" not in step_text({"reward/mean": 0.1})


def test_the_null_reporter_is_silent(capsys):
    run(NullReporter())
    assert capsys.readouterr().out == ""
