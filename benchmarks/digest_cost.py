"""What the digest's kernel costs a Hopper GPU per word, counted in its machine code: needs Triton and no GPU.

    python -m benchmarks.digest_cost

Prints, for our kernel and for one that mixes every word, the instructions of the main loop per 32-bit word, the bytes
of a load, and how many bytes a second an H200's arithmetic units could take. That bound is derived, not measured;
`benchmarks.digest` measures.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks import digest_murmur
from nemotron_rl.ops import digest_cuda

CAPABILITY = 90
SMS, CLOCK_HZ, MEMORY = 132, 1.755e9, 4.8e12
"""Of an H200, the clock below its top of 1.98 GHz and the memory's bytes per second as its maker states them."""
ISSUED, PIPE = 128, 64
"""Threads' instructions an SM starts per cycle, and how many of them on one of its two pipes for integers (CUDA C
programming guide, arithmetic instructions, compute capability 9.0)."""
WIDE = 2
"""Turns of its pipe that a 64-bit product is charged: no table says, and 1 may be true."""

_LINE = re.compile(r"/\*(?P<at>[0-9a-f]{4,})\*/\s+(?:@!?U?P\d+ )?(?P<name>[A-Z][A-Z0-9_.]*)(?P<rest>[^;]*);")


@dataclass(frozen=True)
class Kernel:
    """What to compile."""

    function: Any
    pointers: Mapping[str, str]
    constants: Mapping[str, object]
    warps: int


@dataclass(frozen=True)
class Loop:
    """The main loop of a kernel, per thread and turn."""

    instructions: Counter[str]

    @property
    def words(self) -> int:
        """32-bit words loaded."""
        return sum(count * _load_bytes(name) // 4 for name, count in self.instructions.items())

    @property
    def load_bytes(self) -> int:
        """Of the widest load."""
        return max(map(_load_bytes, self.instructions))

    def per_word(self) -> float:
        """Instructions."""
        return self.instructions.total() / self.words

    def cycles(self) -> float:
        """Of an SM per word of one thread: the scarcest of issue slots and the two integer pipes."""
        products = sum(n * (WIDE if ".WIDE" in name else 1) for name, n in self.instructions.items() if _product(name))
        others = sum(n for name, n in self.instructions.items() if not _product(name) and not _load_bytes(name))
        return max(self.instructions.total() / ISSUED, products / PIPE, others / PIPE) / self.words

    def bytes_per_second(self) -> float:
        """What an H200's arithmetic could take."""
        return 4 * SMS * CLOCK_HZ / self.cycles()


def main() -> int:
    for name, kernel in {"ours": ours(16), "ours at 4-byte addresses": ours(4), "every word mixed": murmur()}.items():
        loop = main_loop(machine_code(compiled(kernel).asm["cubin"]))
        rate = loop.bytes_per_second()
        print(
            f"{name}: {loop.per_word():.2f} instructions per word, loads of {loop.load_bytes} bytes; arithmetic for "
            f"{rate / 1e12:.1f} TB/s on an H200, {rate / MEMORY:.1f} times its memory (derived, not measured)"
        )
    return 0


def ours(aligned: int) -> Kernel:
    """The digest of the package, for addresses that `aligned` divides."""
    constants = {"ALIGNED": aligned, **digest_cuda.CONSTANTS}
    return Kernel(digest_cuda.digest_kernel, {"chunk_C4": "*i64", "out_N": "*i64"}, constants, digest_cuda.WARPS)


def murmur() -> Kernel:
    """The digest that it is compared with."""
    pointers = {"chunk_C4": "*i64", "out_N2": "*i32"}
    return Kernel(digest_murmur.murmur_kernel, pointers, digest_murmur.CONSTANTS, digest_murmur.WARPS)


def compiled(kernel: Kernel) -> Any:
    """As for a call whose pointers lie at multiples of 16 bytes, which those of torch do."""
    signature = {**kernel.pointers, **dict.fromkeys(kernel.constants, "constexpr")}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(kernel.pointers))}
    source = ASTSource(kernel.function, signature, kernel.constants, aligned)
    return triton.compile(source, target=GPUTarget("cuda", CAPABILITY, 32), options={"num_warps": kernel.warps})


def machine_code(cubin: bytes) -> str:
    """Disassembled by the tool in Triton's wheel."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "-sass", file.name], capture_output=True, text=True, check=True).stdout


def main_loop(code: str) -> Loop:
    """The loop that loads most: what lies between a branch backwards and its target.

    Raises:
        ValueError: There is no loop that loads.
    """
    lines = [(int(m["at"], 16), m["name"], m["rest"]) for m in _LINE.finditer(code)]
    loops = []
    for at, name, rest in lines:
        target = re.search(r"0x([0-9a-f]+)", rest) if name.startswith("BRA") else None
        if target and (first := int(target[1], 16)) < at:
            loops.append(Loop(Counter(inner for place, inner, _ in lines if first <= place <= at)))
    if not loops or not (most := max(loops, key=lambda loop: loop.words)).words:
        raise ValueError("the machine code has no loop that loads from memory")
    return most


def _load_bytes(name: str) -> int:
    """0 for what is no load from the GPU's memory."""
    if not name.startswith("LDG"):
        return 0
    bits = [int(part) for part in name.split(".") if part in ("64", "128")]
    return bits[0] // 8 if bits else 4


def _product(name: str) -> bool:
    """IMAD also stands for moves that the compiler put on that pipe."""
    return name.startswith("IMAD")


if __name__ == "__main__":
    sys.exit(main())
