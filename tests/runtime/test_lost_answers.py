"""What the errors of clients say about a call: the effect may have happened and its answer was lost, or it did not happen."""

import asyncio
import http.client
import socket
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from perdure import App, Fail, JobContext, Retry, Status
from perdure.model.errors import InvalidInput
from perdure.runtime.context.lost_answers import outcome_known
from tests.runtime.support import NOW, PATIENCE, ended, pending, reached, types, working


class Till:
    """A server that charges a card for each request, and then answers as `how` says: in full, in half, with noise, or not."""

    def __init__(self) -> None:
        self.charged = 0
        self.how = "in full"
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/charge"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        self.charged += 1
        match self.how:
            case "in full":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            case "with a refusal":
                writer.write(b"HTTP/1.1 402 Declined\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            case "in half":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok")
            case "with noise":
                writer.write(b"hello, this is a modem\r\n\r\n")
            case "with a reset":
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            case _:
                pass
        if self.how != "never":
            writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@pytest.fixture
async def till() -> AsyncIterator[Till]:
    """A till of its own for each test."""
    till = Till()
    server = await asyncio.start_server(till.serve, "127.0.0.1", 0)
    till.port = server.sockets[0].getsockname()[1]
    yield till
    till.close()
    server.close()


async def by_httpx(url: str) -> str:
    async with httpx.AsyncClient(timeout=0.5) as client:
        return (await client.post(url)).raise_for_status().text


def by_httpx_in_a_thread(url: str) -> str:
    return httpx.post(url, timeout=0.5).raise_for_status().text


def by_urllib(url: str) -> str:
    with urllib.request.urlopen(url, data=b"x", timeout=0.5) as answer:
        return str(answer.read().decode())


