from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.cover import cheapest_cover, choose_layers, requirements
from nemotron_rl.checkpoint.geometries import preset_config
from nemotron_rl.checkpoint.synth import plan_synth
from tests.oracles import checkpoint_cover as oracle


@given(st.text("ME*-", max_size=9))
def test_the_cover_is_complete_and_no_selection_is_smaller(pattern: str) -> None:
    cover = cheapest_cover(pattern)
    assert oracle.requirements(pattern) <= oracle.fulfilled(pattern, cover)
    assert len(cover) == oracle.smallest_number_of_layers(pattern)
    assert cover == tuple(sorted(set(cover)))


@pytest.mark.parametrize(
    ("preset", "cover"),
    [
        ("ultra-550b-a55b", (0, 1, 7, 8)),
        ("super-120b-a12b", (0, 1, 7, 8)),
        ("nano-30b-a3b", (0, 1, 5, 6)),
        ("nano-4b", (0, 1, 12, 13)),
        ("tiny", (0, 1, 3, 4, 5, 6)),
    ],
)
def test_the_cover_of_the_published_models(preset: str, cover: tuple[int, ...]) -> None:
    assert cheapest_cover(preset_config(preset)["hybrid_override_pattern"]) == cover


patterns_with_bytes = st.text("ME*-", min_size=1, max_size=9).flatmap(
    lambda pattern: st.tuples(
        st.just(pattern), st.lists(st.integers(1, 9), min_size=len(pattern), max_size=len(pattern))
    )
)


@given(patterns_with_bytes)
def test_the_choice_is_the_cheapest_of_all_selections(case: tuple[str, list[int]]) -> None:
    pattern, layer_bytes = case
    choice = choose_layers(pattern, layer_bytes)
    needs = oracle.requirements(pattern)
    assert set(choice.needs) == set(requirements(pattern)) == needs
    assert choice.chosen.layers == oracle.cheapest(pattern, layer_bytes, needs)
    assert choice.types_only.layers == oracle.cheapest(pattern, layer_bytes, set(pattern))
    assert choice.in_a_row.layers == oracle.cheapest_in_a_row(pattern, layer_bytes)
    for option in (choice.chosen, choice.types_only, choice.in_a_row):
        assert option.pattern == "".join(pattern[layer] for layer in option.layers)
        assert option.nbytes == sum(layer_bytes[layer] for layer in option.layers)
        assert set(option.lacks) == needs - oracle.fulfilled(pattern, option.layers)


def test_a_layer_that_is_smaller_than_its_like_is_preferred() -> None:
    assert cheapest_cover("ME*EME", [5, 5, 5, 5, 1, 1]) == (2, 3, 4, 5)


def test_bytes_and_block_types_alone_would_leave_ultras_attention_without_its_experts() -> None:
    pattern = preset_config("ultra-550b-a55b")["hybrid_override_pattern"]
    layers = plan_synth("ultra-550b-a55b").tally
    layer_bytes = [layers.by_block[letter].nbytes // layers.layers[letter] for letter in pattern]
    choice = choose_layers(pattern, layer_bytes)
    assert (choice.chosen.layers, choice.chosen.pattern) == ((0, 1, 7, 8), "ME*E")
    assert (choice.types_only.layers, choice.types_only.lacks) == ((0, 1, 7), ("*E",))
    assert (choice.in_a_row.layers, choice.in_a_row.pattern) == ((7, 8, 9, 10), "*EME")
    assert choice.types_only.nbytes < choice.chosen.nbytes == choice.in_a_row.nbytes
