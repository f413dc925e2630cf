"""Random streams in a kernel: the Mersenne twister of `random.Random`, continued from its state.

Of the same seed the draws are those of CPython, to the last bit. Making the states is not here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillover.sim.fast.compile import inlined, inner
from spillover.sim.fast.overflow.state import KernelState

WORDS = 624
SHIFT = 397
UPPER = 0x80000000
LOWER = 0x7FFFFFFF
MATRIX = 0x9908B0DF
MASK_B = 0x9D2C5680
MASK_C = 0xEFC60000


@inner
def twist(words: NDArray[np.uint32]) -> None:
    """The next 624 words in place of the last (Matsumoto & Nishimura 1998, section 2)."""
    for k in range(WORDS):
        mixed = (np.int64(words[k]) & UPPER) | (np.int64(words[(k + 1) % WORDS]) & LOWER)
        word = np.int64(words[(k + SHIFT) % WORDS]) ^ (mixed >> 1)
        if mixed & 1:
            word ^= MATRIX
        words[k] = np.uint32(word)


@inlined
def _tempered(word: int) -> int:
    word ^= word >> 11
    word ^= (word << 7) & MASK_B
    word ^= (word << 15) & MASK_C
    return word ^ (word >> 18)


@inlined
def _word(s: KernelState, x: int) -> int:
    """32 random bits of cluster x."""
    cluster = s.clusters[x]
    if cluster.twister_at >= WORDS:
        twist(s.twisters[x])
        cluster.twister_at = 0
    word: Any = np.int64(s.twisters[x, cluster.twister_at])
    cluster.twister_at += 1
    return _tempered(word)


@inner
def draw(s: KernelState, x: int) -> float:
    """Uniform in [0, 1) with 53 bits, as `random.Random.random`."""
    upper = _word(s, x) >> 5
    lower = _word(s, x) >> 6
    return (upper * 67108864.0 + lower) * (1.0 / 9007199254740992.0)
