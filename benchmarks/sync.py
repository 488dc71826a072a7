"""Weight sync from a trainer's memory into SGLang's, against the engine's own two ways, in one run.

    python -m benchmarks.sync [--num-experts 256]
    python -m torch.distributed.run --standalone --nproc-per-node 2 -m benchmarks.sync [--displaced]   # two GPUs

With more ranks the experts are spread over them, and lie where the engine wants them or, displaced, on another GPU.
The engine's per-tensor call and its flattened buckets send the same tensors through the same process.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from benchmarks import colocated, common
from nemotron_rl.rollout.sglang.engine import SglangEngine
from nemotron_rl.rollout.sglang.message import Order
from nemotron_rl.sync.colocated import ColocatedSync
from nemotron_rl.sync.push import SyncProof

ROUNDS = 5
BUCKET_BYTES = 1 << 30
QUICK = {"hidden_size": 1024, "moe_latent_size": 256, "moe_intermediate_size": 512, "vocab_size": 2048}


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--num-experts", type=int, default=256)
    parser.add_argument("--displaced", action="store_true", help="a rank has the next one's experts: all of them cross")
    parser.add_argument("--memory-fraction", type=float, default=0.35)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "nemotron-rl-sync")
    arguments = parser.parse_args()
    options = common.options_of(arguments)
    ranks = colocated.join()
    sizes = {"n_routed_experts": arguments.num_experts} | (QUICK if options.quick else {})
    specs = colocated.model_folder(arguments.folder, sizes)
    with colocated.start_engine(arguments.folder, ranks, arguments.memory_fraction, 8) as engine:
        figures, goals = measure(engine, colocated.MadeUpWeights(specs, ranks, arguments.displaced), ranks)
    code = common.finish(options, "sync", common.gpu(ranks), figures, goals) if dist.get_rank() == 0 else 0
    dist.destroy_process_group()
    return code


def measure(
    engine: SglangEngine, source: colocated.MadeUpWeights, ranks: int
) -> tuple[dict[str, common.Figure], dict[str, common.Goal]]:
    """All figures of one engine."""
    sync = ColocatedSync(source, engine)
    first = sync.push(0)
    proofs: list[SyncProof] = []
    others: dict[str, list[float]] = {"engine's buckets": []}
    if ranks == 1:  # SGLang sends one and the same list of tensors to all ranks
        others["engine's per-tensor call"] = []
    for version in range(1, ROUNDS + 1):
        source.step()
        proofs.append(sync.push(version))
        for name, seconds in others.items():
            act = buckets if name == "engine's buckets" else per_tensor
            seconds.append(timed(lambda act=act: act(engine, source)))  # type: ignore[misc]
    nbytes = first.nbytes
    copy_s, empty_s = device_copy_seconds(nbytes), empty_order_seconds(engine)
    ends = [proof.transfer_s for proof in proofs]
    figures = {
        "weights per rank": common.figure([nbytes], "B"),
        "tensors per rank": common.figure([first.tensors], "1"),
        "first push, plan and proof against the export": common.figure([first.transfer_s + first.proof_s], "s"),
        "end to end": common.figure(ends, "s"),
        "gather and flatten: what other ranks have": common.figure([proof.exchange_s for proof in proofs], "s"),
        "send": common.figure([end - p.load_s - p.exchange_s for end, p in zip(ends, proofs, strict=True)], "s"),
        "load": common.figure([proof.load_s for proof in proofs], "s"),
        "proof": common.figure([proof.proof_s for proof in proofs], "s"),
        "an empty order": common.figure(empty_s, "s"),
        "device copy of the same bytes": common.figure(copy_s, "s"),
        "rate, all ranks": common.figure([ranks * nbytes / end / 1e9 for end in ends], "GB/s"),
        **{name: common.figure(seconds, "s") for name, seconds in others.items()},
    }
    read_s = median(copy_s) / 2
    goals = {
        "GB/s end to end per GPU": common.at_least(nbytes / median(ends) / 1e9, 400),
        "GB of weights, all ranks": common.at_least(ranks * nbytes / 1e9, 25),
        "proof against one read of the weights": common.at_most(median(p.proof_s for p in proofs) / read_s, 2),
    }
    return figures, goals


def buckets(engine: SglangEngine, source: colocated.MadeUpWeights) -> None:
    """SGLang's flattened buckets of at most 1 GiB, each flattened, sent and loaded by its own loader."""
    from sglang.srt.managers.io_struct import UpdateWeightsFromTensorReqInput
    from sglang.srt.utils import MultiprocessingSerializer
    from sglang.srt.weight_sync.tensor_bucket import FlattenedTensorBucket

    def send(named: list[tuple[str, torch.Tensor]]) -> None:
        ordered = sorted(named, key=lambda item: -item[1].element_size())
        bucket = FlattenedTensorBucket(named_tensors=ordered)
        flat = {"flattened_tensor": bucket.get_flattened_tensor(), "metadata": bucket.get_metadata()}
        payloads = engine.group.gather(MultiprocessingSerializer.serialize(flat))
        request = UpdateWeightsFromTensorReqInput(
            serialized_named_tensors=payloads, load_format="flattened_bucket", flush_cache=False
        )
        engine.group.lead(lambda: _update(engine, request))

    batch: list[tuple[str, torch.Tensor]] = []
    for name, tensor in source.weights():
        batch.append((name, tensor))
        if sum(t.nbytes for _, t in batch) > BUCKET_BYTES:
            send(batch)
            batch = []
    if batch:
        send(batch)


def per_tensor(engine: SglangEngine, source: colocated.MadeUpWeights) -> None:
    """SGLang's plain call with a handle per tensor."""
    ok, message = engine.backend.update_weights_from_tensor(list(source.weights()))
    if not ok:
        raise RuntimeError(message)


def _update(engine: SglangEngine, request: object) -> None:
    call = engine.backend.tokenizer_manager.update_weights_from_tensor(request, None)
    ok, message = engine.backend.loop.run_until_complete(call)
    if not ok:
        raise RuntimeError(message)


def device_copy_seconds(nbytes: int) -> list[float]:
    """A copy on the device, in pieces of 2 GB."""
    source, target = (torch.empty(1 << 31, dtype=torch.uint8, device="cuda").zero_() for _ in range(2))
    seconds = [timed(lambda: target.copy_(source)) for _ in range(ROUNDS + 1)][1:]
    return [one * nbytes / len(source) for one in seconds]


def empty_order_seconds(engine: SglangEngine) -> list[float]:
    """An order that copies nothing: what the way to the engine and back costs."""
    return [timed(lambda: engine.order(Order(do="load"))) for _ in range(ROUNDS)]


def timed(act: Callable[[], object]) -> float:
    """Seconds, the device's work included."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
