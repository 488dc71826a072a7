"""Tasks: what a run found, as files in its folder, as an artifact in the store and in the Prefect UI."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from nemotron_rl import __version__
from nemotron_rl.config.base import Frozen
from nemotron_rl.config.settings import Settings
from nemotron_rl.evaluate.scores import Evaluation
from nemotron_rl.gates.measures import Metrics
from nemotron_rl.gates.verdict import Verdict
from nemotron_rl.jobs.requests import METRICS_FILE
from nemotron_rl.report.markdown import markdown
from nemotron_rl.report.metrics import read_metrics
from nemotron_rl.report.plots import logprob_plot, render_png, reward_plot
from nemotron_rl.report.run_report import ArtifactLine, RunReport
from nemotron_rl.store import Artifact, ArtifactStore
from tasks.artifacts import show_plot, show_report, show_steps
from tasks.evaluate import EVALUATION_FILE
from tasks.policy import HOUR, stage_task
from tasks.stage import Facts, Recipe, build, fresh_folder, run_store, running
from tasks.timeline import read_timeline

STAGE = "publish"
MARKDOWN_FILE = "report.md"


class Results(Frozen):
    """The artifacts of a run."""

    prompts: Artifact
    sliced: Artifact
    converted: Artifact | None
    """None: the trainer loaded the Hugging Face layout."""
    warmed_up: Artifact | None
    """None: there was no warm-up."""
    trained: Artifact
    scores: Artifact

    @property
    def base(self) -> Artifact:
        """The Hugging Face checkpoint that RL started from."""
        return self.warmed_up or self.sliced


@stage_task(STAGE, retries=2, delay_s=5, timeout_s=HOUR)
def publish(verdict: Verdict, results: Results, settings: Settings) -> RunReport:
    """Write `report.json`, `report.md` and the plots into the run's folder, store them, and show them in Prefect."""
    store, run_dir = run_store(settings), settings.run_dir
    report = run_report(store, verdict, results, settings)

    def make(out: Path) -> Facts:
        fresh_folder(out)
        report.write(run_dir)
        (run_dir / MARKDOWN_FILE).write_text(markdown(report), encoding="utf-8")
        plots = draw(report.metrics, settings, run_dir)
        for file in (report.write(out), run_dir / MARKDOWN_FILE, *plots):
            (out / file.name).write_bytes(file.read_bytes())
        link_checkpoint(store, results.base, run_dir, "base")
        link_checkpoint(store, results.trained, run_dir, "trained")
        show_report(report)
        return {"passed": verdict.passed}

    made = {name: artifact for name, artifact in results if artifact is not None}
    told: Facts = {"run_id": settings.run_id, "seconds": report.seconds}  # a report is new each time: it tells the time
    build(STAGE, settings, Recipe("report", tuple(made.values()), told), make)
    return report


@stage_task("publish-training", retries=2, delay_s=5, timeout_s=HOUR)
def publish_training(trained: Artifact, settings: Settings) -> Path:
    """Show what training alone found, and return the trained checkpoint's folder."""
    with running(STAGE, settings):
        store = run_store(settings)
        draw(read_metrics(store.fetch(trained) / METRICS_FILE), settings, settings.run_dir)
        return link_checkpoint(store, trained, settings.run_dir, "trained")


def run_report(store: ArtifactStore, verdict: Verdict, results: Results, settings: Settings) -> RunReport:
    """Everything that the run has to show."""
    timeline = read_timeline(settings.run_dir)
    started = min(entry.started for entry in timeline)
    warmup = read_metrics(store.fetch(results.warmed_up) / METRICS_FILE) if results.warmed_up else []
    return RunReport(
        version=__version__,
        settings=settings,
        started=started,
        seconds=(datetime.now(UTC) - started).total_seconds(),
        verdict=verdict,
        metrics=tuple(dict(step) for step in read_metrics(store.fetch(results.trained) / METRICS_FILE)),
        warmup=tuple(dict(step) for step in warmup),
        evaluation=Evaluation.read(store.fetch(results.scores) / EVALUATION_FILE),
        stages=tuple(entry.stage for entry in timeline),
        artifacts=_artifact_lines(store, results, settings),
    )


def draw(metrics: list[Metrics] | tuple[Metrics, ...], settings: Settings, run_dir: Path) -> list[Path]:
    """Draw reward and log-prob difference over steps into the run's folder, and show them."""
    show_steps(metrics)
    plots = {
        "reward": (reward_plot(metrics), "Mean reward over training steps"),
        "logprob": (
            logprob_plot(metrics, settings.gates.logprob_abs_diff_max),
            "Log-prob difference between trainer and engine over training steps",
        ),
    }
    files = []
    for name, (plot, description) in plots.items():
        png = render_png(plot)
        files.append(run_dir / f"{name}.png")
        files[-1].write_bytes(png)
        show_plot(f"{name}-plot", png, description)
    return files


def link_checkpoint(store: ArtifactStore, artifact: Artifact, run_dir: Path, name: str) -> Path:
    """Make `{run_dir}/checkpoints/{name}` lead to the artifact's files."""
    link = run_dir.absolute() / "checkpoints" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(store.fetch(artifact))
    return link


def _artifact_lines(store: ArtifactStore, results: Results, settings: Settings) -> tuple[ArtifactLine, ...]:
    names = {
        "prompts": results.prompts,
        "sliced checkpoint": results.sliced,
        "converted checkpoint": results.converted,
        "warmed-up checkpoint": results.warmed_up,
        "trained checkpoint": results.trained,
        "evaluation": results.scores,
    }
    stored = [
        ArtifactLine(name=name, uri=artifact.uri, nbytes=store.manifest(artifact).size)
        for name, artifact in names.items()
        if artifact is not None
    ]
    return (*stored, ArtifactLine(name="run folder", uri=str(settings.run_dir)))
