"""What the digest's docstring says of its keys, shown for the keys that are in use."""

from __future__ import annotations

import itertools

import numpy as np

from nemotron_rl.ops import digest
from tests.oracles import digest as oracle


def test_the_constants_are_those_that_the_oracle_writes_out():
    named = ("ROWS", "COLUMNS", "KEYS", "PLACE", "LENGTH", "A", "B")
    assert [getattr(digest, name) for name in named] == [getattr(oracle, name) for name in named]


def test_one_changed_word_is_always_found():
    """d * key = 0 modulo 2^64 needs 2^64 to divide d, and mixing loses nothing."""
    assert all(number % 2 for number in (*digest.KEYS, digest.PLACE, digest.A, digest.B))


def test_two_exchanged_words_of_a_column_are_always_found():
    """They change the sum by (v - w) * (key - other); below 2^32, v - w has at most 31 factors of two."""
    assert all((one - other) % 2**33 for one, other in itertools.combinations(digest.KEYS, 2))


def test_any_set_of_flipped_highest_bits_in_a_column_is_always_found():
    """They change the sum by 2^31 * (a sum of signed keys): a float32's sign is such a bit."""
    half = len(digest.KEYS) // 2
    first, second = (signed_sums(keys) for keys in (digest.KEYS[:half], digest.KEYS[half:]))
    meeting = np.intersect1d(first, -second % 2**33)
    assert meeting.tolist() == [0]
    assert [int((sums == 0).sum()) for sums in (first, second)] == [1, 1]  # only the set of none


def test_multiplying_and_shifting_is_undone_step_by_step():
    for x in (0, 1, 2**32, 2**63, 2**64 - 1, 0x0123456789ABCDEF):
        assert unmixed(oracle.mix(x)) == x


def signed_sums(keys: tuple[int, ...]) -> np.ndarray:
    """Sums modulo 2^33 of the keys, each taken -1, 0 or 1 times."""
    sums = np.zeros(1, dtype=np.int64)
    for key in keys:
        sums = (sums[:, None] + np.array([-1, 0, 1]) * (key % 2**33)).reshape(-1)
    return sums % 2**33


def unmixed(x: int) -> int:
    """The inverse of mix: x xor (x >> 32) undoes itself, and an odd number has an inverse."""
    for factor in (digest.B, digest.A):
        x = (x ^ x >> 32) * pow(factor, -1, 2**64) % 2**64
    return x ^ x >> 32
