"""One rank of a trainer: its process group, model-parallel groups and random state."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from torch.distributed.distributed_c10d import Store

from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.errors import InputError, NemotronRLError
from nemotron_rl.megatron.micro_batch import SequenceGrid


@contextlib.contextmanager
def model_parallel(
    model: ModelSettings, parallel: ParallelSettings, seed: int, side: tuple[Store, int, int] | None = None
) -> Iterator[None]:
    """Join the process group that torchrun describes, split it, and leave it in the end.

    With `side`, the store, rank and size of a group of some of its ranks only, join that one.

    Raises:
        InputError: when torchrun started another number of ranks than the settings say.
    """
    torch.set_num_threads(model.threads)
    if model.backend == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    store, rank, size = side or (None, -1, -1)  # torch's words for: as the environment says
    dist.init_process_group("gloo" if model.backend == "cpu" else "nccl", store=store, rank=rank, world_size=size)
    try:
        if dist.get_world_size() != parallel.world_size:
            raise InputError(f"parallel.world_size is {parallel.world_size}, but {dist.get_world_size()} ranks run")
        parallel_state.initialize_model_parallel(
            parallel.tp,
            parallel.pp,
            context_parallel_size=parallel.cp,
            expert_model_parallel_size=parallel.ep,
            expert_tensor_parallel_size=parallel.etp,
        )
        _seed(seed)
        yield
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def _seed(seed: int) -> None:
    """Give every generator of this rank a state that follows from the seed and the rank."""
    random.seed(f"{seed}/{dist.get_rank()}")
    np.random.seed((seed + dist.get_rank()) % 2**32)
    torch.manual_seed(seed)
    model_parallel_cuda_manual_seed(seed)


def is_first_rank() -> bool:
    """Whether this rank writes what is written once."""
    return dist.get_rank() == 0


def rank() -> int:
    """This rank among all."""
    return dist.get_rank()


def dp_rank() -> int:
    """This rank's place among data-parallel replicas."""
    rank: int = parallel_state.get_data_parallel_rank()
    return rank


def dp_size() -> int:
    """Number of data-parallel replicas."""
    size: int = parallel_state.get_data_parallel_world_size()
    return size


def sequence_grid() -> SequenceGrid:
    """How sequences are split over this rank's tensor- and context-parallel groups."""
    cp_group = parallel_state.get_context_parallel_group()
    return SequenceGrid(
        tp=parallel_state.get_tensor_model_parallel_world_size(), cp_group=cp_group if cp_group.size() > 1 else None
    )


def is_first_cp_rank() -> bool:
    """Whether this rank holds the first part of every sequence, and speaks for those that hold the others."""
    return bool(parallel_state.get_context_parallel_rank() == 0)


def sum_over_dp(values: torch.Tensor, *, with_cp: bool = False) -> torch.Tensor:
    """The sum of `values` over data-parallel replicas, on each of them; in place, and returned.

    With `with_cp` also over context-parallel ranks, for what each of these has seen a part of.
    """
    dist.all_reduce(values, group=parallel_state.get_data_parallel_group(with_context_parallel=with_cp))
    return values


def max_over_dp(value: int) -> int:
    """The largest `value` of the data-parallel replicas."""
    largest = torch.tensor(value, device=device())
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=parallel_state.get_data_parallel_group())
    return int(largest)


def largest_of_ranks(values: Mapping[str, float]) -> dict[str, float]:
    """The largest of each value over all ranks, which must name the same ones."""
    largest = torch.tensor(list(values.values()), dtype=torch.float64, device=device())
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return dict(zip(values, largest.tolist(), strict=True))


def concatenated_over_dp(tensor: torch.Tensor) -> torch.Tensor:
    """The replicas' tensors of one shape, one after the other along the first dimension."""
    parts = [torch.empty_like(tensor) for _ in range(dp_size())]
    dist.all_gather(parts, tensor, group=parallel_state.get_data_parallel_group())
    return torch.cat(parts)


