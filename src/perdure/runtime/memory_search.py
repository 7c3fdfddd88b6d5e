"""Searching long-term memory: words and vectors, fused, explained."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from perdure.memory.fusion import CANDIDATES, PINNED, Ranks, best, idf, ranks, recency, reciprocal
from perdure.memory.postings import COMPLETED, COUNTED, MOST_READ, RANKED, RECENT, SAMPLE, estimated, portions
from perdure.memory.tokens import prefixes, query_terms, terms_of
from perdure.model.errors import EmbedderUnavailable
from perdure.model.memory import ANY, MemoryFilter, MemoryHit, Posting, Ranked, ScopeHead, SearchMode
from perdure.runtime.embedders import Embedder
from perdure.runtime.memory_narrowing import Narrowed, narrowed
from perdure.runtime.memory_passages import chunk_at
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.memory")

EXPANDED = 0.5
"""A word that only begins like one of the query weighs so much of what it would weigh."""


async def search(
    store: Store,
    embedder: Embedder,
    scopes: Sequence[str] | None,
    query: str,
    *,
    k: int,
    mode: SearchMode = SearchMode.HYBRID,
    only: MemoryFilter = ANY,
) -> list[MemoryHit]:
    """The k entries of these scopes (None: all of the tenant) that fit the query best, the best first. Where the embedder gives
    no vector, words alone decide; with mode=VECTOR that raises EmbedderUnavailable. Raises MixedDimensions."""
    heads = [head for head in await store.memories.memory_scopes(scopes) if head.entries]
    if not heads:
        return []
    wanted = max(CANDIDATES, k)
    within = await narrowed(store, heads, only)
    if within.whole and not within.nos:
        return []
    (weights, text), vector = await asyncio.gather(
        _by_words(store, heads, query, wanted, within, mode),
        _by_vectors(store, embedder, heads, query, wanted, within, mode),
    )
    return await _hits(store, weights, text, vector, k, embedder.weight if text else 1.0)


async def _weights(
    store: Store, heads: Sequence[ScopeHead], query: str
) -> tuple[dict[str, float], dict[tuple[int, str], int]]:
    """The terms that are searched, and what each weighs: those of the query, longer words that begin like them, and they without
    an English ending. And how many entries of each scope have each."""
    total = sum(head.entries for head in heads)
    terms = query_terms(query)
    begins = list(dict.fromkeys(prefix for term in terms for prefix in prefixes(term)))
    longer = await store.memories.memory_expansions([head.no for head in heads], begins)
    also = [term for found in longer.values() for term, _ in found] + begins
    having = await _frequencies(store, heads, list(dict.fromkeys([*terms, *also])))
    weights = {term: idf(total, sum(having[term].values())) for term in terms if term in having}
    for term in also:
        if term in having:
            weights.setdefault(term, round(EXPANDED * idf(total, sum(having[term].values())), 6))
    return weights, {(no, term): entries for term in sorted(weights) for no, entries in sorted(having[term].items())}


async def _frequencies(store: Store, heads: Sequence[ScopeHead], terms: Sequence[str]) -> dict[str, dict[int, int]]:
    """How many entries have each term; of terms that very many have, about so many."""
    having = await store.memories.memory_frequencies([head.no for head in heads], terms, most=COUNTED)
    for head in heads:
        many = [term for term, entries in having.items() if entries.get(head.no, 0) >= COUNTED]
        if many:
            sample = await store.memories.memory_sample(head.no, many, newest=SAMPLE)
            for term in many:
                having[term][head.no] = estimated(head.entries, sample.get(term, 0), SAMPLE)
    return having


async def _by_words(
    store: Store, heads: Sequence[ScopeHead], query: str, wanted: int, within: Narrowed, mode: SearchMode
) -> tuple[dict[str, float], list[Ranked]]:
    """The terms that are searched, with their weights, and the entries that fit best by them."""
    if mode is SearchMode.VECTOR:
        return {}, []
    weights, sizes = await _weights(store, heads, query)
    if not sizes:
        return {}, []
    average = round(sum(h.tokens for h in heads) / sum(h.entries for h in heads), 6) or 1.0
    newest = portions(sizes, MOST_READ if within.only == ANY else MOST_READ // 2)
    postings = [Posting(no, term, weights[term], newest[no, term]) for no, term in sizes]
    rank = partial(store.memories.rank_memory_text, postings, average=average)
    if within.whole and len(within.nos) <= RANKED:
        return weights, await rank(limit=wanted, among=within.nos)
    if within.only == ANY and all(posting.newest is None for posting in postings):
        return weights, await rank(limit=wanted)
    first = await rank(limit=max(COMPLETED, wanted), only=within.only)
    among = dict.fromkeys([*(ranked.no for ranked in first), *within.nos[:RECENT]])
    return weights, await rank(limit=wanted, among=list(among))


async def _by_vectors(
    store: Store,
    embedder: Embedder,
    heads: Sequence[ScopeHead],
    query: str,
    wanted: int,
    within: Narrowed,
    mode: SearchMode,
) -> list[Ranked]:
    """The entries that fit best by their vectors."""
    if mode is SearchMode.TEXT:
        return []
    try:
        meant = await embedder.of_query(query)
    except EmbedderUnavailable as error:
        if mode is SearchMode.VECTOR:
            raise
        log.warning("memory was searched by words alone", reason=str(error))
        return []
    return await store.memories.rank_memory_vectors(
        heads,
        embedder.id,
        meant,
        limit=wanted,
        only=within.only,
        among=within.nos if within.whole else None,
        label=within.label,
    )


async def _hits(
    store: Store,
    weights: Mapping[str, float],
    text: Sequence[Ranked],
    vector: Sequence[Ranked],
    k: int,
    vector_weight: float,
) -> list[MemoryHit]:
    by_text, by_vector = {found.no: found for found in text}, {found.no: found for found in vector}
    places = ranks(list(by_text), list(by_vector))
    standing = await store.memories.memory_standing(list(places))
    now = await store.now()
    factors: dict[int, tuple[float, float]] = {}
    scores: dict[int, float] = {}
    for no, (created_at, pinned) in standing.items():
        new = round(recency((now - created_at).total_seconds()), 6)
        pin = PINNED if pinned else 1.0
        factors[no] = new, pin
        scores[no] = round(reciprocal(places[no], vector_weight) * new * pin, 9)
    chosen = best(scores, k)
    entries = await store.memories.memories_by_no(chosen)
    hits = []
    for no in chosen:
        place, has = places[no], terms_of(entries[no].text)
        words, near = by_text.get(no), by_vector.get(no)
        leads = near is not None and (
            place.text is None
            or reciprocal(Ranks(place.text, None), 0) < reciprocal(Ranks(None, place.vector), vector_weight)
        )
        hit = MemoryHit(
            entry=entries[no],
            chunk=chunk_at(entries[no].text, weights, near.chunk if near is not None and leads else None),
            score=scores[no],
            text_rank=None if place.text is None else place.text + 1,
            text_score=None if words is None else words.score,
            vector_rank=None if place.vector is None else place.vector + 1,
            vector_score=None if near is None else near.score,
            recency=factors[no][0],
            pin=factors[no][1],
            terms=tuple(term for term in weights if term in has),
        )
        hits.append(hit)
    return hits
