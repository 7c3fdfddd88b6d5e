"""Vectors of long-term memory from an endpoint with OpenAI's interface: a server on this machine plays it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perdure import App, Client, EmbedderUnavailable, JobContext, MixedDimensions
from perdure.config import load_settings
from perdure.memory.embedding import HASH_V1
from perdure.model.errors import ConfigError
from perdure.model.tooling import reference_of
from perdure.runtime.embedders import HASH, ChosenEmbedder, Embedder
from perdure.runtime.embedding_endpoint import BATCH, EmbeddingEndpoint
from perdure.runtime.missing_vectors import MissingVectors
from perdure.runtime.registry import Registry
from perdure.store.protocol import Store

MEANINGS = (("cat", "kitten", "猫"), ("invoice", "bill", "发票"), ("rain", "weather", "雨"))
KEY = "sk-very-secret"


@dataclass
class Endpoint:
    """What the server was asked, and what it answers: vectors, or one of `refusals` first."""

    url: str = ""
    asked: list[list[str]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    more: int = 0
    """Dimensions that it adds."""

    def vector(self, text: str) -> list[float]:
        """A dimension for each meaning."""
        return [float(any(word in text for word in words)) for words in MEANINGS] + [0.1] + [0.0] * self.more

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.keys.append(headers.get("authorization"))
        status, extra = self.refusals.pop(0) if self.refusals else (200, {})
        data = [{"index": n, "embedding": self.vector(text)} for n, text in enumerate(body["input"])]
        if status == 200:
            self.asked.append(body["input"])
            content = json.dumps({"data": data[::-1], "model": body["model"]})
        else:
            content = json.dumps({"error": f"wrong key {KEY}"})
        lines = [f"HTTP/1.1 {status} x", f"content-length: {len(content.encode())}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in extra.items()]
        writer.write(("\r\n".join([*lines, "", ""]) + content).encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(endpoint: Endpoint) -> AsyncIterator[Endpoint]:
    server = await asyncio.start_server(endpoint.answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    endpoint.url = f"http://{host}:{port}/v1"
    try:
        yield endpoint
    finally:
        server.close()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with serving(Endpoint()) as served:
        yield served


def embedder_of(endpoint: Endpoint, model: str = "meanings-1") -> EmbeddingEndpoint:
    return EmbeddingEndpoint(endpoint.url, model, None, None)


def client_of(store: Store, embedder: Embedder) -> Client:
    registry = Registry()
    registry.choose_embedder = lambda: embedder
    return Client(store, registry)


async def test_an_entry_is_found_by_its_meaning(store: Store, endpoint: Endpoint) -> None:
    client = client_of(store, embedder_of(endpoint))
    await client.memory.write("the kitten sleeps")
    await client.memory.write("a bill was paid")
    for mode in ("hybrid", "vector"):
        [hit, *_] = await client.memory.search("我的猫在哪里", 1, mode=mode)
        assert hit.entry.text == "the kitten sleeps"
        assert hit.vector_rank == 1
        assert hit.text_rank is None


async def test_while_it_is_down_writes_and_searches_go_on_and_vectors_follow(store: Store, endpoint: Endpoint) -> None:
    embedder = embedder_of(endpoint)
    client = client_of(store, embedder)
    endpoint.refusals = [(503, {})]
    entry = await client.memory.write("the kitten sleeps")
    assert endpoint.keys == [None]
    [hit] = await client.memory.search("who sleeps?")
    assert (hit.entry.id, hit.vector_rank) == (entry.id, None)
    with pytest.raises(EmbedderUnavailable, match="answered 503"):
        await client.memory.search("who sleeps?", mode="vector")
    assert len(endpoint.keys) == 1, "it is not asked again at once"

    chore = MissingVectors(lambda: embedder)
    assert await chore.make_some(store)
    [hit] = await client.memory.search("cat", mode="vector")
    assert hit.entry.id == entry.id
    assert await chore.make_some(store)
    assert endpoint.asked == [["the kitten sleeps"], ["cat"]]


async def test_of_many_texts_it_gets_batches_and_after_429_it_is_asked_when_it_says(
    store: Store, endpoint: Endpoint
) -> None:
    client = Client(store)
    for start in range(0, BATCH + 6, 10):
        await client.memory.write("\n".join(f"rain {n}" for n in range(start, start + 10)) + " invoice")
    for n in range(BATCH):
        await client.memory.write(f"bill {n}")
    endpoint.refusals = [(429, {"Retry-After": "0"}), (429, {"Retry-After": "0.01"})]
    changed = client_of(store, embedder_of(endpoint))
    assert await changed.memory.reindex() == BATCH + 7
    assert [len(texts) for texts in endpoint.asked] == [BATCH, 7]
    assert await changed.memory.reindex() == 0
    [hit] = await changed.memory.search("发票 雨", 1, mode="vector")
    assert "rain" in hit.entry.text
    assert await client.memory.reindex() == BATCH + 7, "hash-v1 again"


async def test_reindex_says_that_it_gives_no_vectors(store: Store, endpoint: Endpoint) -> None:
    await Client(store).memory.write("rain")
    endpoint.refusals = [(401, {})]
    with pytest.raises(EmbedderUnavailable, match="answered 401"):
        await client_of(store, embedder_of(endpoint)).memory.reindex()
    assert len(endpoint.keys) == 1, "it would not answer the same request later"
    [hit] = await Client(store).memory.search("rain", mode="vector")
    assert hit.entry.text == "rain"


async def test_mixed_dimensions_are_refused(store: Store, endpoint: Endpoint) -> None:
    await client_of(store, embedder_of(endpoint)).memory.write("rain")
    endpoint.more = 2
    later = client_of(store, embedder_of(endpoint))
    with pytest.raises(MixedDimensions, match="has 4 dimensions and the query's has 6"):
        await later.memory.search("rain")
    same = embedder_of(endpoint)
    await same.vectors(["rain"])
    endpoint.more = 0
    with pytest.raises(MixedDimensions, match="gave a vector of 4 dimensions, and 6 are expected"):
        await client_of(store, same).memory.write("more rain")
    assert len((await later.memory.list()).items) == 1


async def test_what_is_archived_meanwhile_stays_archived(store: Store, endpoint: Endpoint) -> None:
    client = client_of(store, embedder_of(endpoint))
    endpoint.refusals = [(500, {})]
    entry = await client.memory.write("rain")

    class Slow(EmbeddingEndpoint):
        async def vectors(self, texts: Sequence[str], *, wait: bool = False) -> list[list[float]]:
            await client.memory.archive(entry.id)
            return await super().vectors(texts, wait=wait)

    slow = Slow(endpoint.url, "meanings-1", None, None)
    await MissingVectors(lambda: slow).make_some(store)
    assert not (await client.memory.get(entry.id)).live


async def test_the_key_is_read_where_the_setting_says_and_never_shown(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv("MEMORY_TEST_KEY", KEY)
    for reference in (f"file:{tmp_path / 'key'}", "env:MEMORY_TEST_KEY"):
        embedder = EmbeddingEndpoint(endpoint.url, "m", reference_of(reference), None)
        await embedder.vectors(["rain"])
        assert endpoint.keys[-1] == f"bearer {KEY}"
        endpoint.refusals = [(401, {})]
        with pytest.raises(EmbedderUnavailable) as raised:
            await embedder.vectors(["rain"])
        assert KEY not in str(raised.value)
        assert "[key]" in str(raised.value)
    with pytest.raises(EmbedderUnavailable, match="env:NO_SUCH_KEY, which cannot be read"):
        await EmbeddingEndpoint(endpoint.url, "m", reference_of("env:NO_SUCH_KEY"), None).vectors(["rain"])
    (tmp_path / "key").write_text(f"{KEY}\n{KEY}")
    with pytest.raises(EmbedderUnavailable, match="which is no key") as raised:
        await EmbeddingEndpoint(endpoint.url, "m", reference_of(f"file:{tmp_path / 'key'}"), None).vectors(["rain"])
    assert KEY not in str(raised.value)
    with pytest.raises(ConfigError) as refused:
        load_settings({"memory_key": KEY}, environ={})
    assert KEY not in f"{refused.value} {refused.value.__notes__}"


@pytest.mark.parametrize(
    "settings", [{"memory_url": "ftp://host"}, {"memory_url": "http://a:b@host"}, {"memory_url": "http://host"}]
)
def test_settings_that_make_no_endpoint(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        ChosenEmbedder(lambda: settings)()
    assert ChosenEmbedder(dict)() is HASH
    assert HASH.id == HASH_V1


async def test_a_job_uses_the_endpoint_of_the_settings_and_a_replay_does_not_ask_again(
    fresh_store_url: Callable[[str], str], endpoint: Endpoint
) -> None:
    flags = {"database_url": fresh_store_url("sqlite"), "memory_url": endpoint.url, "memory_model": "meanings-1"}
    async with App(settings=load_settings(flags, environ={}), migrate=True) as app:

        @app.job(max_retries=1)
        async def note(ctx: JobContext) -> list[str]:
            await ctx.memory.write("the kitten sleeps")
            found = [hit.entry.text for hit in await ctx.memory.search("猫", mode="vector")]
            if ctx.attempt == 1:
                raise RuntimeError
            return found

        handle = await app.enqueue(note)
        await app.work(once=True)
        await app.jobs.retry_now(handle.id)
        await app.work(once=True)
        assert await handle.result(5) == ["the kitten sleeps"]
        assert endpoint.asked == [["the kitten sleeps"], ["猫"]]
        assert "memory-vectors" in {chore.name for chore in app.registry.chores}
