"""Claims about paths that a user named."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemotron_rl.errors import InputError
from nemotron_rl.paths import check_apart, check_path


@pytest.mark.parametrize("path", [".", "absent", "absent/deeper", "file", "file/below", "dangling"])
def test_what_can_be_looked_up_passes(tmp_path, path):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    check_path(tmp_path / path)


def test_the_rest_is_refused_with_a_short_message(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for path, why in (("x" * 256, "File name too long"), ("a", "symbolic links"), ("nul\0", "null byte")):
        with pytest.raises(InputError, match=why) as caught:
            check_path(tmp_path / path)
        assert "\0" not in str(caught.value)
        assert len(str(caught.value)) < 200


def test_apart_follows_links_and_does_not_take_a_common_beginning_for_inside(tmp_path):
    source = tmp_path / "model"
    source.mkdir()
    (tmp_path / "link").symlink_to(source)
    check_apart(source, tmp_path / "model-new")
    for inside in (source, source / "x", tmp_path / "link" / "x", source / "y" / ".." / "x"):
        with pytest.raises(InputError, match="choose a folder elsewhere"):
            check_apart(source, Path(inside))
