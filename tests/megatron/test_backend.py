"""Choosing a backend, and noticing when upstream has moved what it replaces."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from nemotron_rl.megatron.backend.replacement import Replacement, apply


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("upstream_for_test")
    module.__dict__.update(old=1, Thing=type("Thing", (), {"part": 1}))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_replacement_takes_the_place_of_an_attribute(upstream: ModuleType) -> None:
    apply([Replacement("upstream_for_test", "old", 2, ""), Replacement("upstream_for_test:Thing", "part", 3, "")])
    assert (upstream.old, upstream.Thing.part) == (2, 3)


def test_an_attribute_that_upstream_no_longer_has_is_an_error_that_says_why_it_was_replaced(
    upstream: ModuleType,
) -> None:
    with pytest.raises(AttributeError, match="has no gone; it was replaced because: it was slow"):
        apply([Replacement("upstream_for_test", "gone", 2, "it was slow")])


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys, types; sys.modules['megatron.core'] = types.ModuleType('m'); activate('cpu')", "was imported"),
        ("active()", "no backend is active"),
    ],
)
def test_a_backend_must_come_first(program: str, message: str) -> None:
    code = f"from nemotron_rl.megatron.backend import activate, active; {program}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stderr
