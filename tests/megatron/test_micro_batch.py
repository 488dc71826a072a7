"""How samples lie in the model's input: every token once, in order, padded only as the split over ranks needs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.rl.batch import Batch, TokenSequence, make_batch

with warnings.catch_warnings():  # megatron-core warns about every optional package that is not there
    warnings.simplefilter("ignore")
    from nemotron_rl.megatron.micro_batch import PADDING, MicroBatch, SequenceGrid, packed_row, padded_rows
    from nemotron_rl.megatron.modules.documents import context_parallel_order, document_bounds

SAMPLES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5)
LAYOUTS = {"padded": padded_rows, "packed": packed_row}


@dataclass(frozen=True)
class Place:
    """A rank's place in a context-parallel group, as far as cutting a sequence needs it."""

    ranks: int
    mine: int

    def size(self) -> int:
        return self.ranks

    def rank(self) -> int:
        return self.mine


def grid(tp: int, cp: int, rank: int = 0) -> SequenceGrid:
    return SequenceGrid(tp, Place(cp, rank) if cp > 1 else None)  # type: ignore[arg-type]


def batch_of(shapes: list[tuple[int, int]]) -> Batch:
    """Samples of prompts and responses of these lengths, whose token ids are all different."""
    sequences, first = [], 1
    for prompt, response in shapes:
        ids = tuple(range(first, first + prompt + response))
        sequences.append(TokenSequence(ids[:prompt], ids[prompt:]))
        first += prompt + response
    return make_batch(sequences, pad_token=0)


def real_tokens(micro_batch: MicroBatch) -> list[int]:
    tokens_BL, source_RS = micro_batch.batch.tokens_BL.reshape(-1), micro_batch.source_RS
    return [int(tokens_BL[place]) for place in source_RS[source_RS != PADDING]]


@pytest.mark.parametrize("layout", LAYOUTS)
@given(shapes=SAMPLES, tp=st.sampled_from([1, 2, 3]), cp=st.sampled_from([1, 2, 4]))
def test_every_token_is_in_the_input_once_and_in_order(
    layout: str, shapes: list[tuple[int, int]], tp: int, cp: int
) -> None:
    batch = batch_of(shapes)
    micro_batch = LAYOUTS[layout](batch, grid(tp, cp))
    ids = [token for token in real_tokens(micro_batch) if token]
    assert ids == list(range(1, sum(map(sum, shapes)) + 1))
    assert micro_batch.source_RS.shape[1] % (tp * cp) == 0


@given(SAMPLES, st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 4]))
def test_documents_begin_and_end_where_samples_do(shapes: list[tuple[int, int]], tp: int, cp: int) -> None:
    micro_batch = packed_row(batch_of(shapes), grid(tp, cp))
    row = micro_batch.source_RS[0]
    bounds = document_bounds(len(row), micro_batch.packed)
    assert bounds[0][0] == 0
    assert bounds[-1][1] == len(row)
    for (start, end), shape in zip(bounds, shapes, strict=False):  # the last may be padding alone
        assert (row[start:end] != PADDING).sum() == sum(shape)
        assert end - start < sum(shape) + 2 * cp
        assert (end - start) % (2 * cp if cp > 1 else 1) == 0
    assert len(bounds) - len(shapes) in (0, 1)
    assert micro_batch.packed is not None
    seq_idx = micro_batch.packed.seq_idx[0].tolist()
    assert seq_idx == [place for place, (start, end) in enumerate(bounds) for _ in range(start, end)]


@given(SAMPLES, st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]), st.integers(40, 90))
def test_a_row_of_documents_within_the_capacity_is_within_the_budget(
    shapes: list[tuple[int, int]], tp: int, cp: int, per_gpu: int
) -> None:
    there = grid(tp, cp)
    if sum(there.padded(sum(shape)) for shape in shapes) <= there.capacity(per_gpu):
        length = packed_row(batch_of(shapes), there).source_RS.shape[1]
        assert length // cp <= per_gpu


@pytest.mark.parametrize("layout", LAYOUTS)
@given(shapes=SAMPLES, tp=st.sampled_from([1, 2, 3]))
def test_collecting_undoes_placing(layout: str, shapes: list[tuple[int, int]], tp: int) -> None:
    batch = batch_of(shapes)
    micro_batch = LAYOUTS[layout](batch, grid(tp, 1))
    values_BL = torch.rand(batch.tokens_BL.shape) * (batch.tokens_BL > 0)
    assert torch.equal(micro_batch.collect(micro_batch.place(values_BL)), values_BL)
    deep = micro_batch.place(values_BL)[..., None] * torch.tensor([1.0, 2.0])
    assert torch.equal(micro_batch.collect(deep), values_BL[..., None] * torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize("layout", LAYOUTS)
@given(shapes=SAMPLES, cp=st.sampled_from([2, 4]))
def test_context_parallel_ranks_together_hold_every_token_once(
    layout: str, shapes: list[tuple[int, int]], cp: int
) -> None:
    parts = [LAYOUTS[layout](batch_of(shapes), grid(1, cp, rank)).tokens_Rs for rank in range(cp)]
    assert len({part.shape for part in parts}) == 1
    held = sorted(int(token) for part in parts for token in part.reshape(-1) if token)
    assert held == list(range(1, sum(map(sum, shapes)) + 1))


def test_each_context_parallel_rank_has_an_early_and_a_late_part_of_a_document() -> None:
    # 16 tokens over 2 ranks: chunks 0 and 3 on the first, 1 and 2 on the second, so that causal work is shared evenly.
    order = context_parallel_order(16, 2, None).tolist()
    assert order == [0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 8, 9, 10, 11]
