"""What makes the vectors of long-term memory: `hash-v1`, or the embedding endpoint of the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import structlog

from perdure.memory.chunks import chunks_of, said_of
from perdure.memory.embedding import HASH_V1, LEXICAL_WEIGHT, hash_v1, packed
from perdure.memory.tokens import query_terms
from perdure.model.errors import ConfigError, EmbedderUnavailable
from perdure.model.memory import MemoryIndex, NewMemory
from perdure.model.tooling import reference_of

log = structlog.get_logger("perdure.memory")

Indexed = TypeVar("Indexed", NewMemory, MemoryIndex)


class Embedder(Protocol):
    """Makes vectors of length 1. id: stored with each vector. weight: of its ranks in a hybrid search, where those of words
    have 1."""

    @property
    def id(self) -> str: ...

    @property
    def weight(self) -> float: ...

    async def vectors(self, texts: Sequence[str], *, wait: bool = False) -> list[list[float]]:
        """One vector for each text. wait: try again for a while. Raises EmbedderUnavailable, MixedDimensions."""
        ...

    async def of_query(self, query: str) -> list[float]:
        """The vector of a query. Raises EmbedderUnavailable, MixedDimensions."""
        ...


class HashEmbedder:
    """`hash-v1`: needs no model."""

    id = HASH_V1
    weight = LEXICAL_WEIGHT

    async def vectors(self, texts: Sequence[str], *, wait: bool = False) -> list[list[float]]:  # noqa: ARG002  nothing to wait for
        """See `Embedder.vectors`."""
        return [hash_v1(text) for text in texts]

    async def of_query(self, query: str) -> list[float]:
        """See `Embedder.of_query`: without the words that say nothing."""
        return hash_v1(" ".join(query_terms(query)))


HASH = HashEmbedder()


async def with_vectors(
    embedder: Embedder, indexed: Sequence[Indexed], texts: Sequence[str], *, wait: bool = False
) -> list[Indexed]:
    """What is to be stored, with the vectors of the chunks of these texts. Where the endpoint gives none, they follow later, so
    it comes without; with wait=True that raises EmbedderUnavailable. Raises MixedDimensions."""
    if embedder.id == HASH_V1 or not indexed:
        return list(indexed)  # it has them
    parts = [[said_of(text, chunk) for chunk in chunks_of(text)] for text in texts]
    try:
        vectors = await embedder.vectors([said for some in parts for said in some], wait=wait)
    except EmbedderUnavailable as error:
        if wait:
            raise
        log.warning("memory was written without vectors, which follow later", entries=len(indexed), reason=str(error))
        return [one._replace(embedder=None, vector=None) for one in indexed]
    made = iter(vectors)
    return [
        one._replace(embedder=embedder.id, vector=b"".join(packed(next(made)) for _ in some), chunks=len(some))
        for one, some in zip(indexed, parts, strict=True)
    ]


class ChosenEmbedder:
    """The embedder of the settings, made once."""

    def __init__(self, values: Callable[[], Mapping[str, Any]]) -> None:
        self._values = values
        self._made: tuple[tuple[Any, ...], Embedder] | None = None

    def __call__(self) -> Embedder:
        """Raises ConfigError."""
        values = self._values()
        chosen = tuple(values.get(f"memory_{name}") for name in ("url", "model", "key", "dimensions"))
        if self._made is None or self._made[0] != chosen:
            self._made = chosen, _made_of(*chosen)
        return self._made[1]


def _made_of(url: str | None, model: str | None, key: str | None, dimensions: int | None) -> Embedder:
    if url is None:
        return HASH
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ConfigError(
            "memory_url must be http(s)://host/path without a user and a password",
            hint="memory_url = 'https://api.example.com/v1', and the key in memory_key = 'env:NAME'",
        )
    if not model:
        raise ConfigError("memory_url needs memory_model", hint="the name of the model, as the endpoint knows it")
    from perdure.runtime.embedding_endpoint import EmbeddingEndpoint

    reference = None if key is None else reference_of(key)
    return EmbeddingEndpoint(url, model, reference, dimensions)
