"""Every rollout rank belongs to one engine, every replica has an engine, and work is shared out evenly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.config.load import load_settings
from nemotron_rl.rollout.distant.places import Places, shares

SIZES = st.integers(1, 12)


@given(SIZES, SIZES, SIZES)
def test_ranks_are_trainers_or_one_engines(trainers: int, engines: int, per_engine: int) -> None:
    places = Places(trainers, engines, per_engine)
    ranks = [rank for engine in range(engines) for rank in places.ranks_of(engine)]
    assert ranks == list(places.rollout_ranks)
    assert [rank for rank in range(places.world) if places.trains(rank)] == list(range(trainers))
    assert all(rank in places.ranks_of(places.engine_of(rank)) for rank in ranks)


@given(SIZES, SIZES)
def test_every_replica_has_engines_and_every_engine_replicas(engines: int, replicas: int) -> None:
    places = Places(replicas, engines)
    dealt = [places.engines_of(replica, replicas) for replica in range(replicas)]
    assert all(dealt)
    assert {engine for chosen in dealt for engine in chosen} == set(range(engines))
    if engines % replicas == 0:
        assert {len(chosen) for chosen in dealt} == {engines // replicas}
    if engines >= replicas:
        assert sum(map(len, dealt)) == engines  # nobody shares


@given(st.lists(st.integers()), SIZES)
def test_shares_are_even_and_in_order(items: list[int], parts: int) -> None:
    made = shares(items, parts)
    assert [item for part in made for item in part] == items
    assert len(made) == parts and max(map(len, made)) - min(map(len, made)) <= 1


@pytest.mark.parametrize(("engine", "per_engine"), [("reference", 1), ("sglang", 4)])
def test_settings_say_how_many_ranks_an_engine_has(engine: str, per_engine: int) -> None:
    settings = load_settings(
        "ultra-4layer",
        overrides={
            "rollout.engine": engine,
            "rollout.placement": "separate",
            "rollout.ranks": 8,
            "rollout.sglang.gpus_per_engine": 4,
            "cluster.gpus_per_node": 16,
        },
        environ={},
    )
    assert Places.of(settings) == Places(8, 8 // per_engine, per_engine)
    assert settings.train_ranks == 16
