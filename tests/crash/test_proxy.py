"""The network that fails: what the harness's proxy carries, cuts and swallows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import asyncpg
import pytest

from perdure.chaos.proxy import Connection, Proxy, reachable
from perdure.model.errors import StoreUnreachable
from perdure.store.postgres.engine.driver_errors import CLIENT_LIBRARY_ERRORS
from perdure.store.postgres.engine.terminate import end_backends
from tests.crash.processes import until

BIG = b"x" * 3_000_000


@asynccontextmanager
async def through_a_proxy(handler: "Handler") -> AsyncIterator[tuple[Proxy, str, int]]:
    """A proxy before a server that handles each connection so; and where it is."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0, limit=len(BIG) + 10)
    port = server.sockets[0].getsockname()[1]
    async with server, Proxy(f"postgresql://ann:secret@127.0.0.1:{port}/x?a=b", "127.0.0.1", port) as proxy:
        parts = urlsplit(proxy.url)
        assert (parts.username, parts.password, parts.path, parts.query) == ("ann", "secret", "/x", "a=b")
        assert parts.hostname is not None
        assert parts.port is not None
        yield proxy, parts.hostname, parts.port


class Handler:
    """Answers every line with the same line; what it heard is kept."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
                await writer.drain()
        writer.close()


async def the_line(proxy: Proxy) -> Connection:
    """The one connection."""
    await until(lambda: len(proxy.connections()) == 1, what="the connection")
    return proxy.connections()[0]


async def test_everything_goes_through_unchanged() -> None:
    async with through_a_proxy(Handler()) as (proxy, host, port):
        reader, writer = await asyncio.open_connection(host, port, limit=len(BIG) + 10)
        for data in (b"one\n", b"\x00\xff two\n", BIG + b"\n"):
            writer.write(data)
            assert await reader.readline() == data
        assert (await the_line(proxy)).pid is None
        writer.close()
        await until(lambda: proxy.connections() == [], what="the end of both")


async def test_a_cut_is_felt_on_both_sides() -> None:
    handler = Handler()
    async with through_a_proxy(handler) as (proxy, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"one\n")
        await reader.readline()
        (await the_line(proxy)).cut()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await until(lambda: proxy.connections() == [], what="the end of both")
        assert proxy.answers_lost == 0
        writer.close()


async def test_a_swallowed_answer_was_given() -> None:
    handler = Handler()
    async with through_a_proxy(handler) as (proxy, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"one\n")
        await reader.readline()
        (await the_line(proxy)).drop_answer()
        assert proxy.answers_lost == 0
        writer.write(b"commit\n")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert handler.heard == [b"one\n", b"commit\n"]
        assert proxy.answers_lost == 1
        writer.close()


async def test_a_server_that_is_away_is_away() -> None:
    async with Proxy("postgresql://127.0.0.1:1/x", "127.0.0.1", 1) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(proxy.url).port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("postgresql://ann:x@db.example:6000/x", ("db.example", 6000)),
        ("postgresql://db.example/x?sslmode=require", ("db.example", 5432)),
        ("postgresql://[::1]:5433/x", ("::1", 5433)),
        ("postgresql:///x", None),
        ("postgresql:///x?host=/run/postgresql", None),
        ("postgresql://one:5432,two:5432/x", None),
        ("postgresql://db.example/x?sslmode=verify-full", None),
    ],
)
def test_what_a_proxy_can_stand_in_front_of(url: str, where: tuple[str, int] | None) -> None:
    assert reachable(url) == where


async def test_a_session_is_known_by_its_process_and_can_be_ended(postgres_url: str) -> None:
    where = reachable(postgres_url)
    assert where is not None
    async with Proxy(postgres_url, *where) as proxy:
        ours = await asyncpg.connect(proxy.url, server_settings={"application_name": "perdure"})
        theirs = await asyncpg.connect(postgres_url)
        try:
            pids = [await each.fetchval("select pg_backend_pid()") for each in (ours, theirs)]
            assert (await the_line(proxy)).pid == pids[0]
            assert await end_backends(postgres_url, [*pids, 1]) == 1, "only perdure's own sessions are ended"
            with pytest.raises(CLIENT_LIBRARY_ERRORS):
                await ours.fetchval("select 1")
            assert await theirs.fetchval("select 1") == 1
            assert await end_backends(postgres_url, pids) == 0
        finally:
            ours.terminate()
            await theirs.close()
    with pytest.raises(StoreUnreachable):
        await end_backends("postgresql://nobody@127.0.0.1:1/x", [1])
