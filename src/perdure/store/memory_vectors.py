"""The vectors of long-term memory in this process: a matrix for each scope that was searched, brought up to date by what changed.

With numpy (the extra `memory`) 50,000 entries are compared in a few milliseconds; without it plain Python compares a few thousand
in that time.
"""

from __future__ import annotations

import asyncio
import heapq
from array import array
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from perdure.model.errors import MixedDimensions
from perdure.model.memory import Ranked, ScopeHead

np: Any
try:
    np = import_module("numpy")
except ImportError:  # the extra `memory` is not installed
    np = None

MOST_BYTES = 512 * 1024 * 1024
"""Of all scopes that a process keeps; those that were used last stay."""
ALL = 2**31 - 1
"""More than there are."""
LOOKED_AT = (16, 64)
"""Where many entries count: so many times more of the nearest are looked at than are wanted, before all that count are read."""
ASKED = 3
"""Searches of a scope by a process for which a database that has pgvector compares; then the process reads the vectors."""
SCALE = 1_000_000
"""Scores are rounded to so many parts: two ways to add the same numbers give the same order."""
ERROR = 100 / SCALE
"""More than sums of 32-bit floats are wrong. The best by such sums are added again with 64 bits, so that their order does not
depend on the order of the additions."""
_LAST = 2**62
"""Above the number of any entry."""
_IN_THREAD = 1_000
"""From so many entries on they are compared in a thread."""

PORTION = 1_000
"""Vectors that are read at once: the event loop is not kept from other work for longer than that takes."""


class Change(NamedTuple):
    """The number of an entry, and the vector of one of its chunks; None: it has none, or is not found. Those of an entry come
    one after the other, from chunk 0."""

    no: int
    chunk: int
    vector: bytes | None


class Place(NamedTuple):
    """Of a change in its scope."""

    version: int
    no: int
    chunk: int


Changed = Iterable[tuple[int, int, bytes | None]]


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
        """The nearest entries, in order, each with the chunk that is nearest."""
        ...


