"""Searching long-term memory: words and vectors, fused, explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.memory.embedding import HASH_V1, LEXICAL_WEIGHT, hash_v1
from perdure.memory.fusion import CANDIDATES, PINNED, best, idf, ranks, recency, reciprocal
from perdure.memory.tokens import prefixes, query_terms, terms_of
from perdure.model.memory import ANY, MemoryFilter, MemoryHit, Ranked, ScopeHead, SearchMode
from perdure.store.protocol import Store

EXPANDED = 0.5
"""A word that only begins like one of the query weighs so much of what it would weigh."""


async def search(
    store: Store,
    scopes: Sequence[str] | None,
    query: str,
    *,
    k: int,
    mode: SearchMode = SearchMode.HYBRID,
    only: MemoryFilter = ANY,
) -> list[MemoryHit]:
    """The k entries of these scopes (None: all of the tenant) that fit the query best, the best first."""
    heads = [head for head in await store.memories.memory_scopes(scopes) if head.entries]
    if not heads:
        return []
    wanted = max(CANDIDATES, k)
    weights: dict[str, float] = {}
    text: list[Ranked] = []
    if mode is not SearchMode.VECTOR:
        weights = await _weights(store, heads, query)
        if weights:
            average = round(sum(h.tokens for h in heads) / sum(h.entries for h in heads), 6) or 1.0
            nos = [head.no for head in heads]
            text = await store.memories.rank_memory_text(nos, weights, average=average, limit=wanted, only=only)
    vector: list[Ranked] = []
    if mode is not SearchMode.TEXT:
        # the words that say nothing are left out of the vector as well
        meant = hash_v1(" ".join(query_terms(query)))
        vector = await store.memories.rank_memory_vectors(heads, HASH_V1, meant, limit=wanted, only=only)
    return await _hits(store, weights, text, vector, k)


async def _weights(store: Store, heads: Sequence[ScopeHead], query: str) -> dict[str, float]:
    """The terms that are searched, and what each weighs: those of the query, longer words that begin like them, and they without
    an English ending."""
    total = sum(head.entries for head in heads)
    nos = [head.no for head in heads]
    terms = query_terms(query)
    begins = list(dict.fromkeys(prefix for term in terms for prefix in prefixes(term)))
    having = await store.memories.memory_frequencies(nos, list(dict.fromkeys([*terms, *begins])))
    weights = {term: idf(total, having[term]) for term in terms if term in having}
    longer = await store.memories.memory_expansions(nos, begins)
    also = {term: entries for found in longer.values() for term, entries in found}
    also |= {term: having[term] for term in begins if term in having}
    for term, entries in also.items():
        weights.setdefault(term, round(EXPANDED * idf(total, entries), 6))
    return weights


async def _hits(
    store: Store, weights: Mapping[str, float], text: Sequence[Ranked], vector: Sequence[Ranked], k: int
) -> list[MemoryHit]:
    by_text, by_vector = dict(text), dict(vector)
    places = ranks(list(by_text), list(by_vector))
    entries = await store.memories.memories_by_no(list(places))
    now = await store.now()
    weight = LEXICAL_WEIGHT if by_text else 1.0
    factors: dict[int, tuple[float, float]] = {}
    scores: dict[int, float] = {}
    for no, entry in entries.items():
        new = round(recency((now - entry.created_at).total_seconds()), 6)
        pin = PINNED if entry.pinned else 1.0
        factors[no] = new, pin
        scores[no] = round(reciprocal(places[no], weight) * new * pin, 9)
    hits = []
    for no in best(scores, k):
        place, has = places[no], terms_of(entries[no].text)
        hit = MemoryHit(
            entry=entries[no],
            score=scores[no],
            text_rank=None if place.text is None else place.text + 1,
            text_score=by_text.get(no),
            vector_rank=None if place.vector is None else place.vector + 1,
            vector_score=by_vector.get(no),
            recency=factors[no][0],
            pin=factors[no][1],
            terms=tuple(term for term in weights if term in has),
        )
        hits.append(hit)
    return hits
