"""The seeds of episodes, and the random streams that they start.

Episode e of a set has the seed (seed + 1) * 2**32 + e: it depends on nothing else, so that shards
and workers do not change what is drawn, and `AbacusEnv.reset(seed=...)` plays the episode again.
No episode has a seed below 2**32: an evaluation under a small seed meets none of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# The constants of numpy.random.SeedSequence, which NumPy promises never to change.
_POOL = 4
_SHIFT = np.uint32(16)
_INIT_A, _MULTIPLY_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULTIPLY_B = 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)

Words = npt.NDArray[np.uint32]


def episode_seeds(seed: int, first: int, count: int) -> npt.NDArray[np.int64]:
    """The seeds of episodes `first` to `first + count - 1`."""
    return ((seed + 1) << 32) + np.arange(first, first + count, dtype=np.int64)


def stream_starts(seeds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """(seeds, 2): where the stream of an abacus with this seed starts, and that of its detours.

    These are the words of `SeedSequence(seed).generate_state(2, uint64)`, the first of which
    starts every abacus; for all seeds at once, since one at a time takes longer than the episode.
    """
    wide = seeds.astype(np.uint64)
    words = [
        (wide & np.uint64(0xFFFFFFFF)).astype(np.uint32),
        (wide >> np.uint64(32)).astype(np.uint32),
    ]
    state = _generate(_mix_entropy(words), 4).astype(np.uint64)
    starts: npt.NDArray[np.uint64] = state[:, 0::2] | (state[:, 1::2] << np.uint64(32))
    return starts


class _Hash:
    """SeedSequence's hash: its constant moves on with every value."""

    def __init__(self, constant: int, factor: int) -> None:
        self._constant, self._factor = constant, factor

    def __call__(self, value: Words) -> Words:
        value = value ^ np.uint32(self._constant)
        self._constant = self._constant * self._factor & 0xFFFFFFFF
        value = value * np.uint32(self._constant)
        mixed: Words = value ^ (value >> _SHIFT)
        return mixed


def _mix_entropy(words: list[Words]) -> list[Words]:
    hashed = _Hash(_INIT_A, _MULTIPLY_A)
    zero = np.zeros_like(words[0])
    pool = [hashed(words[k] if k < len(words) else zero) for k in range(_POOL)]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                mixed = _MIX_LEFT * pool[target] - _MIX_RIGHT * hashed(pool[source])
                pool[target] = mixed ^ (mixed >> _SHIFT)
    return pool


def _generate(pool: list[Words], count: int) -> Words:
    hashed = _Hash(_INIT_B, _MULTIPLY_B)
    return np.stack([hashed(pool[k % _POOL]) for k in range(count)], axis=1)
