"""Which part of a long entry a search has found."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.memory.chunks import chunks_of, said_of
from perdure.memory.tokens import terms_of
from perdure.model.memory import MemoryChunk

K1 = 1.2
"""Of BM25: the more often a word is in a chunk, the less once more counts."""


def chunk_at(text: str, weights: Mapping[str, float], nearest: int | None) -> MemoryChunk:
    """The chunk whose vector is the nearest, or without it the one that the weighted words fit best; of equals the first."""
    chunks = chunks_of(text)
    if nearest is None:
        nearest = 0
        if len(chunks) > 1:
            scores = [_score(said_of(text, chunk), weights) for chunk in chunks]
            nearest = scores.index(max(scores))
    at = min(nearest, len(chunks) - 1)
    return MemoryChunk(at + 1, len(chunks), chunks[at].start, chunks[at].end)


def _score(said: str, weights: Mapping[str, float]) -> float:
    has = terms_of(said)
    return round(sum(weight * has[term] / (has[term] + K1) for term, weight in weights.items() if term in has), 6)
