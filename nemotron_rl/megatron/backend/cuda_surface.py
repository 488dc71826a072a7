"""The part of torch.cuda that megatron-core calls without asking whether CUDA is there, answered by the CPU.

Only for a process whose backend is `cpu`; a process with CUDA never imports this.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch._dynamo

_FACTORIES = ("tensor", "zeros", "ones", "empty", "full", "arange", "rand", "randn")


def stand_in() -> None:
    """Replace the functions; afterwards `device="cuda"` means the CPU in this process.

    Raises:
        RuntimeError: when this process has a CUDA device: the backend would hide it.
    """
    if torch.cuda.is_available():
        raise RuntimeError("backend 'cpu' was asked for on a machine with CUDA; hide it with CUDA_VISIBLE_DEVICES=''")
    torch._dynamo.config.disable = True  # megatron's jit fuser would compile small functions: 26 s in the first step
    _replace_device_functions()
    _replace_stream_functions()
    for name in _FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))


class CpuEvent:
    """An event on a device that finishes each operation before it returns."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def record(self, *_: object) -> None: ...

    def wait(self, *_: object) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        """Whether it is over: always."""
        return True

    def elapsed_time(self, _: object) -> float:
        """Milliseconds to another event: not measured."""
        return 0.0


class CpuStream(CpuEvent):
    """The only stream."""

    device = torch.device("cpu")

    def wait_stream(self, _: object) -> None: ...

    def wait_event(self, _: object) -> None: ...

    def record_event(self, event: CpuEvent | None = None) -> CpuEvent:
        """The event, or a new one."""
        return event or CpuEvent()


def _replace_device_functions() -> None:
    # One function object per name: torch.compile's rule table refuses an object that it meets under two names.
    cuda: Any = torch.cuda
    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect"):
        setattr(cuda, name, lambda *_, **__: None)
    cuda.current_device = lambda: torch.device("cpu")
    cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    cuda.manual_seed = lambda seed: torch.manual_seed(seed) and None
    tensor: Any = torch.Tensor
    module: Any = torch.nn.Module
    tensor.cuda = lambda self, *_, **__: self
    module.cuda = lambda self, *_, **__: self


def _replace_stream_functions() -> None:
    cuda: Any = torch.cuda
    tensor: Any = torch.Tensor
    stream = CpuStream()
    cuda.Stream, cuda.Event = CpuStream, CpuEvent
    cuda.current_stream = lambda *_, **__: stream
    cuda.default_stream = lambda *_, **__: stream
    cuda.stream = lambda _: contextlib.nullcontext()
    tensor.record_stream = lambda self, _: None


def _on_cpu(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`make` with a CUDA device read as the CPU: megatron writes device="cuda" in clip_grads and elsewhere."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        if "cuda" in str(kwargs.get("device")):
            kwargs["device"] = "cpu"
        return make(*args, **kwargs)

    return made


def with_cuda_type_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, inside which `Tensor.type()` answers torch.cuda.FloatTensor for torch.FloatTensor.

    megatron-core tells parameters apart by that name and knows only the CUDA ones.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _cuda_type_names():
            return function(*args, **kwargs)

    return wrapper


def _cuda_type_names() -> AbstractContextManager[None]:
    @contextlib.contextmanager
    def renamed() -> Iterator[None]:
        tensor: Any = torch.Tensor
        original = tensor.type

        def type_name(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            answer = original(self, *args, **kwargs)
            return answer if args or kwargs else answer.replace("torch.", "torch.cuda.")

        tensor.type = type_name
        try:
            yield
        finally:
            tensor.type = original

    return renamed()
