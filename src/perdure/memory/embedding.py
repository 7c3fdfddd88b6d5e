"""`hash-v1`: vectors of texts without a model and without a key.

They compare texts by their words, parts of words and pairs of CJK characters, not by their meaning.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

from perdure.memory.tokens import terms_of

HASH_V1 = "hash-v1"
"""The id of this embedder, stored with each vector."""
DIMENSIONS = 384
LEXICAL_WEIGHT = 0.015
"""Of its ranks, where those of words have 1. It compares words as well, but not how rare they are: so it decides among
equals, and finds what has no word of the query."""
_PART = 0.5
_LEAST_PART, _MOST_PART = 3, 4


def hash_v1(text: str) -> list[float]:
    """The vector of a text, of length 1 (or all zeros for a text without words): the same on every machine."""
    weights: Counter[str] = Counter()
    for term, count in terms_of(text).items():
        weights[term] += count
        if term.isascii():
            word = f"^{term}$"
            for size in range(_LEAST_PART, _MOST_PART + 1):
                for at in range(len(word) - size + 1):
                    weights[word[at : at + size]] += count * _PART  # type: ignore[assignment]  # a Counter adds floats too
    vector = [0.0] * DIMENSIONS
    for feature, weight in weights.items():
        hashed = zlib.crc32(feature.encode())
        slot = (hashed * 2654435761 & 0xFFFFFFFF) % DIMENSIONS
        value = 1 + math.log(weight) if weight >= 1 else weight
        vector[slot] += value if hashed & 1 else -value
    return unit(vector)


def unit(vector: Sequence[float]) -> list[float]:
    """The vector with length 1; zeros stay zeros."""
    length = math.sqrt(math.fsum(x * x for x in vector))
    return [x / length for x in vector] if length else list(vector)


def packed(vector: Iterable[float]) -> bytes:
    """The vector as it is stored: 32-bit floats, the least significant byte first."""
    values = list(vector)
    return struct.pack(f"<{len(values)}f", *values)