def by_http_client(url: str) -> str:
    port = int(url.rsplit(":", 1)[1].split("/", maxsplit=1)[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=0.5)
    try:
        connection.request("POST", "/charge")
        answer = connection.getresponse()
        if answer.status >= 400:
            raise ValueError(answer.reason)
        return answer.read().decode()
    finally:
        connection.close()


async def by_streams(url: str) -> str:
    port = int(url.rsplit(":", 1)[1].split("/", maxsplit=1)[0])
    async with asyncio.timeout(0.5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"POST /charge HTTP/1.1\r\n\r\n")
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if "402" in head.split("\r\n")[0]:
                raise ValueError("declined")
            if not head.startswith("HTTP/"):
                raise ConnectionError("no HTTP")
            return (await reader.readexactly(20 if "20\r\n\r\n" in head else 2)).decode()
        finally:
            writer.close()


CLIENTS: dict[str, Callable[[str], Any]] = {
    "httpx": by_httpx,
    "httpx in a thread": by_httpx_in_a_thread,
    "urllib": by_urllib,
    "http.client": by_http_client,
    "streams": by_streams,
}
LOST = ["not at all", "in half", "with noise", "with a reset", "never"]


async def raised_by(client: Callable[[str], Any], url: str) -> Exception:
    try:
        if asyncio.iscoroutinefunction(client):
            await client(url)
        else:
            await asyncio.to_thread(client, url)
    except Exception as error:  # noqa: BLE001  each client has its own
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_charge_whose_answer_is_lost_may_have_happened(till: Till, client: str, how: str) -> None:
    till.how = how
    error = await raised_by(CLIENTS[client], till.url)
    assert till.charged == 1
    assert not outcome_known(error), repr(error)


@pytest.mark.parametrize("client", CLIENTS)
async def test_what_was_refused_or_never_sent_did_not_happen(till: Till, client: str) -> None:
    till.how = "with a refusal"
    error = await raised_by(CLIENTS[client], till.url)
    assert outcome_known(error), repr(error)
    assert till.charged == 1
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/charge", f"http://nowhere.invalid:{port}/charge"):
        if "invalid" in url and client in ("http.client", "streams"):
            continue  # these two take the port alone
        error = await raised_by(CLIENTS[client], url)
        assert outcome_known(error), repr(error)


def made(package: str, *names: str) -> type[Exception]:
    """A class like one of a package that is not installed: the first name, below the others."""
    cls: type[Exception] = Exception
    for name in reversed(names):
        cls = type(name, (cls,), {"__module__": f"{package}.exceptions"})
    return cls


def over(error: Exception, below: Exception | None) -> Exception:
    error.__cause__ = below
    return error


class Reason(Exception):
    def __init__(self, reason: Exception) -> None:
        super().__init__("retries are used up")
        self.reason = reason


RETRIES = type("MaxRetryError", (Reason,), {"__module__": "urllib3.exceptions"})
REQUESTS = made("requests", "ConnectionError", "RequestException")
REFUSED = made("urllib3", "NewConnectionError", "HTTPError")


class RpcError(Exception):
    """As that of gRPC."""

    __module__ = "grpc"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def code(self) -> "RpcError":
        """Its status, which has a name."""
        return self


class InactiveRpcError(RpcError):
    __module__ = "grpc._channel"


KNOWN = {
    "requests, refused": REQUESTS(RETRIES(over(REFUSED(), ConnectionRefusedError()))),
    "requests, connect": made("requests", "ConnectTimeout", "ConnectionError", "Timeout")(),
    "requests, an answer": made("requests", "HTTPError", "RequestException")(),
    "requests, certificate": REQUESTS(RETRIES(made("urllib3", "SSLError")(ssl.SSLCertVerificationError()))),
    "urllib3, names": RETRIES(made("urllib3", "NameResolutionError", "NewConnectionError")()),
    "aiohttp, refused": over(
        made("aiohttp", "ClientConnectorError", "ClientOSError", "ClientConnectionError")(), ConnectionRefusedError()
    ),
    "aiohttp, connect": made("aiohttp", "ConnectionTimeoutError", "ServerTimeoutError")(),
    "aiohttp, an answer": made("aiohttp", "ContentTypeError", "ClientResponseError")(),
    "grpc, refused": InactiveRpcError("PERMISSION_DENIED"),
    "a name": socket.gaierror(8, "no such name"),
    "no file": FileNotFoundError(2, "no such file"),
    "a bug": KeyError("card"),
    "a verdict": over(Retry("busy"), TimeoutError()),
    "another verdict": over(Fail("declined"), httpx.ReadTimeout("late")),
    "httpx, refused": over(httpx.ConnectError("refused"), over(ConnectionResetError(), TimeoutError())),
    "httpx, connect": over(httpx.ConnectTimeout("late"), TimeoutError()),
    "httpx, pool": httpx.PoolTimeout("full"),
}
UNKNOWN = {
    "requests, aborted": REQUESTS(made("urllib3", "ProtocolError")("aborted", http.client.RemoteDisconnected(""))),
    "requests, late": made("requests", "ReadTimeout", "Timeout")(),
    "requests, half": made("requests", "ChunkedEncodingError")(),
    "urllib3, late": RETRIES(made("urllib3", "ReadTimeoutError", "TimeoutError")()),
    "urllib3, other": RETRIES(ValueError()),
    "aiohttp, closed": made("aiohttp", "ServerDisconnectedError", "ClientConnectionError")(),
    "aiohttp, late": made("aiohttp", "SocketTimeoutError", "ServerTimeoutError")(),
    "aiohttp, noise": over(made("aiohttp", "ClientResponseError")(), made("aiohttp", "BadHttpMessage")()),
    "grpc, away": InactiveRpcError("UNAVAILABLE"),
    "grpc, late": InactiveRpcError("DEADLINE_EXCEEDED"),
    "a reset": ConnectionResetError(),
    "a pipe": BrokenPipeError(),
    "tls": ssl.SSLEOFError(),
    "no route": OSError(113, "no route to host"),
    "a subclass": type("Late", (httpx.ReadTimeout,), {"__module__": "mine"})("late"),
    "of a client of one's own": over(type("PaymentError", (Exception,), {})(), httpx.ReadTimeout("late")),
    "a group": ExceptionGroup("several", [KeyError("card"), httpx.ReadTimeout("late")]),
    "refused at the second call": over(httpx.ConnectError("refused"), httpx.ReadTimeout("late")),
}


@pytest.mark.parametrize("name", KNOWN)
def test_errors_that_say_that_it_did_not_happen(name: str) -> None:
    assert outcome_known(KNOWN[name])


@pytest.mark.parametrize("name", UNKNOWN)
def test_errors_that_leave_it_open(name: str) -> None:
    assert not outcome_known(UNKNOWN[name])


def test_an_error_raised_in_the_place_of_a_lost_answer_leaves_it_open_unless_from_none() -> None:
    def fails(*, hidden: bool) -> None:
        try:
            raise httpx.ReadTimeout("late")
        except httpx.ReadTimeout:
            if hidden:
                raise ValueError("it was looked up, and did not happen") from None
            raise ValueError("no answer")  # noqa: B904  that is what is tested

    for hidden in (False, True):
        with pytest.raises(ValueError, match="n") as caught:
            fails(hidden=hidden)
        assert outcome_known(caught.value) is hidden


async def test_a_lost_answer_is_asked_about_and_never_repeated(app: App, till: Till) -> None:
    till.how = "not at all"

    @app.job(max_retries=3, backoff=NOW)
    async def pay(ctx: JobContext) -> str:
        return await ctx.options(retries=3).tool("charge", by_httpx, till.url)

    async with working(app):
        handle = await app.enqueue(pay)
        await reached(handle, Status.WAITING_FOR_APPROVAL)
        question = await pending(app, handle)
        assert till.charged == 1
        await app.approve(question.id, edited={"outcome": "happened", "result": "ok"})
        assert await handle.result(PATIENCE) == "ok"
    assert till.charged == 1
    assert [t for t in types(await handle.events()) if t.startswith("tool_")] == ["tool_called", "tool_returned"]


async def test_options_say_more_about_errors(app: App, till: Till) -> None:
    class Busy(Exception):
        """The till was busy: it may have charged."""

    till.how = "not at all"
    calls: list[str] = []

    async def busy() -> None:
        calls.append("busy")
        raise Busy

    @app.job(max_retries=0)
    async def asks(ctx: JobContext) -> None:
        await ctx.options(retries=2, backoff=NOW, unknown_on=Busy).tool("charge", busy)

    @app.job(max_retries=0)
    async def tries(ctx: JobContext) -> None:
        await ctx.options(retries=2, backoff=NOW, known_on=(httpx.RemoteProtocolError,)).tool(
            "charge", by_httpx, till.url
        )

    async with working(app):
        await ended(app, await app.enqueue(asks))
        assert calls == ["busy"], "not repeated: it may have happened"
        job = await app.enqueue(tries)
        await ended(app, job)
        assert till.charged == 3
    assert types(await job.events()).count("tool_failed") == 3


@pytest.mark.parametrize("wrong", [{"unknown_on": "ReadTimeout"}, {"known_on": (int,)}, {"known_on": [KeyError]}])
async def test_options_take_classes_of_errors(app: App, wrong: dict[str, Any]) -> None:
    said: list[str] = []

    @app.job
    async def one(ctx: JobContext) -> None:
        try:
            ctx.options(**wrong)
        except InvalidInput as error:
            said.append(str(error))

    async with working(app):
        await (await app.enqueue(one)).result(PATIENCE)
    assert "is a class of errors, or a tuple of them" in said[0]
