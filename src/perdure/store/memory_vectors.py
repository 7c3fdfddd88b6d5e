"""The vectors of long-term memory in this process: a matrix for each scope that was searched, brought up to date by what changed.

With numpy (the extra `memory`) 50,000 entries are compared in a few milliseconds; without it plain Python compares a few thousand
in that time.
"""

from __future__ import annotations

import asyncio
import heapq
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module
from typing import Any, Protocol

from perdure.model.errors import MixedDimensions
from perdure.model.memory import Ranked, ScopeHead

np: Any
try:
    np = import_module("numpy")
except ImportError:  # the extra `memory` is not installed
    np = None

MOST_BYTES = 512 * 1024 * 1024
"""Of all scopes that a process keeps; those that were used last stay."""
SCALE = 1_000_000
"""Scores are rounded to so many parts: two ways to add the same numbers give the same order."""
_LAST = 2**62
"""Above the number of any entry."""
_IN_THREAD = 1_000
"""From so many entries on they are compared in a thread."""

PORTION = 1_000
"""Vectors that are read at once: the event loop is not kept from other work for longer than that takes."""
Change = tuple[int, bytes | None]
"""The number of an entry, and its vector; None: it has none, or is not found."""
Changed = Iterable[Change]
Place = tuple[int, int]
"""Of a change in its scope: a version, and the number of an entry."""


class Matrix(Protocol):
    """The vectors of one scope."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def reserve(self, entries: int) -> None:
        """It will have so many."""
        ...

    def change(self, changed: Changed) -> None:
        """Bring it up to date."""
        ...

    def nearest(self, vector: Sequence[float], limit: int, allowed: Collection[int] | None) -> list[Ranked]:
        """The nearest, in order."""
        ...


class PythonMatrix:
    """Without np."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._rows: dict[int, array[float]] = {}

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._rows) * self._dimensions * 4

    def reserve(self, entries: int) -> None:
        """See `Matrix.reserve`."""

    def change(self, changed: Changed) -> None:
        """See `Matrix.change`."""
        for no, vector in changed:
            if vector is None:
                self._rows.pop(no, None)
            else:
                check_dimensions(vector, self._dimensions)
                self._rows[no] = array("f", vector)

    def nearest(self, vector: Sequence[float], limit: int, allowed: Collection[int] | None) -> list[Ranked]:
        """See `Matrix.nearest`."""
        weights = [(at, x) for at, x in enumerate(vector) if x]
        scores = (
            (round(sum(row[at] * x for at, x in weights) * SCALE), no)
            for no, row in self._rows.items()
            if allowed is None or no in allowed
        )
        return [Ranked(no, score / SCALE) for score, no in heapq.nlargest(limit, (s for s in scores if s[0] > 0))]


