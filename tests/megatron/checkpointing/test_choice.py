"""Claims about which checkpoint a run goes on from. No training: manifests only."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nemotron_rl.config.fields import leaves
from nemotron_rl.config.load import load_settings
from nemotron_rl.config.settings import Settings
from nemotron_rl.errors import InputError, StoreError
from nemotron_rl.megatron.checkpointing.choice import check_resume, choose
from nemotron_rl.megatron.checkpointing.record import FREE, Record, check_resumable, trajectory
from nemotron_rl.store.manifest import Manifest
from nemotron_rl.store.steps import StepStore, file_entry

INPUTS = ("a" * 64, "b" * 64)


def settings(**changes: object) -> Settings:
    return load_settings(
        "tiny", overrides={"run_id": "x", **{k.replace("__", "."): v for k, v in changes.items()}}, environ={}
    )


def save(store: StepStore, step: int, made_by: Settings, inputs: tuple[str, ...] = INPUTS, **facts: object) -> None:
    draft = store.begin(step)
    (draft.folder / "a").write_text("weights")
    record = Record(
        step=step, sampler_position=step * 16, resume=str(made_by.train.resume), parallel=made_by.parallel
    ).model_dump(mode="json")
    store.commit(
        draft,
        [file_entry(draft.folder, draft.folder / "a")],
        inputs=inputs,
        settings=trajectory(made_by),
        facts={**record, **facts},
    )


@pytest.fixture
def own(tmp_path: Path) -> StepStore:
    store = StepStore(tmp_path / "x" / "checkpoints")
    for step in (3, 6, 9):
        save(store, step, settings())
    return store


@pytest.fixture
def other(tmp_path: Path) -> StepStore:
    store = StepStore(tmp_path / "y" / "checkpoints")
    for step in (2, 4):
        save(store, step, settings())
    return store


def chosen(store: StepStore, resume: object) -> tuple[Path, int] | None:
    found = choose(store, settings(train__resume=resume), INPUTS)
    return None if found is None else (found.store.root, found.record.step)


def test_auto_takes_the_newest_complete_one(own: StepStore) -> None:
    (own.begin(12).folder / "a").write_text("killed while it was written")
    assert chosen(own, "auto") == (own.root, 9)
    assert own.complete() == [3, 6, 9]
    assert not (own.root / "step_12").exists()


def test_without_a_checkpoint_training_starts_at_step_0(tmp_path: Path) -> None:
    assert chosen(StepStore(tmp_path), "auto") is None


def test_none_starts_again_and_leaves_nothing_behind_that_would_be_in_the_way(own: StepStore) -> None:
    assert chosen(own, "none") is None
    assert own.complete() == []


def test_a_step_rewinds_the_run_once(own: StepStore) -> None:
    assert chosen(own, 6) == (own.root, 6)
    assert own.complete() == [3, 6]
    save(own, 7, settings(train__resume=6))
    assert chosen(own, 6) == (own.root, 7)  # the same job, started again


@pytest.mark.parametrize("form", ["run", "folder", "step"])
def test_another_run_is_taken_over_once(own: StepStore, other: StepStore, form: str) -> None:
    path = {"run": other.root.parent, "folder": other.root, "step": other.root / "step_4"}[form]
    assert chosen(own, str(path)) == (other.root, 4)
    assert own.complete() == []
    save(own, 5, settings(train__resume=str(path)))
    assert chosen(own, str(path)) == (own.root, 5)
    assert other.complete() == [2, 4]


def test_what_is_not_there_is_refused_and_nothing_is_deleted(own: StepStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="complete steps: 3, 6, 9"):
        chosen(own, 5)
    with pytest.raises(InputError, match="nowhere: it does not exist"):
        chosen(own, str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="there is no complete checkpoint"):
        chosen(own, str(tmp_path))
    assert own.complete() == [3, 6, 9]


def test_what_is_not_there_can_be_known_beforehand(own: StepStore, other: StepStore, tmp_path: Path) -> None:
    run_dir = own.root.parent
    gone = str(other.root / "step_4")
    for there in ("auto", "none", 6, gone, str(other.root), str(other.root.parent)):
        check_resume(run_dir, settings(train__resume=there))
    for missing in (5, str(tmp_path / "nowhere"), str(tmp_path), str(other.root / "step_5")):
        with pytest.raises(InputError):
            check_resume(run_dir, settings(train__resume=missing))
    assert (own.complete(), other.complete()) == ([3, 6, 9], [2, 4])
    save(own, 10, settings(train__resume=gone))
    other.remove(4)
    check_resume(run_dir, settings(train__resume=gone))  # the job would go on from step 10


def test_a_checkpoint_of_a_newer_format_or_beyond_the_last_step_is_refused(tmp_path: Path) -> None:
    store = StepStore(tmp_path)
    save(store, 50, settings())
    with pytest.raises(InputError, match=r"beyond train\.steps = 40"):
        chosen(store, "auto")
    save(store, 51, settings(), version=2)
    with pytest.raises(StoreError, match="has format 2"):
        chosen(store, "auto")


def test_settings_that_change_what_is_computed_are_refused_by_name(own: StepStore) -> None:
    manifest = own.manifest(9)
    changed = settings(algorithm__clip_high=0.5, train__optimizer__beta2=0.9, seed=7)
    with pytest.raises(InputError) as refused:
        check_resumable(manifest, changed, INPUTS, "here")
    for name in ("algorithm.clip_high = 0.28 there, 0.5 in this run", "train.optimizer.beta2", "seed = 0 there, 7"):
        assert name in str(refused.value)


def older(manifest: Manifest, without: tuple[str, ...] = (), **others: object) -> Manifest:
    """The manifest as a version wrote it that did not know some settings, and knew or allowed others."""
    kept = {path: value for path, value in manifest.settings.items() if path not in without}
    return manifest.model_copy(update={"settings": kept | {name.replace("__", "."): v for name, v in others.items()}})


# One of each kind, a whole section too.
NEW = ("algorithm.entropy_coef", "algorithm.report_entropy", "train.moe.routing_replay", "train.moe.expert_bias")


def test_settings_that_are_newer_than_the_checkpoint_count_as_their_defaults(own: StepStore) -> None:
    manifest = older(own.manifest(9), without=NEW)
    assert len(manifest.settings) == len(own.manifest(9).settings) - len(NEW)
    check_resumable(manifest, settings(), INPUTS, "here")
    with pytest.raises(InputError) as refused:
        check_resumable(manifest, settings(algorithm__entropy_coef=0.1), INPUTS, "here")
    assert "algorithm.entropy_coef = 0.0 there, 0.1 in this run" in str(refused.value)
    assert str(refused.value).count(" there, ") == 1


@pytest.mark.parametrize("path", sorted(trajectory(settings())))
def test_any_setting_may_be_new(own: StepStore, path: str) -> None:
    manifest, default = own.manifest(9), leaves()[path].get_default()
    same = manifest.settings[path] == json.loads(json.dumps(default, default=str))
    if same:
        check_resumable(older(manifest, without=(path,)), settings(), INPUTS, "here")
    else:  # the preset has another value than the default that an older version went by
        with pytest.raises(InputError, match=rf"{re.escape(path)} = "):
            check_resumable(older(manifest, without=(path,)), settings(), INPUTS, "here")


def test_settings_and_values_that_are_no_more_are_refused_by_name(own: StepStore) -> None:
    manifest = older(own.manifest(9), algorithm__forgotten=3, algorithm__name="abandoned", train__optimizer="one word")
    with pytest.raises(InputError) as refused:
        check_resumable(manifest, settings(), INPUTS, "here")
    for line in (
        "algorithm.forgotten = 3 there, which this version does not know",
        "algorithm.name = 'abandoned' there, 'grpo' in this run",
        "train.optimizer = 'one word' there, which this version does not know",
    ):
        assert line in str(refused.value)
    assert str(refused.value).count(" there, ") == 3


def test_settings_that_do_not_are_not(own: StepStore) -> None:
    free = settings(
        train__steps=60, parallel__world_size=2, train__micro_batch_size=4, train__checkpoint__every=1, cluster__nodes=1
    )
    check_resumable(own.manifest(9), free, INPUTS, "here")


def test_the_number_of_steps_matters_where_the_learning_rate_depends_on_it() -> None:
    assert "train.steps" not in trajectory(settings())
    assert trajectory(settings(train__optimizer__decay="cosine"))["train.steps"] == 40


def test_another_model_or_other_prompts_are_refused(own: StepStore) -> None:
    with pytest.raises(InputError, match="trained from another starting model"):
        check_resumable(own.manifest(9), settings(), ("c" * 64, "b" * 64), "here")
    with pytest.raises(InputError, match="other prompts"):
        check_resumable(own.manifest(9), settings(), ("a" * 64, "c" * 64), "here")


def test_what_may_change_are_settings_that_exist() -> None:
    for name in FREE:
        assert any(path == name or path.startswith(f"{name}.") for path in leaves()), name
