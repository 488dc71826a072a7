"""The formula of nemotron_rl/ops/digest.py on Python's integers, a word at a time, with its constants written out."""

from __future__ import annotations

import struct

ROWS, COLUMNS = 16, 512
KEYS = (
    *(0xE220A8397B1DCDAF, 0x6E789E6AA1B965F5, 0x06C45D188009454F, 0xF88BB8A8724C81ED),
    *(0x1B39896A51A8749B, 0x53CB9F0C747EA2EB, 0x2C829ABE1F4532E1, 0xC584133AC916AB3D),
    *(0x3EE5789041C98AC3, 0xF3B8488C368CB0A7, 0x657EECDD3CB13D09, 0xC2D326E0055BDEF7),
    *(0x8621A03FE0BBDB7B, 0x8E1F7555983AA92F, 0xB54E0F1600CC4D19, 0x84BB3F97971D80AB),
)
PLACE, LENGTH = 0x7D29825C75521255, 0xC3CF17102B7F7F87
A, B = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
MODULUS = 1 << 64


def slow_digest(data: bytes) -> int:
    """As a signed number."""
    sums: dict[int, int] = {}
    padded = data + b"\0" * (-len(data) % 4)
    for index, word in enumerate(struct.unpack(f"<{len(padded) // 4}I", padded)):
        tile, place = divmod(index, ROWS * COLUMNS)
        row, column = divmod(place, COLUMNS)
        column += tile * COLUMNS
        sums[column] = sums.get(column, column * PLACE) + word * KEYS[row]
    total = sum(map(mix, sums.values())) + mix(len(data) ^ LENGTH)
    return struct.unpack("<q", struct.pack("<Q", total % MODULUS))[0]


def mix(x: int) -> int:
    """A permutation of the 64-bit numbers."""
    x %= MODULUS
    x = (x ^ x >> 32) * A % MODULUS
    x = (x ^ x >> 32) * B % MODULUS
    return x ^ x >> 32
