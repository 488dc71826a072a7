"""Whatever is in a checkpoint's files: a clear error or the right result; nothing else, and nothing elsewhere.

Each case is a checkpoint with one to three faults, given to `inspect`, `verify` and `slice` as a user would.
"""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from itertools import count
from pathlib import Path

import boto3
import pytest
from huggingface_hub import constants
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from typer.main import get_command

from nemotron_rl.cli.app import app
from tests.checkpoint.hostile import Files, hostile_files, sound
from tests.checkpoint.hub import serving
from tests.oracles.checkpoint_files import Tensor, read_checkpoint, read_shard, sliced

LAYERS = [2, 1]
LONGEST_S = 20.0
"""Seconds for one command, on a busy machine. A sound one takes a few hundredths."""
MOST_MEMORY = 1 << 30
"""Bytes that all commands together may map, beyond what the process has when they start."""

COMMAND = get_command(app)
"""Made once: typer takes longer for it than the command for its work."""
Address = Callable[[Path], str]
"""Makes a folder available and says where."""


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """An absurd allocation becomes a MemoryError, which is a traceback, which is a failure."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + MOST_MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def run(*arguments: object, allowed: set[int]) -> Done:
    """A command of ours, which ends soon, with one of the `allowed` codes, and says why when that is not 0.

    An exception that is not caught fails the test as it is.
    """
    out, err = (TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2))
    started = time.monotonic()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        COMMAND.main(args=[str(argument) for argument in arguments], prog_name="nemotron-rl")
    done = Done(int(ended.value.code or 0), *(text.buffer.getvalue().decode() for text in (out, err)))  # type: ignore[attr-defined]
    assert time.monotonic() - started < LONGEST_S, arguments
    assert done.code in allowed, (arguments, done)
    for text in (done.out, done.err):
        assert "Traceback" not in text and "\x1b" not in text
        assert len(text) < 50_000
    assert done.code == 0 or len(done.out + done.err) > 20
    return done


@dataclass(frozen=True)
class Case:
    """A hostile checkpoint, and what a command is given beside it."""

    source: Path
    address: str
    """Of the checkpoint in `source`, as the command gets it."""
    base: Path
    """A sound one."""
    dst: Path
    """May be made by the command."""


def write(folder: Path, files: Files) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def inspects(case: Case) -> None:
    done = run("inspect", case.address, allowed={0, 2})
    assert (done.code == 0) == ("no problems" in done.out)


def scans(case: Case) -> None:
    done = run("inspect", case.address, "--scan", "--json", allowed={0, 2})
    if done.out:
        found = json.loads(done.out)
        assert (done.code == 0) == (found["problems"] == [])
        if done.code == 0:
            assert sum(found["dtypes"].values()) == len(named(case.source))


def verifies(case: Case) -> None:
    done = run("verify", case.address, case.base, allowed={0, 1, 2})
    if done.code != 2:
        assert (done.code == 0) == (named(case.source) == read_checkpoint(case.base))


def slices(case: Case) -> None:
    done = run("slice", case.address, case.dst, "--layers", ",".join(map(str, LAYERS)), allowed={0, 2})
    assert [path.name for path in case.dst.parent.iterdir()] == ([] if done.code else ["dst"])
    if done.code == 0:
        assert read_checkpoint(case.dst) == sliced(named(case.source), LAYERS, keep_mtp=has_mtp(case.source))
        config = json.loads((case.dst / "config.json").read_text())
        assert config["hybrid_override_pattern"] == "E*" and config["layers_block_type"] == ["moe", "attention"]


def has_mtp(source: Path) -> bool:
    return any(name.startswith("mtp.") for name in named(source))


COMMANDS = [inspects, scans, verifies, verifies, slices, slices, slices]


def named(folder: Path) -> dict[str, Tensor]:
    """The tensors of the files that the index names, or of the only one."""
    index = folder / "model.safetensors.index.json"
    files = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else {"model.safetensors"}
    return {name: tensor for file in files for name, tensor in read_shard(folder / file).items()}


def fuzz(cases: int, tmp_path: Path, address_of: Address) -> None:
    """Commands on many hostile checkpoints, each known as `address_of` its folder. Not shrunk: too slow."""
    base, tried = write(tmp_path / "base", sound()), 0

    @settings(
        max_examples=cases, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )  # no shrinking: slow
    @given(hostile_files(), st.sampled_from(COMMANDS))
    def attack(files: Files, command: Callable[[Case], None]) -> None:
        nonlocal tried
        tried += 1
        shutil.rmtree(tmp_path / "case", ignore_errors=True)
        source, work = tmp_path / "case" / "source", tmp_path / "case" / "work"
        work.mkdir(parents=True)
        write(source, files)
        before = contents(tmp_path)
        command(Case(source, address_of(source), base, work / "dst"))
        after = contents(tmp_path)
        assert {path: data for path, data in after.items() if not path.startswith("case/work/dst/")} == before

    attack()
    assert tried >= cases


few_or_many = pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)])


@few_or_many
def test_folders(many: bool, tmp_path: Path) -> None:
    fuzz(1700 if many else 50, tmp_path, str)


@few_or_many
def test_the_hub(many: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "case" / "source").mkdir(parents=True)
    with serving(tmp_path / "case" / "source") as hub:
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)  # both come from HF_ENDPOINT on import
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        fuzz(250 if many else 20, tmp_path, lambda source: "hf://org/name@v1")


@few_or_many
def test_s3(many: bool, tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "ACCESS_KEY_ID": "x",
        "SECRET_ACCESS_KEY": "x",
        "ENDPOINT_URL": s3,
        "ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(f"AWS_{key}", value)
    client = boto3.client("s3", endpoint_url=s3, region_name="us-east-1")
    client.create_bucket(Bucket="hostile")
    number = count(1)

    def upload(source: Path) -> str:
        # moto has no route for a key with a line break, S3 has; folders and the Hub are tried with such names.
        assume(not any("\n" in file.name for file in source.iterdir()))
        prefix = f"case-{next(number)}"
        for file in source.iterdir():
            client.put_object(Bucket="hostile", Key=f"{prefix}/{file.name}", Body=file.read_bytes())
        return f"s3://hostile/{prefix}"

    fuzz(60 if many else 4, tmp_path, upload)
