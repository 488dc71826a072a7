"""`nemotron-rl plan`: the table, JSON, exit codes, and what bad input says."""

from __future__ import annotations

import json

import pytest


def test_a_plan_that_fits_says_how_much_is_left(cli):
    result = cli("plan", "--preset", "nano")
    assert result.exit_code == 0, result.output
    assert "8 × H200: tp 2, pp 2, cp 1, ep 2, etp 1, dp 2" in result.stdout
    for row in ("weights", "gradients", "optimizer", "activations", "engine: KV cache", "engine: Mamba states"):
        assert row in result.stdout
    assert "✓ fits into 150 GB" in result.stdout


def test_a_plan_that_does_not_fit_says_what_is_too_large_and_what_would_fit(cli):
    result = cli("plan", "--preset", "nano", "--gpu", "h100", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert not found["fits"]
    assert "stage 0, training: needs" in found["problems"][0]
    assert found["would_fit"]
    shown = cli("plan", "--preset", "nano", "--gpu", "h100").stdout
    assert "What would fit:" in shown
    assert all(part in shown for part in found["would_fit"][0].split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "h20"], "unknown GPU 'h20' (did you mean h200?)"),
        (["--preset", "nano", "--engine-gpus", "3"], "engines of 3 GPUs do not divide the 8"),
        (["--gpu-memory", "lots"], "should be a size such as 5GB"),
        (["--source", "hf://someone/else"], "not known without downloading it"),
        (["--preset", "ultra", "--set", "parallel.tp=16"], "parallel.tp = 16"),
    ],
)
def test_bad_input_ends_with_2_and_says_what_to_do(cli, arguments, message):
    result = cli("plan", *arguments)
    assert result.exit_code == 2
    assert message in " ".join((result.stdout + result.stderr).split())
