"""What a caller gives for long-term memory, checked before anything is written, and made ready to be stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from uuid import UUID

from perdure.memory.chunks import chunks_of, said_of
from perdure.memory.embedding import HASH_V1, hash_v1, packed
from perdure.memory.tokens import TOKENISER, terms_of
from perdure.model.errors import EmptyQuery, InvalidInput, TextTooLong
from perdure.model.ids import uuid7
from perdure.model.memory import (
    DEFAULT_KIND,
    MOST_FOUND,
    MOST_QUERY,
    MOST_TEXT,
    MemoryIndex,
    MemoryLeave,
    NewMemory,
    SearchMode,
    labels_of,
)
from perdure.runtime.validation import check_names, check_text

MOST_TAGS = 50


def check_memory_text(text: object) -> str:
    """The text of an entry. Raises TextTooLong, InvalidInput, NotJson."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput("the text of an entry of memory is empty", hint="write down a sentence or a few")
    if len(text) > MOST_TEXT:
        raise TextTooLong(
            f"the text of an entry of memory has {len(text):,} characters; the limit is {MOST_TEXT:,}",
            hint="write its parts as entries of their own, or what matters of it",
        )
    checked = check_text(text, "the text of an entry of memory", MOST_TEXT)
    assert checked is not None
    return checked


def check_query(query: object) -> str:
    """A query. Raises EmptyQuery, TextTooLong, NotJson."""
    if not isinstance(query, str) or not query.strip():
        raise EmptyQuery(
            "the query is empty", hint="ask in words: perdure memory search 'how was the log problem solved?'"
        )
    if len(query) > MOST_QUERY:
        raise TextTooLong(
            f"the query has {len(query):,} characters; the limit is {MOST_QUERY:,}", hint="ask for what matters"
        )
    checked = check_text(query, "the query", MOST_QUERY)
    assert checked is not None
    return checked


def check_mode(mode: object) -> SearchMode:
    """How to search. Raises InvalidInput."""
    try:
        return SearchMode(mode)  # type: ignore[arg-type]  # what is no mode raises
    except ValueError:
        raise InvalidInput(f"mode must be {', '.join(SearchMode)}, got {mode!r:.60}") from None


def check_k(k: object) -> int:
    """How many entries to find. Raises InvalidInput."""
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MOST_FOUND:
        raise InvalidInput(f"k must be a whole number from 1 to {MOST_FOUND}, got {k!r:.60}")
    return k


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags, each once. Raises InvalidInput."""
    checked = check_names((tags,) if isinstance(tags, str) else tuple(tags), "tags")
    if len(checked) > MOST_TAGS:
        raise InvalidInput(f"an entry of memory has at most {MOST_TAGS} tags, got {len(checked)}")
    return tuple(dict.fromkeys(checked))


def new_memory(
    text: object,
    *,
    scope: str,
    created_by: str,
    tags: Sequence[str] = (),
    source: str | None = None,
    kind: str | None = None,
    id_of: Callable[[str, str], UUID] | None = None,
) -> NewMemory:
    """An entry to be stored. id_of: makes its id of scope and text; by default every one is new. Raises InvalidInput, NotJson."""
    checked = check_memory_text(text)
    checked_tags, checked_kind = check_tags(tags), check_text(kind, "kind", 100) or DEFAULT_KIND
    id = uuid7() if id_of is None else id_of(scope, checked)
    index = index_of(id, checked, labels=labels_of(checked_tags, checked_kind))
    return NewMemory(
        id=index.id,
        scope=scope,
        text=checked,
        tags=json.dumps(checked_tags, ensure_ascii=False),
        source=check_text(source, "source", 2000),
        kind=checked_kind,
        created_by=created_by,
        terms=index.terms,
        tokens=index.tokens,
        tokeniser=index.tokeniser,
        embedder=index.embedder,
        vector=index.vector,
        chunks=index.chunks,
    )


def index_of(id: UUID, text: str, *, labels: Sequence[str] = (), restore: bool = True) -> MemoryIndex:
    """What an entry of this text is found by. labels: of one that is new; the store adds those of others. restore: see
    `MemoryIndex`."""
    terms, chunks = terms_of(text), chunks_of(text)
    return MemoryIndex(
        id,
        json.dumps({**dict(sorted(terms.items())), **dict.fromkeys(labels, 0)}, ensure_ascii=False),
        terms.total(),
        TOKENISER,
        HASH_V1,
        b"".join(packed(hash_v1(said_of(text, chunk))) for chunk in chunks),
        len(chunks),
        restore,
    )


def leave_of(id: UUID, text: str, superseded_by: UUID | None = None) -> MemoryLeave:
    """An entry of this text that is no longer to be found."""
    return MemoryLeave(id, json.dumps(sorted(terms_of(text)), ensure_ascii=False), TOKENISER, superseded_by)


def entry_id_of(job_id: UUID, scope: str, text: str) -> UUID:
    """The id of what a job writes: the same for the same text, so a call that is made again writes nothing new."""
    hashed = hashlib.sha256(f"{job_id}:memory:{scope}:{text}".encode()).digest()
    return UUID(bytes=hashed[:16], version=5)
