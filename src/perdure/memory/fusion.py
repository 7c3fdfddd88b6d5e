"""How what two searches found becomes one list: reciprocal ranks, then what is new and what is pinned counts a little more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

RRF_K = 60
"""score = the sum of weight / (60 + rank) over the lists that have an entry; ranks are from 0. Words have the weight 1."""
CANDIDATES = 50
"""Entries of each list that are fused."""
RECENCY = 0.05
"""An entry of this moment counts so much more than an old one."""
HALF_LIFE = 30 * 86400.0
"""Seconds after which half of that is left."""
PINNED = 1.25
"""A pinned entry counts so many times more."""


class Ranks(NamedTuple):
    """Where the two searches have an entry, from 0; None: not among their candidates."""

    text: int | None
    vector: int | None


def idf(entries: int, having: int) -> float:
    """What a term weighs that so many of the entries have."""
    return round(math.log(1 + (entries - having + 0.5) / (having + 0.5)), 6)


def ranks(text: Sequence[int], vector: Sequence[int]) -> dict[int, Ranks]:
    """The ranks of each entry that one of the lists has."""
    by_text = {no: rank for rank, no in enumerate(text)}
    by_vector = {no: rank for rank, no in enumerate(vector)}
    return {no: Ranks(by_text.get(no), by_vector.get(no)) for no in dict.fromkeys([*text, *vector])}


def reciprocal(found: Ranks, vector_weight: float) -> float:
    """The score of an entry with these ranks."""
    by_text = 0.0 if found.text is None else 1 / (RRF_K + found.text)
    return by_text if found.vector is None else by_text + vector_weight / (RRF_K + found.vector)


def recency(age: float) -> float:
    """The factor for an entry of this age in seconds."""
    return 1 + RECENCY * math.exp2(-max(0.0, age) / HALF_LIFE)


def best(scores: Mapping[int, float], k: int) -> list[int]:
    """The entries with the highest scores; of equals the newer one first."""
    return sorted(scores, key=lambda no: (-round(scores[no], 9), -no))[:k]
