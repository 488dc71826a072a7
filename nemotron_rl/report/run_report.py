"""Everything a finished run has to show, as one file: `{run_dir}/report.json`. Drawn by summary.py and markdown.py."""

from __future__ import annotations

from pathlib import Path

from pydantic import AwareDatetime, ConfigDict, Field, ValidationError

from nemotron_rl.config.base import Frozen
from nemotron_rl.config.settings import Settings
from nemotron_rl.errors import DataError
from nemotron_rl.evaluate.scores import Evaluation
from nemotron_rl.gates.verdict import Verdict
from nemotron_rl.paths import check_path

REPORT_FILE = "report.json"


class StageTime(Frozen):
    """How long one stage took."""

    name: str
    """`download`, `slice`, …"""
    seconds: float = Field(ge=0)
    """Wall-clock time."""
    cached: bool = False
    """Whether its result was taken from the store."""


class ArtifactLine(Frozen):
    """Where something that the run made can be found."""

    name: str
    """What it is to the user: `sliced checkpoint`, `trained checkpoint`, `job log`."""
    uri: str
    """Address or path."""
    nbytes: int | None = Field(None, ge=0)
    """Size of all its files, if known."""


class RunReport(Frozen):
    """A finished run."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    version: str
    """Version of nemotron-rl."""
    settings: Settings
    started: AwareDatetime
    """When the run began."""
    seconds: float = Field(ge=0)
    """Wall-clock time of the whole run."""
    verdict: Verdict
    metrics: tuple[dict[str, float], ...]
    """One mapping per training step."""
    warmup: tuple[dict[str, float], ...] = ()
    """One mapping per warm-up step."""
    evaluation: Evaluation | None = None
    """None when nothing was evaluated."""
    stages: tuple[StageTime, ...] = ()
    """In the order in which they ran."""
    artifacts: tuple[ArtifactLine, ...] = ()
    """In the order in which they were made."""

    def write(self, run_dir: Path) -> Path:
        """Write `report.json` into the run's folder and return its path."""
        path = run_dir / REPORT_FILE
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, run: Path) -> RunReport:
        """Read the report of a run folder, or the file itself. Raises DataError when it is missing or broken."""
        check_path(run)
        path = run if run.is_file() else run / REPORT_FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(
                f"{run} has no report: {path.name}: {error.strerror}; a run writes it at its end"
            ) from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise DataError(f"{path} is not a report of this version: {where}: {first['msg']}") from error