def exchanged_over_dp(outgoing: Sequence[torch.Tensor], incoming: Sequence[int]) -> list[torch.Tensor]:
    """Bytes from each data-parallel replica, in host memory; `outgoing[r]` goes to replica r, from where

    `incoming[r]` bytes come. All are uint8 [n].
    """
    sizes = [len(part) for part in outgoing]
    sent = torch.cat(list(outgoing)).to(device())
    received = torch.empty(sum(incoming), dtype=torch.uint8, device=device())
    dist.all_to_all_single(received, sent, list(incoming), sizes, group=parallel_state.get_data_parallel_group())
    return list(received.cpu().split(list(incoming)))


def from_pipeline_last(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` of the last pipeline stage, on every stage; shape and dtype must be known to all. In place."""
    if parallel_state.get_pipeline_model_parallel_world_size() > 1:
        source = parallel_state.get_pipeline_model_parallel_last_rank()
        dist.broadcast(tensor, src=source, group=parallel_state.get_pipeline_model_parallel_group())
    return tensor


def device() -> torch.device:
    """Where this rank's collectives want their tensors."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def value_from_pipeline_last[T](value: T) -> T:
    """`value` of the last pipeline stage, whatever it is, on every stage."""
    result = [value]
    if parallel_state.get_pipeline_model_parallel_world_size() > 1:
        source = parallel_state.get_pipeline_model_parallel_last_rank()
        dist.broadcast_object_list(result, src=source, group=parallel_state.get_pipeline_model_parallel_group())
    return result[0]


def share_of_dp[T](items: Sequence[T], parts: int = 1) -> list[T]:
    """This data-parallel rank's consecutive part of `items`, or of each of so many equal parts of them in turn.

    Raises:
        InputError: when the items do not divide evenly, for then ranks would wait for each other for ever.
    """
    size, rest = divmod(len(items), dp_size() * parts)
    if rest:
        of_parts = f" in {parts} parts" if parts > 1 else ""
        raise InputError(f"{len(items)} items do not divide over {dp_size()} data-parallel ranks{of_parts}")
    starts = range(dp_rank() * size, len(items), dp_size() * size) if size else ()
    return [item for start in starts for item in items[start : start + size]]


def gathered_over_dp[T](items: Sequence[T]) -> list[T]:
    """The items of all data-parallel ranks, rank by rank, on each of them."""
    parts: list[list[T]] = [[] for _ in range(dp_size())]
    dist.all_gather_object(parts, list(items), group=parallel_state.get_data_parallel_group())
    return [item for part in parts for item in part]


def from_replica_leader[T](make: Callable[[], T]) -> T:
    """What `make` returns on the first rank of this model replica; it is called there only.

    All ranks of a replica must train on the same samples, and two engines may round differently.
    """
    group = parallel_state.get_model_parallel_group()
    leader = dist.get_process_group_ranks(group)[0]
    result = [make() if dist.get_rank() == leader and is_first_cp_rank() else None]
    if is_first_cp_rank():
        dist.broadcast_object_list(result, src=leader, group=group)
    if parallel_state.get_context_parallel_world_size() > 1:  # the others have model-parallel groups of their own
        cp_group = parallel_state.get_context_parallel_group()
        dist.broadcast_object_list(result, src=dist.get_process_group_ranks(cp_group)[0], group=cp_group)
    value: T = result[0]  # type: ignore[assignment]
    return value


def agreed[T](action: Callable[[], T]) -> T:
    """What `action` returns on this rank, once it has succeeded on every rank; a collective call.

    Raises:
        NemotronRLError: on every rank the one that the first failing rank met, so that none waits for another.
    """
    failure: NemotronRLError | None = None
    try:
        result = action()
    except NemotronRLError as error:
        failure = error
    failures: list[NemotronRLError | None] = [None] * dist.get_world_size()
    dist.all_gather_object(failures, failure)
    for met in failures:
        if met is not None:
            raise met
    return result


def from_first_rank[T](make: Callable[[], T]) -> T:
    """What `make` returns on the first rank, where alone it is called, on every rank.

    Raises:
        NemotronRLError: on every rank what `make` raised.
    """
    made = [agreed(lambda: make() if is_first_rank() else None)]
    dist.broadcast_object_list(made, src=0)
    value: T = made[0]  # type: ignore[assignment]
    return value
