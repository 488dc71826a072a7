"""Claims about numbered results that many processes write in place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nemotron_rl.errors import InputError, StoreError
from nemotron_rl.store.steps import StepStore, file_entry


def write(store: StepStore, step: int, text: str = "weights") -> Path:
    """Commit a step of one file; the file."""
    draft = store.begin(step)
    path = draft.folder / "part" / "a"
    path.parent.mkdir()
    path.write_text(text)
    store.commit(draft, [file_entry(draft.folder, path)], inputs=["a" * 64], settings={"lr": 1.0}, facts={"x": 2})
    return path


def test_a_step_exists_once_it_is_committed(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    half = store.begin(3)
    (half.folder / "a").write_text("half")
    write(store, 2)
    assert store.complete() == [2]
    manifest = store.manifest(2)
    assert (manifest.facts, manifest.settings, manifest.inputs) == ({"x": 2, "step": 2}, {"lr": 1.0}, ("a" * 64,))
    assert (store.files(manifest) / "part" / "a").read_text() == "weights"


def test_sweeping_removes_what_is_half_written_and_nothing_else(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    kept = write(store, 2)
    (store.begin(2).folder / "b").write_text("a second writer that was killed")
    (store.begin(3).folder / "a").write_text("half")
    assert store.sweep() == [3]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept.parents[2] / "manifest.json", kept]


def test_the_last_steps_are_kept_in_numerical_order(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    for step in (8, 9, 10, 11):
        write(store, step)
    store.keep_last(3)
    assert store.complete() == [9, 10, 11]


def test_a_step_cannot_be_committed_twice(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    write(store, 1, "first")
    with pytest.raises(StoreError, match="committed by another run"):
        write(store, 1, "second")
    assert (store.files(store.manifest(1)) / "part" / "a").read_text() == "first"


@pytest.mark.parametrize(("content", "problem"), [(None, "is missing"), ("weight", "6 bytes"), ("weightz", "altered")])
def test_a_file_that_is_not_what_it_was_is_named(tmp_path: Path, content: str | None, problem: str) -> None:
    store = StepStore(tmp_path)
    path = write(store, 1)
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(StoreError, match=problem) as raised:
        store.files(store.manifest(1))
    assert str(path) in str(raised.value)


def test_each_of_several_readers_checks_its_share(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    draft = store.begin(1)
    paths = [draft.folder / name for name in "abc"]
    for path in paths:
        path.write_text(path.name)
    store.commit(draft, [file_entry(draft.folder, p) for p in paths], inputs=[], settings={}, facts={})
    paths[1].unlink()
    manifest = store.manifest(1)
    store.files(manifest, 0, 2)  # a and c
    with pytest.raises(StoreError, match="b is missing"):
        store.files(manifest, 1, 2)


def test_an_absent_step_and_a_broken_manifest_are_explained(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    write(store, 4)
    with pytest.raises(InputError, match="complete steps: 4"):
        store.manifest(3)
    (tmp_path / "step_4" / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match=r"manifest\.json is broken"):
        store.manifest(4)
    write(store, 5)
    (tmp_path / "step_5").rename(tmp_path / "step_6")
    with pytest.raises(StoreError, match="says that it is step 5"):
        store.manifest(6)


def test_only_one_process_holds_the_lock_and_it_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from nemotron_rl.store.steps import StepStore\n"
        "with StepStore(Path(sys.argv[1])).locked(): print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match=f"in use by process {holder.pid} on "), StepStore(tmp_path).locked():
        pass
    holder.kill()
    holder.wait()
    with StepStore(tmp_path).locked():
        pass
