"""Log lines come whole, once and in order, however the file grows and however it is read."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.cluster.files import attempts, locked, read_json, read_lines, write_json
from nemotron_rl.errors import InputError

_TEXT = st.text(alphabet="ab\n\ré€😀", max_size=30)


@given(parts=st.lists(_TEXT, max_size=8), cuts=st.lists(st.integers(0, 200), max_size=8), chunk=st.integers(1, 20))
def test_reading_while_the_log_grows_gives_exactly_the_log(parts: list[str], cuts: list[int], chunk: int) -> None:
    whole = "".join(parts).encode()
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    got, offset = [], 0
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        for start, end in itertools.pairwise(edges):  # a cut may split a character
            with log.open("ab") as out:
                out.write(whole[start:end])
            while (read := read_lines(log, offset, chunk=chunk))[0]:
                assert read[0].endswith("\n")
                got.append(read[0])
                offset = read[1]
        while (read := read_lines(log, offset, to_end=True, chunk=chunk))[0]:
            got.append(read[0])
            offset = read[1]
    assert "".join(got) == whole.decode()
    assert offset == len(whole)


def test_a_log_that_is_not_there_yet_has_nothing_new(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "log", 7) == ("", 7)


def test_bytes_that_are_not_text_are_marked_and_do_not_shift_the_offset(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a\xff\nb\n")
    assert read_lines(tmp_path / "log", 0) == ("a\ufffd\nb\n", 5)


def test_json_is_replaced_whole(tmp_path: Path) -> None:
    assert read_json(tmp_path / "x.json") is None
    write_json(tmp_path / "x.json", {"a": 1})
    write_json(tmp_path / "x.json", {"a": 2})
    assert read_json(tmp_path / "x.json") == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_attempts_are_ordered_by_number_and_not_by_name(tmp_path: Path) -> None:
    for name in ("job-9.exit", "job-10.exit", "job-2.log", "job-x.exit"):
        (tmp_path / name).touch()
    assert attempts(tmp_path, ".exit") == [9, 10]


def test_a_folder_that_cannot_be_made_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="choose a"), locked(tmp_path / "file" / "work"):
        pass
