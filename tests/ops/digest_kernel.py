"""Runs the digest's Triton kernel on the CPU, in Triton's interpreter, against plain torch: `python -m` this module.

A process of its own, because the interpreter is chosen by TRITON_INTERPRET when the kernel is defined. Prints how many
tensors were compared, and ends with an error at the first that differs.
"""

from __future__ import annotations

import torch

from nemotron_rl.ops.digest import COLUMNS, TILE, as_words, digest
from nemotron_rl.ops.digest_cuda import TILES_PER_PROGRAM, prepare

CHUNK = TILES_PER_PROGRAM * TILE
SIZES = (
    *(0, 1, 2, 5, COLUMNS - 1, COLUMNS, COLUMNS + 1, 3 * COLUMNS, 7 * COLUMNS + 9, TILE - COLUMNS, TILE - 1),
    *(TILE, TILE + 1, 3 * TILE + 5 * COLUMNS + 4, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + COLUMNS, 2 * CHUNK + TILE + 3),
)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    tensors: list[torch.Tensor] = []
    for words in SIZES:
        data = torch.randint(0, 256, (4 * words + 32,), generator=generator, dtype=torch.uint8)
        # Where a tensor begins: at a multiple of 16 bytes, of 4, of 2 and of 1; ends within a word too.
        tensors += [data[first : first + 4 * words] for first in (-data.data_ptr() % 16, 4, 12)]
        tensors += [data[2 : 2 + 4 * words].view(torch.uint8), data[16 : 17 + 4 * words]]
    tensors += [
        torch.randn(3000, generator=generator).bfloat16(),
        torch.full((2 * TILE,), torch.nan),
        torch.randn(70, 90, generator=generator)[:, 1:],
    ]
    found = prepare(tensors)
    for _ in range(2):
        assert found().tolist() == [digest(tensor) for tensor in tensors]
        for tensor in tensors:  # those that are copied to be read too
            tensor.view(-1)[:1].zero_() if tensor.is_contiguous() else tensor[0].zero_()
    words = [as_words(tensor) for tensor in tensors]
    print(len(tensors), sum(one.data_ptr() % 16 != 0 for one in words))


if __name__ == "__main__":
    main()