class PythonMatrix:
    """Without np."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._rows: dict[int, list[array[float]]] = {}

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self._rows.values())) * self._dimensions * 4

    def reserve(self, entries: int) -> None:
        """See `Matrix.reserve`."""

    def change(self, changed: Changed) -> None:
        """See `Matrix.change`."""
        for no, chunk, vector in changed:
            if chunk == 0:
                self._rows.pop(no, None)
            if vector is not None:
                check_dimensions(vector, self._dimensions)
                self._rows.setdefault(no, []).append(array("f", vector))

    def nearest(self, vector: Sequence[float], limit: int, allowed: Collection[int] | None) -> list[Ranked]:
        """See `Matrix.nearest`."""
        weights = [(at, x) for at, x in enumerate(array("f", vector)) if x]
        return best_of(
            (
                (no, chunk, round(sum(row[at] * x for at, x in weights) * SCALE))
                for no, rows in self._rows.items()
                if allowed is None or no in allowed
                for chunk, row in enumerate(rows)
            ),
            limit,
        )


def exact_score(wanted: array[float], vector: bytes) -> int:
    """The cosine, in parts of `SCALE`. Raises MixedDimensions."""
    check_dimensions(vector, len(wanted))
    return round(sum(x * y for x, y in zip(wanted, array("f", vector), strict=True) if x) * SCALE)


def best_of(scores: Iterable[tuple[int, int, int]], limit: int) -> list[Ranked]:
    """The best entries of entries, chunks and scores, in order, each with its best chunk."""
    best: dict[int, tuple[int, int, int]] = {}
    for no, chunk, score in scores:
        found = score, no, -chunk
        if score > 0 and (no not in best or best[no] < found):
            best[no] = found
    return [Ranked(no, score / SCALE, -chunk) for score, no, chunk in heapq.nlargest(limit, best.values())]


class NumpyMatrix:
    """With numpy. A row for each dimension: the vector of a query has few that are not 0, and only those are read."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._places: dict[int, list[int]] = {}
        self._free: list[int] = []
        self._nos: Any = np.zeros(0, dtype=np.int64)  # 0: a free place
        self._chunks: Any = np.zeros(0, dtype=np.int32)
        self._rows: Any = np.zeros((dimensions, 0), dtype=np.float32)

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self._rows.nbytes)

    def change(self, changed: Changed) -> None:
        """See `Matrix.change`."""
        listed = list(changed)
        for no, chunk, _ in listed:
            if chunk == 0:
                left = self._places.pop(no, [])
                self._nos[left] = 0
                self._free += left
        self._make_room(sum(vector is not None for _, _, vector in listed))
        places: list[int] = []
        vectors: list[bytes] = []
        for no, chunk, vector in listed:
            if vector is None:
                continue
            check_dimensions(vector, self._dimensions)
            place = self._free.pop()
            self._places.setdefault(no, []).append(place)
            self._nos[place], self._chunks[place] = no, chunk
            places.append(place)
            vectors.append(vector)
        if vectors:
            block = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(-1, self._dimensions)
            self._rows[:, places] = block.T

    def reserve(self, entries: int) -> None:
        """See `Matrix.reserve`."""
        self._make_room(entries - (len(self._nos) - len(self._free)))

    def _make_room(self, wanted: int) -> None:
        if wanted <= len(self._free):
            return
        before = len(self._nos)
        after = max(before + wanted - len(self._free), before + before // 2)
        nos, chunks = np.zeros(after, dtype=np.int64), np.zeros(after, dtype=np.int32)
        rows = np.zeros((self._dimensions, after), dtype=np.float32)
        nos[:before], chunks[:before], rows[:, :before] = self._nos, self._chunks, self._rows
        self._nos, self._chunks, self._rows = nos, chunks, rows
        self._free += range(after - 1, before - 1, -1)

    def nearest(self, vector: Sequence[float], limit: int, allowed: Collection[int] | None) -> list[Ranked]:
        """See `Matrix.nearest`."""
        wanted = np.asarray(vector, dtype=np.float32)
        used = np.flatnonzero(wanted)
        scores = self._scores(wanted)
        keep = (scores > 0.1 / SCALE) & (self._nos > 0)
        if allowed is not None:
            keep &= np.isin(self._nos, np.fromiter(allowed, dtype=np.int64))
        places = np.flatnonzero(keep)
        found = scores[places]
        looked_at = limit
        while True:
            near = places
            if len(places) > looked_at:
                least = np.partition(found, len(found) - looked_at)[len(found) - looked_at]
                near = places[found >= least - ERROR]
            exact = wanted[used].astype(np.float64) @ self._rows[np.ix_(used, near)].astype(np.float64)
            rounded = np.rint(exact * SCALE).astype(np.int64)
            order = np.lexsort((self._chunks[near], -self._nos[near], -rounded))
            places_of = near[order]
            listed = zip(
                self._nos[places_of].tolist(), rounded[order].tolist(), self._chunks[places_of].tolist(), strict=True
            )
            best: dict[int, Ranked] = {}
            for no, score, chunk in listed:
                if no not in best and score > 0:
                    best[no] = Ranked(no, score / SCALE, chunk)
                if len(best) == limit:
                    break
            if len(best) == limit or len(near) == len(places):
                return list(best.values())
            looked_at *= 4  # several chunks of one entry are near

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
        place = Place(self.version, _LAST, 0)
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
    """Reads the vectors of the entries of a scope that changed after a place, in the order of their places: the version of the
    scope at their last change, their number and their chunk."""

    async def __call__(self, scope_no: int, embedder: str, after: Place, limit: int) -> tuple[list[Change], Place]:
        """What changed, and the place of the last one."""
        ...


class VectorCache:
    """The vectors that a process keeps, of all scopes of a database."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], ScopeVectors] = OrderedDict()
        self._asked: Counter[tuple[int, str]] = Counter()

    def worth_keeping(self, scopes: Sequence[ScopeHead], embedder: str, dimensions: int) -> bool:
        """Whether this process is better off with the vectors of these scopes than with a database that compares them: it has
        searched them before, and they fit. Called once for each search."""
        keys = [(scope.no, embedder) for scope in scopes]
        self._asked.update(keys)
        fit = sum(scope.entries for scope in scopes) * dimensions * 4 <= MOST_BYTES
        return np is not None and fit and all(key in self._kept or self._asked[key] > ASKED for key in keys)

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
