"""Building an artifact: made once per recipe, trusted only when the store has it."""

from __future__ import annotations

import json
import shutil

import pytest

from nemotron_rl.store import artifact_digest
from tasks.stage import Recipe, build, run_store
from tasks.timeline import read_timeline

RECIPE = Recipe("slice", (), {"layers": [0, 1]})


class Maker:
    """Fills the folder and counts how often it was asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, out):
        self.calls += 1
        out.mkdir()
        (out / "weights").write_text("w")
        return {"tensors": 1}


def test_an_artifact_is_made_once_per_recipe(make_settings):
    settings, make = make_settings(), Maker()
    first = build("slice", settings, RECIPE, make)
    assert build("slice", make_settings("another-run"), RECIPE, make) == first
    assert make.calls == 1
    assert first.digest == artifact_digest("slice", [], {"layers": [0, 1]})
    assert (run_store(settings).fetch(first) / "weights").read_text() == "w"
    assert run_store(settings).manifest(first).facts == {"tensors": 1}


def test_a_different_recipe_is_made_anew(make_settings):
    settings, make = make_settings(), Maker()
    first = build("slice", settings, RECIPE, make)
    others = [Recipe("slice", (), {"layers": [0]}), Recipe("slice", (first,), {"layers": [0, 1]})]
    assert len({build("slice", settings, recipe, make).digest for recipe in others} | {first.digest}) == 3
    assert make.calls == 3


def test_a_deleted_store_is_never_trusted(make_settings):
    settings, make = make_settings(), Maker()
    artifact = build("slice", settings, RECIPE, make)
    shutil.rmtree(settings.output_dir / "store")
    assert build("slice", settings, RECIPE, make) == artifact
    assert make.calls == 2


def test_a_stage_that_fails_stores_nothing_and_is_not_timed(make_settings):
    settings = make_settings()

    def fail(out):
        out.mkdir()
        (out / "half").touch()
        raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        build("slice", settings, RECIPE, fail)
    assert run_store(settings).find("slice", RECIPE.digest) is None
    assert not (settings.run_dir / "stages.jsonl").exists()


def test_a_result_in_the_store_is_not_kept_twice(make_settings):
    settings = make_settings()
    build("slice", settings, RECIPE, Maker())
    assert list((settings.run_dir / "slice").iterdir()) == []


def test_the_timeline_knows_what_was_cached_and_forgets_nothing(make_settings):
    settings, make = make_settings(), Maker()
    build("slice", settings, RECIPE, make)
    build("warmup", settings, Recipe("warmup", (), {}), make)
    build("slice", settings, RECIPE, make)
    stages = [entry.stage for entry in read_timeline(settings.run_dir)]
    assert [(stage.name, stage.cached) for stage in stages] == [("slice", True), ("warmup", False)]
    lines = (settings.run_dir / "stages.jsonl").read_text().splitlines()
    assert [json.loads(line)["stage"]["cached"] for line in lines] == [False, False, True]
