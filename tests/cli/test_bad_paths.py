"""A path that the file system cannot look up is refused wherever a command takes one, and nothing is left behind."""

from __future__ import annotations

import pytest

COMMANDS = (
    "synth tiny BAD",
    "synth tiny BAD --dry-run",
    "inspect BAD",
    "slice BAD new",
    "slice TINY BAD",
    "slice TINY BAD --dry-run",
    "verify BAD TINY",
    "verify TINY BAD",
    "convert BAD new",
    "convert TINY BAD",
    "convert TINY new --config BAD",
    "convert TINY new --output-dir BAD",
    "evaluate BAD",
    "evaluate TINY --output-dir BAD",
    "plan --source BAD",
    "report BAD",
    "replay BAD 1",
    "train --source BAD",
    "train --config BAD",
    "train --output-dir BAD",
    "train --output-dir BAD --dry-run",
    "train --store file://FOLDER/BAD",
    "train --set data.train_file=BAD --set data.eval_file=BAD",
    "validate --output-dir BAD",
)
"""BAD is the path, TINY a checkpoint, FOLDER the current folder."""


@pytest.fixture
def bad(request, tmp_path):
    """A path of one kind that cannot be looked up."""
    (tmp_path / "loop").symlink_to("loop")
    return {"long": "x" * 300, "deep": "/".join(["x" * 200] * 25), "loop": "loop/x"}[request.param]


@pytest.mark.parametrize("bad", ["long", "deep", "loop"], indirect=True)
@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_refused_in_the_users_terms(cli, tiny, tmp_path, bad, command):
    before = {path.name for path in tmp_path.iterdir()}
    texts = {"BAD": bad, "TINY": str(tiny), "FOLDER": str(tmp_path)}
    result = cli(*(_filled(word, texts) for word in command.split()))
    assert result.exit_code == 2, result.output
    shown = " ".join(result.stderr.replace("│", " ").split())
    assert "File name too long" in shown or "Too many levels of symbolic links" in shown
    assert len(result.stderr.splitlines()) < 30
    assert {path.name for path in tmp_path.iterdir()} == before


def _filled(word: str, texts: dict[str, str]) -> str:
    for name, text in texts.items():
        word = word.replace(name, text)
    return word


def test_a_result_is_never_written_into_what_it_is_made_from(cli, tiny, tmp_path):
    (tmp_path / "link").symlink_to(tiny)
    before = sorted(path.name for path in tiny.iterdir())
    for command in ("slice", "convert"):
        for source, inside in ((tiny, tiny / "new"), (tmp_path / "link", tiny / "a" / "b"), (tiny, "link/new")):
            result = cli(command, source, inside)
            assert result.exit_code == 2
            assert "choose a folder elsewhere" in " ".join(result.stderr.replace("│", " ").split())
    assert sorted(path.name for path in tiny.iterdir()) == before
