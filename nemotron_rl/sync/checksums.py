"""Checksums of tensors that come one after the other and are not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from nemotron_rl.ops.checksum import tensor_checksum
from nemotron_rl.ops.digest import digests


class Checksums(Protocol):
    """Takes the checksum of one tensor after the other."""

    def add(self, name: str, tensor: Tensor) -> None:
        """Of a tensor that is valid now."""
        ...

    def result(self) -> dict[str, str]:
        """By name."""
        ...


class HostChecksums:
    """`tensor_checksum`, for engines in host memory."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def add(self, name: str, tensor: Tensor) -> None:
        """See `Checksums.add`."""
        self._found[name] = tensor_checksum(tensor)

    def result(self) -> dict[str, str]:
        """See `Checksums.result`."""
        return self._found


class DigestsByName:
    """Digests that stay on the tensors' device until they are asked for."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._found: list[Tensor] = []

    def add(self, names: Sequence[str], tensors: Sequence[Tensor]) -> None:
        """Of tensors that are valid now."""
        if tensors:
            self._names += names
            self._found.append(digests(tensors))

    def result(self) -> dict[str, int]:
        """By name."""
        values = torch.cat(self._found).tolist() if self._found else []
        return dict(zip(self._names, values, strict=True))


class DeviceChecksums:
    """`ops.digest`, for engines on a GPU."""

    def __init__(self) -> None:
        self._digests = DigestsByName()

    def add(self, name: str, tensor: Tensor) -> None:
        """See `Checksums.add`."""
        self._digests.add([name], [tensor])

    def result(self) -> dict[str, str]:
        """See `Checksums.result`."""
        return {name: str(value) for name, value in self._digests.result().items()}
