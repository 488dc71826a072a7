"""Cached decoding of ragged batches against one plain pass over each sequence."""

from __future__ import annotations

import random

import pytest
import torch

from nemotron_rl.config.rollout import SamplingSettings
from nemotron_rl.errors import WeightMismatch
from nemotron_rl.rollout.engine import GenerateRequest
from nemotron_rl.rollout.reference.engine import ReferenceEngine
from nemotron_rl.rollout.reference.load import folder_weights

LENGTHS = (1, 2, 3, 15, 16, 17, 33, 70)  # the tiny preset's chunk_size is 16
SAMPLING = SamplingSettings(max_new_tokens=12)


def requests(lengths: tuple[int, ...] = LENGTHS) -> list[GenerateRequest]:
    draw = random.Random(0)
    return [GenerateRequest(tuple(draw.randrange(4, 500) for _ in range(n)), seed=n) for n in lengths]


def test_logprobs_of_a_ragged_batch_are_those_of_a_plain_pass(engine: ReferenceEngine) -> None:
    asked = requests()
    for request, response in zip(asked, engine.generate(asked, SAMPLING), strict=True):
        (scores,) = engine.score([(*request.prompt, *response.tokens)])
        expected = scores[len(request.prompt) - 1 :]
        torch.testing.assert_close(torch.tensor(response.logprobs), expected, atol=1e-4, rtol=0)


def test_a_response_does_not_depend_on_the_rest_of_the_batch(engine: ReferenceEngine) -> None:
    together = engine.generate(requests(), SAMPLING)
    alone = [engine.generate([request], SAMPLING)[0] for request in requests()]
    assert [r.tokens for r in together] == [r.tokens for r in alone]


def test_equal_calls_give_equal_responses_bit_for_bit(engine: ReferenceEngine) -> None:
    assert engine.generate(requests(), SAMPLING) == engine.generate(requests(), SAMPLING)


def test_prompts_come_back_in_their_order_over_several_batches(checkpoint, engine: ReferenceEngine) -> None:
    small = ReferenceEngine.from_folder(checkpoint, stop_tokens=[3])
    small._max_batch = 3
    small.receive(folder_weights(checkpoint), version=1)
    assert [r.tokens for r in small.generate(requests(), SAMPLING)] == [
        r.tokens for r in engine.generate(requests(), SAMPLING)
    ]


def test_a_response_ends_with_its_first_stop_token_or_at_the_limit(checkpoint) -> None:
    every_third = ReferenceEngine.from_folder(checkpoint, stop_tokens=range(0, 512, 3))
    every_third.receive(folder_weights(checkpoint), version=1)
    responses = every_third.generate(requests((4,) * 30), SamplingSettings(max_new_tokens=5))
    for response in responses:
        stops = [token % 3 == 0 for token in response.tokens]
        assert not any(stops[:-1])
        assert response.finish == ("stop" if stops[-1] else "length")
        assert len(response.tokens) == 5 or response.finish == "stop"
    assert {r.finish for r in responses} == {"stop", "length"} or all(r.finish == "stop" for r in responses)


def test_nothing_is_generated_without_weights(checkpoint) -> None:
    empty = ReferenceEngine.from_folder(checkpoint, stop_tokens=[3])
    with pytest.raises(RuntimeError, match="no weights"):
        empty.generate(requests((3,)), SAMPLING)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w[:-1], "did not come"),
        (lambda w: [*w, w[0]], "came twice"),
        (lambda w: [*w, ("backbone.layers.99.norm.weight", w[0][1])], "has no place"),
        (lambda w: [(w[0][0], w[0][1][:-1]), *w[1:]], "has shape"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_leave_no_version(checkpoint, change, message: str) -> None:
    victim = ReferenceEngine.from_folder(checkpoint, stop_tokens=[3])
    with pytest.raises(WeightMismatch, match=message):
        victim.receive(change(list(folder_weights(checkpoint))), version=5)
    with pytest.raises(RuntimeError, match="no weights"):
        victim.generate(requests((3,)), SAMPLING)


def test_the_engine_keeps_its_own_copy(checkpoint) -> None:
    weights = [(name, tensor.float()) for name, tensor in folder_weights(checkpoint)]
    victim = ReferenceEngine.from_folder(checkpoint, stop_tokens=[3])
    victim.receive(weights, version=1)
    before = victim.checksums()
    for _, tensor in weights:
        tensor.zero_()
    assert victim.checksums() == before


def test_recorded_routes_do_not_depend_on_the_rest_of_the_batch(engine: ReferenceEngine) -> None:
    together = engine.generate(requests(), SAMPLING, routes=True)
    for request, response in zip(requests(), together, strict=True):
        (alone,) = engine.generate([request], SAMPLING, routes=True)
        assert response.routes is not None and alone.routes is not None
        assert response.routes.shape == (len(request.prompt) + len(response.tokens) - 1, 2, 2)
        assert torch.equal(response.routes.sort(-1).values, alone.routes.sort(-1).values)


def test_routes_come_only_when_asked_for_and_change_nothing(engine: ReferenceEngine) -> None:
    without = engine.generate(requests(), SAMPLING)
    assert all(response.routes is None for response in without)
    assert engine.generate(requests(), SAMPLING, routes=True) == without
