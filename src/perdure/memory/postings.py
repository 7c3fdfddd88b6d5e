"""How much of the search terms is read, so that a search takes no longer the more entries there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from perdure.memory.fusion import CANDIDATES

MOST_READ = 6_000
"""Pairs of a term and an entry that a search reads."""
COMPLETED = 2 * CANDIDATES
"""Where it did not read all, the scores of so many entries are completed."""
COUNTED = 2_000
"""How many entries have a term is counted up to here."""
SAMPLE = 128
"""Of a term that more have, so many of the newest entries say how many."""
FEW = 1_000
"""Where tags, kind or time leave so many entries, all of their vectors are compared."""
RANKED = 200
"""Where they leave so many, the words of all of them are."""
RECENT = 100
"""Where they leave more, it ranks so many of the newest of these, next to those that rare words find."""
K = TypeVar("K")


def portions(sizes: Mapping[K, int], most: int) -> dict[K, int | None]:
    """How much of each is read; None: all of it. The smaller ones are read whole, and the larger ones share what is left. So
    rare words, which say most, are looked up among all entries, and common ones among the newest."""
    found: dict[K, int | None] = {}
    left = most
    for place, (key, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        share = left // (len(sizes) - place)
        found[key] = None if size <= share else max(1, share)
        left -= min(size, share)
    return found


def estimated(entries: int, having: int, sampled: int) -> int:
    """How many of the entries have a term that `COUNTED` have at least, and so many of the sampled ones."""
    return max(COUNTED, entries * having // max(1, sampled))
