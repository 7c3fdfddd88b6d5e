"""Long-term memory: what jobs and people wrote down to be found again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from perdure.model.errors import InvalidInput, UnknownScope

MOST_TEXT = 20_000
"""Characters of an entry."""
MOST_QUERY = 4_000
"""Characters of a query."""
MOST_FOUND = 100
"""Entries that a search returns."""
DEFAULT_KIND = "note"


class SearchMode(StrEnum):
    """How memory is searched."""

    HYBRID = "hybrid"
    """By words and by vectors, fused."""
    TEXT = "text"
    """By words alone (BM25)."""
    VECTOR = "vector"
    """By vectors alone."""


class ScopeKind(StrEnum):
    """Whose an entry is."""

    JOB = "job"
    AGENT = "agent"
    USER = "user"
    PROJECT = "project"
    TENANT = "tenant"
    """Everything that belongs to the tenant; it has no name."""


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One entry of long-term memory. It is never deleted.

    scope: whose it is, as `user:ann`. kind: a word of yours. source: where it is from, in your words. job_id: the job that wrote
    it. created_by: the actor. archived_at: since when searches leave it out. superseded_by: the entry that replaced it.
    """

    id: UUID
    scope: str
    text: str
    tags: tuple[str, ...]
    source: str | None
    kind: str
    job_id: UUID | None
    created_by: str
    created_at: datetime
    pinned_at: datetime | None
    archived_at: datetime | None
    superseded_by: UUID | None

    @property
    def live(self) -> bool:
        """Whether searches find it."""
        return self.archived_at is None

    @property
    def pinned(self) -> bool:
        """Whether it counts more than others."""
        return self.pinned_at is not None


@dataclass(frozen=True, slots=True)
class MemoryChunk:
    """The part of an entry that fits a query best. number: from 1. of: how many the entry has; a text of a few paragraphs is one.
    start, end: its place in the text, in characters."""

    number: int
    of: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """An entry that a search found, and why.

    chunk: the part of a long text that fits best. score: the fused score, times the factors. text_rank, vector_rank: its places,
    from 1, among what each search found; None: not there. text_score: BM25. vector_score: the cosine of the nearest chunk.
    recency, pin: the factors. terms: those of the query that it has.
    """

    entry: MemoryEntry
    chunk: MemoryChunk
    score: float
    text_rank: int | None
    text_score: float | None
    vector_rank: int | None
    vector_score: float | None
    recency: float
    pin: float
    terms: tuple[str, ...]

    @property
    def passage(self) -> str:
        """The text of the chunk."""
        return self.entry.text[self.chunk.start : self.chunk.end]

    @property
    def why(self) -> str:
        """The score in words."""
        parts = [] if self.chunk.of == 1 else [f"part {self.chunk.number} of {self.chunk.of}"]
        if self.text_rank is not None:
            parts.append(f"words #{self.text_rank} (BM25 {self.text_score:.2f}: {' '.join(self.terms)})")
        if self.vector_rank is not None:
            parts.append(f"vector #{self.vector_rank} (cosine {self.vector_score:.2f})")
        parts.append(f"recency x{self.recency:.3f}")
        if self.pin != 1:
            parts.append(f"pinned x{self.pin:g}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class MemoryImport:
    """What an import did. read: entries of the file. written: those that were not there."""

    read: int
    written: int


class NewMemory(NamedTuple):
    """An entry to be stored, already checked, with what searches find it by.

    tags: JSON text. terms: a JSON object of terms and their counts. tokens: the sum of these. embedder, vector: None where the
    vectors follow later; vector: those of its chunks, one after the other. chunks: how many.
    """

    id: UUID
    scope: str
    text: str
    tags: str
    source: str | None
    kind: str
    created_by: str
    terms: str
    tokens: int
    tokeniser: str
    embedder: str | None
    vector: bytes | None
    chunks: int = 1
    created_at: datetime | None = None
    """None: now."""
    pinned_at: datetime | None = None
    job_id: UUID | None = None
    """Of what is imported; a job's own write has its id anyway."""


class MemoryIndex(NamedTuple):
    """What searches find an entry by: see `NewMemory`. restore: an archived entry is found again; False: it stays as it is."""

    id: UUID
    terms: str
    tokens: int
    tokeniser: str
    embedder: str | None
    vector: bytes | None
    chunks: int = 1
    restore: bool = True


class MemoryLeave(NamedTuple):
    """An entry that is no longer found. terms: of its text, as a JSON array. superseded_by: what replaces it. replaces:
    refused where another entry has replaced it; one that was archived says then what replaces it."""

    id: UUID
    terms: str
    tokeniser: str
    superseded_by: UUID | None = None
    archived_at: datetime | None = None
    """None: now."""
    replaces: bool = False


class MemoryFilter(NamedTuple):
    """Which entries count. tags: it has all of them. since: written then or later."""

    tags: tuple[str, ...] = ()
    since: datetime | None = None
    kind: str | None = None


class ScopeHead(NamedTuple):
    """A scope that has entries. version: counts its changes. entries: those that are found. tokens: the sum of their lengths."""

    no: int
    scope: str
    version: int
    entries: int
    tokens: int


class Posting(NamedTuple):
    """A term that is searched in a scope. newest: so many of the newest entries that have it are read; None: all."""

    scope_no: int
    term: str
    weight: float
    newest: int | None = None


class Ranked(NamedTuple):
    """An entry that a search found, by its number, and its score. chunk: the one whose vector it is, from 0."""

    no: int
    score: float
    chunk: int = 0


ANY = MemoryFilter()


def labels_of(tags: Iterable[str], kind: str | None) -> list[str]:
    """What searches are narrowed by, as it is written among the terms of an entry, with the count 0. No word has a `#`."""
    return [*(f"#tag {tag}" for tag in tags), *([] if kind is None else [f"#kind {kind}"])]


def scope_of(kind: ScopeKind, name: str | None) -> str:
    """The scope as it is stored."""
    return kind.value if kind is ScopeKind.TENANT else f"{kind}:{name}"


def parse_scope(text: str) -> str:
    """A scope as a caller writes it, `user:ann` or `tenant`. Raises UnknownScope, InvalidInput."""
    kind, _, name = text.partition(":")
    if kind == ScopeKind.TENANT and not name and text == kind:
        return text
    if kind in (ScopeKind.JOB, ScopeKind.AGENT, ScopeKind.USER, ScopeKind.PROJECT) and 1 <= len(name) <= 200:
        if not name.isprintable():
            raise InvalidInput(f"the name of a scope is 1 to 200 printable characters, got {name!r:.120}")
        return text
    raise unknown_scope(text)


def unknown_scope(text: str) -> UnknownScope:
    """No such scope."""
    return UnknownScope(
        f"unknown scope of memory {text!r:.120}",
        hint="one of job:<id>, agent:<id>, user:<id>, project:<name>, tenant",
    )


def parse_scopes(scope: str | Sequence[str]) -> list[str]:
    """One scope or several. Raises InvalidInput."""
    return list(dict.fromkeys(parse_scope(one) for one in ([scope] if isinstance(scope, str) else scope)))
