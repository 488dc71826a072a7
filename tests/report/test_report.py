"""Claims about what a finished run shows."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from nemotron_rl.errors import DataError
from nemotron_rl.gates.judge import judge
from nemotron_rl.report import format as fmt
from nemotron_rl.report.facts import key_figures
from nemotron_rl.report.markdown import markdown
from nemotron_rl.report.plots import logprob_plot, render_png, reward_plot
from nemotron_rl.report.run_report import RunReport
from nemotron_rl.report.summary import summary


def drawn(report, width=110):
    console = Console(file=io.StringIO(), width=width)
    console.print(summary(report))
    return console.file.getvalue()


@pytest.fixture
def failed(report):
    metrics = [{"step": 0, "reward/mean": 0.0, "train/loss": float("nan")}]
    return report.model_copy(
        update={
            "metrics": tuple(metrics),
            "evaluation": None,
            "stages": (),
            "artifacts": (),
            "verdict": judge(report.settings.gates, metrics, None),
        }
    )


def test_the_summary_answers_every_question(report):
    text = drawn(report)
    for answer in (
        "PASSED",
        "0.120 → 0.520",
        "max 6e-06, p99 3e-06",
        "95 in each of 12 pushes, 0 differ",
        "5.2 → 4.1 nats/token",
        "from the store",
        "1 min 11 s",
        "38.7% – 78.1%",
        "s3://nightly/models/train/8f1c0a",
    ):
        assert answer in text
    assert len(text.splitlines()) < 50


def test_a_failed_run_is_drawn_with_what_failed_and_what_is_missing(failed):
    text = drawn(failed)
    assert "FAILED: logprob_abs_diff_max" in text and "train/loss is nan" in text
    assert "✗ failed" in markdown(failed)
    assert [figure.value for figure in key_figures(failed)][1:] == ["–"] * 5


def test_long_addresses_are_never_cut(report):
    uri = "s3://bucket/" + "x" * 200
    artifact = report.artifacts[0].model_copy(update={"uri": uri})
    text = drawn(report.model_copy(update={"artifacts": (artifact,)}), width=80)
    assert uri in "".join(line.strip() for line in text.splitlines())


def test_markdown_has_the_same_figures_and_whole_tables(report):
    text = markdown(report)
    for figure in key_figures(report):
        assert f"| {figure.name} | " in text
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 5
    for table in tables:
        assert len({line.count("|") for line in table}) == 1


def test_markdown_shows_awkward_text_as_it_is(report):
    artifact = report.artifacts[0].model_copy(update={"name": "a|b\n<script>"})
    assert "a\\|b &lt;script>" in markdown(report.model_copy(update={"artifacts": (artifact,)}))


def test_a_report_survives_its_file(report, failed, tmp_path):
    for written in (report, failed):
        path = written.write(tmp_path)
        assert drawn(RunReport.read(tmp_path)) == drawn(RunReport.read(path)) == drawn(written)


def test_a_run_without_a_sound_report_is_explained(tmp_path):
    with pytest.raises(DataError, match="has no report"):
        RunReport.read(tmp_path)
    (tmp_path / "report.json").write_text('{"version": "0"}')
    with pytest.raises(DataError, match="not a report of this version: settings"):
        RunReport.read(tmp_path)


def test_plots_are_pngs_with_the_gate_bound(report):
    specs = [reward_plot(report.metrics), logprob_plot(report.metrics, 1e-4)]
    assert [render_png(spec, 1.0)[:8] for spec in specs] == [b"\x89PNG\r\n\x1a\n"] * 2
    assert "gate: max ≤ 0.0001" in str(specs[1])
    assert "gate" not in str(logprob_plot(report.metrics, None))
    assert len(logprob_plot([{"step": 0, "logprob/abs_diff_max": 0.0}], None)["data"]["values"]) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (fmt.number(1.23456e-7), "1.23e-07"),
        (fmt.number(float("inf")), "∞"),
        (fmt.number(float("nan")), "nan"),
        (fmt.number(None), "–"),
        (fmt.seconds(59.94), "59.9 s"),
        (fmt.seconds(59.96), "1 min 00 s"),
        (fmt.seconds(3599.6), "1 h 00 min"),
        (fmt.seconds(7620), "2 h 07 min"),
        (fmt.size(999), "999 B"),
        (fmt.size(999_600), "1 MB"),
        (fmt.size(1_121_049_257_984), "1.12 TB"),
        (fmt.count(35_810), "35,810"),
        (fmt.count(24_593_452_800), "24.6 B"),
        (fmt.share(0.125), "12.5%"),
    ],
)
def test_numbers_are_written_for_people(text, expected):
    assert text == expected