class NumpyMatrix:
    """With numpy. A row for each dimension: the vector of a query has few that are not 0, and only those are read."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._places: dict[int, int] = {}
        self._free: list[int] = []
        self._nos: Any = np.zeros(0, dtype=np.int64)  # 0: a free place
        self._rows: Any = np.zeros((dimensions, 0), dtype=np.float32)

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self._rows.nbytes)

    def change(self, changed: Changed) -> None:
        """See `Matrix.change`."""
        listed = list(changed)
        self._make_room(sum(1 for no, vector in listed if vector is not None and no not in self._places))
        places: list[int] = []
        vectors: list[bytes] = []
        for no, vector in listed:
            if vector is None:
                place = self._places.pop(no, None)
                if place is not None:
                    self._nos[place] = 0
                    self._free.append(place)
                continue
            check_dimensions(vector, self._dimensions)
            if no not in self._places:
                self._places[no] = self._free.pop()
            place = self._places[no]
            self._nos[place] = no
            places.append(place)
            vectors.append(vector)
        if vectors:
            block = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(-1, self._dimensions)
            self._rows[:, places] = block.T

    def reserve(self, entries: int) -> None:
        """See `Matrix.reserve`."""
        self._make_room(entries - len(self._places))

    def _make_room(self, wanted: int) -> None:
        if wanted <= len(self._free):
            return
        before = len(self._nos)
        after = max(before + wanted - len(self._free), before + before // 2)
        nos = np.zeros(after, dtype=np.int64)
        rows = np.zeros((self._dimensions, after), dtype=np.float32)
        nos[:before], rows[:, :before] = self._nos, self._rows
        self._nos, self._rows = nos, rows
        self._free += range(after - 1, before - 1, -1)

    def nearest(self, vector: Sequence[float], limit: int, allowed: Collection[int] | None) -> list[Ranked]:
        """See `Matrix.nearest`."""
        scores = self._scores(np.asarray(vector, dtype=np.float32))
        keep = (scores > 0.5 / SCALE) & (self._nos > 0)
        if allowed is not None:
            keep &= np.isin(self._nos, np.fromiter(allowed, dtype=np.int64))
        places = np.flatnonzero(keep)
        found = scores[places]
        if len(places) > limit:
            least = np.partition(found, len(found) - limit)[len(found) - limit]
            close = found >= least - 1 / SCALE
            places, found = places[close], found[close]
        rounded = np.rint(found.astype(np.float64) * SCALE).astype(np.int64)
        order = np.lexsort((-self._nos[places], -rounded))[:limit]
        return [Ranked(int(self._nos[places[at]]), int(rounded[at]) / SCALE) for at in order]

    def _scores(self, vector: Any) -> Any:
        used = np.flatnonzero(vector)
        if len(used) > self._dimensions // 2:
            return vector @ self._rows
        scores = np.zeros(len(self._nos), dtype=np.float32)
        part = np.empty_like(scores)
        for at in used:
            np.multiply(self._rows[at], vector[at], out=part)
            scores += part
        return scores


class ScopeVectors:
    """The matrix of a scope and an embedder. version: that of the scope whose changes it has."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.matrix: Matrix = PythonMatrix(dimensions) if np is None else NumpyMatrix(dimensions)
        self.version = 0
        self.turn = asyncio.Lock()

    async def catch_up(self, scope: ScopeHead, embedder: str, load: LoadChanges) -> None:
        """Read what changed, in portions."""
        self.matrix.reserve(scope.entries)
        place = self.version, _LAST
        while True:
            changed, place = await load(scope.no, embedder, place, PORTION)
            if len(changed) < _IN_THREAD:
                self.matrix.change(changed)
            else:
                await asyncio.to_thread(self.matrix.change, changed)
            if len(changed) < PORTION:
                break
        self.version = scope.version


class LoadChanges(Protocol):
    """Reads the entries of a scope that changed after a place, in the order of their places: the version of the scope at their
    last change, and their number."""

    async def __call__(self, scope_no: int, embedder: str, after: Place, limit: int) -> tuple[list[Change], Place]:
        """Their numbers and vectors, and the place of the last one."""
        ...


class VectorCache:
    """The vectors that a process keeps, of all scopes of a database."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], ScopeVectors] = OrderedDict()

    async def nearest(
        self,
        scopes: Sequence[ScopeHead],
        embedder: str,
        vector: Sequence[float],
        limit: int,
        allowed: Collection[int] | None,
        load: LoadChanges,
    ) -> list[Ranked]:
        """The nearest entries of these scopes. allowed: None for all."""
        found: list[Ranked] = []
        for scope in scopes:
            kept = self._of(scope.no, embedder, len(vector))
            async with kept.turn:
                if kept.version < scope.version:
                    await kept.catch_up(scope, embedder, load)
                if scope.entries < _IN_THREAD:
                    found += kept.matrix.nearest(vector, limit, allowed)
                else:
                    found += await asyncio.to_thread(kept.matrix.nearest, vector, limit, allowed)
        self._forget_some()
        return sorted(found, key=lambda r: (-r.score, -r.no))[:limit]

    def _of(self, scope_no: int, embedder: str, dimensions: int) -> ScopeVectors:
        key = scope_no, embedder
        kept = self._kept.get(key)
        if kept is None or kept.dimensions != dimensions:
            kept = self._kept[key] = ScopeVectors(dimensions)
        self._kept.move_to_end(key)
        return kept

    def _forget_some(self) -> None:
        total = sum(kept.matrix.size for kept in self._kept.values())
        while total > MOST_BYTES and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            total -= oldest.matrix.size


def check_dimensions(vector: bytes, dimensions: int) -> None:
    """Raise MixedDimensions unless a stored vector has so many."""
    if len(vector) != dimensions * 4:
        raise MixedDimensions(
            f"a stored vector has {len(vector) // 4} dimensions and the query's has {dimensions}",
            hint="vectors of different embedders cannot be compared: perdure memory reindex makes them again",
        )
