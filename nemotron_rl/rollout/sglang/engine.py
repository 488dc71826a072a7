"""SGLang as an `Engine`: started by the first rank of its group as a process tree of its own, closed with it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import psutil
import torch
from torch import Tensor

from nemotron_rl.config.rollout import SamplingSettings, SglangSettings
from nemotron_rl.errors import NemotronRLError, WeightMismatch
from nemotron_rl.rollout.engine import GenerateRequest, Response
from nemotron_rl.rollout.sglang.arguments import engine_arguments, sampling_arguments
from nemotron_rl.rollout.sglang.group import EngineGroup
from nemotron_rl.rollout.sglang.message import (
    ANSWER,
    BUFFER,
    DIGESTS,
    LOADER,
    ORDER,
    Answer,
    Order,
    from_bytes,
    to_bytes,
)
from nemotron_rl.rollout.sglang.routes import MODELS, RecordedLayout
from nemotron_rl.rollout.sglang.watch import EngineWatch, end_process

_ANSWER_BYTES, _LONG_ANSWER_BYTES = 64 << 10, 64 << 20


class SglangEngine:
    """One engine of a group of ranks; every method is a collective call of the group."""

    def __init__(
        self,
        group: EngineGroup,
        stop_tokens: Sequence[int],
        arguments: Mapping[str, Any],
        routes: RecordedLayout | None = None,
    ) -> None:
        """Use `beside_trainer` or `of_checkpoint`."""
        self.group, self._stop_tokens, self._routes = group, tuple(stop_tokens), routes
        self._watch: EngineWatch | None = None
        self._engine: Any = group.lead(lambda: self._started(arguments))
        self.version: int | None = None

    @classmethod
    def beside_trainer(
        cls, folder: Path, stop_tokens: Sequence[int], settings: SglangSettings, *, seed: int, routes: bool = False
    ) -> Self:
        """An engine without weights on the GPUs of a group of ranks; with `routes` it can record experts.

        They come through `order` (see sync/colocated.py), which reaches the engine's own memory on each rank's GPU.
        """
        group = EngineGroup.of_this_rank(settings.gpus_per_engine)
        layout = RecordedLayout.of(json.loads((folder / "config.json").read_text())) if routes else None
        arguments = engine_arguments(folder, settings, seed=seed, load=False, routes=routes)
        return cls(group, stop_tokens, arguments, layout)

    @classmethod
    def of_checkpoint(cls, folder: Path, stop_tokens: Sequence[int], settings: SglangSettings, *, seed: int) -> Self:
        """An engine with the checkpoint's weights, driven by this process alone."""
        engine = cls(EngineGroup.alone(), stop_tokens, engine_arguments(folder, settings, seed=seed, load=True))
        engine.version = 0
        return engine

    @property
    def backend(self) -> Any:
        """The `sglang.Engine` itself, on the group's first rank; for measurements."""
        return self._engine

    def generate(
        self, requests: Sequence[GenerateRequest], sampling: SamplingSettings, *, routes: bool = False
    ) -> list[Response]:
        """One response per request, in order. SGLang draws with its own generator: seeds are not used.

        Raises:
            NemotronRLError: routes are asked for, but this engine was started without them.
        """
        if routes and self._routes is None:
            raise NemotronRLError("this SGLang was not started to record routes; start it with routes=True")
        if self.version is None:
            raise RuntimeError("the engine has no weights yet: sync first")
        per_rank = self.group.gather(list(requests))
        answers = self.group.lead(lambda: self._generate(per_rank, sampling, routes))
        return self.group.scatter(answers)

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Tensor]:
        """log p(token | prefix) of every token but the first, in nats, by the engine's own prefill; [len - 1] each."""
        per_rank = self.group.gather([list(sequence) for sequence in sequences])
        return self.group.scatter(self.group.lead(lambda: self._score(per_rank)))

    def order(self, order: Order, buffers: Sequence[Tensor] = (), digests: Tensor | None = None) -> Answer:
        """Have this rank's part of the engine carry out an order; tensors are shared with it, not copied.

        `buffers` are what the order's views lie in; `digests`, int64, is filled in the order of names.

        Raises:
            WeightMismatch: with what the engine's side says went wrong.
        """
        size = _LONG_ANSWER_BYTES if order.do == "describe" else _ANSWER_BYTES
        memory = torch.zeros(size, dtype=torch.uint8, device="cuda")
        named = [(ORDER, to_bytes(order.model_dump_json(), "cuda")), (ANSWER, memory)]
        named += [(f"{BUFFER}.{i:06d}", buffer) for i, buffer in enumerate(buffers)]
        named += [(DIGESTS, digests)] if digests is not None else []
        torch.cuda.synchronize()  # what the engine reads must have been written
        payloads = self.group.gather(_serialized(named))
        self.group.lead(lambda: self._update(payloads))
        answer = Answer.model_validate_json(from_bytes(memory))
        if answer.error:
            raise WeightMismatch(f"the engine could not {order.do} weights:\n{answer.error}")
        return answer

    def sleep(self) -> None:
        """Release KV cache, Mamba states and weights; weights are undefined until the next sync."""
        self.version = None
        self.group.lead(lambda: self._engine.release_memory_occupation())

    def wake(self) -> None:
        """Take the memory again."""
        self.group.lead(lambda: self._engine.resume_memory_occupation())

    def close(self) -> None:
        """End the engine's processes; a second call does nothing."""
        engine, self._engine = self._engine, None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()
        if engine is not None:
            engine.shutdown()

    def _started(self, arguments: Mapping[str, Any]) -> Any:
        before = {process.pid for process in psutil.Process().children(recursive=True)}
        engine = _start(arguments, self.group.first_gpu, MODELS if self._routes else {})
        started = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
        self._watch = EngineWatch([one for one in started if "sglang" in one.name()], end_process)
        return engine

    def _generate(
        self, per_rank: Sequence[Sequence[GenerateRequest]], sampling: SamplingSettings, routes: bool
    ) -> list[list[Response]]:
        flat = [request for requests in per_rank for request in requests]
        out = self._engine.generate(
            input_ids=[list(request.prompt) for request in flat],
            sampling_params=sampling_arguments(sampling, self._stop_tokens),
            return_logprob=True,
            return_routed_experts=routes,
        )
        layout = self._routes if routes else None
        responses = iter([_response(one, len(request.prompt), layout) for one, request in zip(out, flat, strict=True)])
        return [[next(responses) for _ in requests] for requests in per_rank]

    def _score(self, per_rank: Sequence[Sequence[list[int]]]) -> list[list[Tensor]]:
        out = self._engine.generate(
            input_ids=[sequence for sequences in per_rank for sequence in sequences],
            sampling_params={"max_new_tokens": 1, "temperature": 1.0},
            return_logprob=True,
            logprob_start_len=0,
        )
        scores = iter([torch.tensor([lp for lp, *_ in one["meta_info"]["input_token_logprobs"][1:]]) for one in out])
        return [[next(scores) for _ in sequences] for sequences in per_rank]

    def _update(self, payloads: Sequence[bytes]) -> None:
        from sglang.srt.managers.io_struct import UpdateWeightsFromTensorReqInput

        request = UpdateWeightsFromTensorReqInput(
            serialized_named_tensors=list(payloads), load_format=LOADER, flush_cache=True
        )
        call = self._engine.tokenizer_manager.update_weights_from_tensor(request, None)
        ok, message = self._engine.loop.run_until_complete(call)
        if not ok:
            raise NemotronRLError(f"SGLang refused an order about weights: {message}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(arguments: Mapping[str, Any], first_gpu: int, environment: Mapping[str, str]) -> Any:
    import os

    os.environ |= environment  # read when SGLang is imported, here and in the processes that it starts
    import sglang

    with _without_torchrun():
        return sglang.Engine(**arguments, base_gpu_id=first_gpu)


def _without_torchrun() -> contextlib.AbstractContextManager[None]:
    """The engine's processes form a group of their own; torchrun's variables would lead them into the trainer's."""
    import os

    names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK"}
    names |= {name for name in os.environ if name.startswith("TORCHELASTIC_")}

    @contextlib.contextmanager
    def hidden() -> Any:
        kept = {name: os.environ.pop(name) for name in names if name in os.environ}
        try:
            yield
        finally:
            os.environ.update(kept)

    return hidden()


def _serialized(named: Sequence[tuple[str, Tensor]]) -> bytes:
    from sglang.srt.utils import MultiprocessingSerializer
    from sglang.srt.utils.patch_torch import monkey_patch_torch_reductions

    monkey_patch_torch_reductions()  # SGLang's own: device numbers that hold in another process
    payload: bytes = MultiprocessingSerializer.serialize(list(named))
    return payload


def _response(out: dict[str, Any], prompt: int, layout: RecordedLayout | None) -> Response:
    meta = out["meta_info"]
    logprobs = [logprob for logprob, *_ in meta["output_token_logprobs"]]
    tokens = out["output_ids"]
    if len(tokens) != len(logprobs):
        raise NemotronRLError(f"SGLang gave {len(tokens)} tokens but {len(logprobs)} log-probs")
    finish: Literal["stop", "length"] = "length" if meta["finish_reason"]["type"] == "length" else "stop"
    routes = layout.decode(meta, prompt + len(tokens)) if layout is not None else None
    return Response(tuple(tokens), tuple(logprobs), finish, routes)
