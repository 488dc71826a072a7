"""Counting the instructions of a kernel's main loop, in a made-up listing and in the digest's own machine code."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from benchmarks import digest_cost

LISTING = """
        /*0000*/                   LDG.E.64 R2, desc[UR6][R34.64+0x8] ;       /* 0x0000000c0f0c7212 */
        /*0010*/              @!P0 BRA 0x0090 ;                               /* 0x0000000c0f0c7212 */
        /*0020*/                   LDG.E.128 R20, desc[UR6][R20.64] ;         /* 0x0000000c0f0c7212 */
                                                                              /* 0x000fe200078e3cff */
        /*0030*/               @P1 LDG.E R24, desc[UR6][R24.64] ;             /* 0x0000000c0f0c7212 */
        /*0040*/                   IMAD.WIDE.U32 R2, R4, 0x7, R2 ;            /* 0x0000000c0f0c7212 */
        /*0050*/                   IMAD R2, R4, -0x7, R2 ;                    /* 0x0000000c0f0c7212 */
        /*0060*/                   IADD3.X R2, R4, RZ, R2, !PT ;              /* 0x0000000c0f0c7212 */
        /*0070*/               @P0 BRA 0x20 ;                                 /* 0x0000000c0f0c7212 */
        /*0080*/                   BRA 0x80 ;                                 /* 0x0000000c0f0c7212 */
"""


def test_the_loop_lies_between_a_branch_backwards_and_its_target() -> None:
    loop = digest_cost.main_loop(LISTING)
    assert loop.instructions.total() == 6
    assert (loop.words, loop.load_bytes, loop.per_word()) == (5, 16, 6 / 5)
    assert loop.cycles() == pytest.approx(3 / 64 / 5)  # products: 2 turns and 1


def test_code_without_a_loop_is_refused() -> None:
    with pytest.raises(ValueError, match="no loop"):
        digest_cost.main_loop(LISTING.replace("BRA 0x20 ", "BRA 0x90 "))


def test_the_digest_costs_a_fraction_of_mixing_every_word() -> None:
    ours, theirs = (
        digest_cost.main_loop(digest_cost.machine_code(digest_cost.compiled(kernel).asm["cubin"]))
        for kernel in (digest_cost.ours(16), digest_cost.murmur())
    )
    assert ours.load_bytes == 16
    assert 4 * ours.per_word() < theirs.per_word()
    assert ours.bytes_per_second() > 2 * digest_cost.MEMORY > 2 * theirs.bytes_per_second()
