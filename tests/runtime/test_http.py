"""HTTP exchanges are steps: sent once, answered from the record afterwards, stored without secrets."""

from typing import Any

import httpx
import pytest

import perdure.http
from perdure import App, BlockingContext, JobContext
from perdure.testing import TestApp, replay
from perdure.testing.recording import recordings_of
from tests.runtime.support import NOW, PATIENCE, keys, working


def server(seen: list[httpx.Request]) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.url.path == "/image":
            return httpx.Response(200, content=b"\xff\x00")
        if request.url.path == "/busy":
            return httpx.Response(429, text="later")
        headers = {"set-cookie": "id=geheim", "x-number": str(len(seen))}
        return httpx.Response(200, json={"n": len(seen), "access_token": "geheim", "said": "naïve"}, headers=headers)

    return httpx.MockTransport(answer)


async def test_an_exchange_happens_once_and_is_stored_without_secrets(app: App) -> None:
    seen: list[httpx.Request] = []

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> list[Any]:
        options: dict[str, Any] = {"headers": {"authorization": "Bearer geheim"}, "auth": ("me", "geheim")}
        async with perdure.http.client(ctx, transport=server(seen), **options) as http:
            first = await http.get("https://u:geheim@api.example/v1?q=tea&api_key=geheim")
            post = await http.post("https://api.example/v1", json={"prompt": "hi", "password": "geheim"})
            image = await http.get("https://api.example/image")
            busy = await http.get("https://api.example/busy")
        if ctx.attempt == 1:
            raise OSError("once more")
        answers = [first.json()["n"], post.json()["n"], image.content == b"\xff\x00", busy.status_code, busy.text]
        return [*answers, first.json()["said"], first.headers["x-number"]]

    handle = await app.enqueue(agent)
    async with working(app):
        assert await handle.result(PATIENCE) == [1, 2, True, 429, "later", "naïve", "1"]
    assert len(seen) == 4
    events = await handle.events()
    assert keys(events, "node_finished") == ["GET api.example/v1", "GET api.example/image", "GET api.example/busy"]
    assert keys(events, "tool_returned") == ["POST api.example/v1"]
    assert "geheim" not in str([e.payload for e in events])


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": "\\ud800"}',
        b"\x00\x01",
        b'{"code": "late", "key": "A-1", "session": "s"}',
    ],
    ids=["nan", "infinity", "surrogate", "nul", "words that are secret elsewhere"],
)
async def test_a_handler_gets_any_response_again(app: App, body: bytes) -> None:
    """What is no JSON that a store holds does not lose the answer of a request that was sent; nor does a word such as `code`."""
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, content=body)

    @app.job(backoff=NOW)
    async def agent(ctx: JobContext) -> str:
        async with perdure.http.client(ctx, transport=httpx.MockTransport(answer)) as http:
            got = await http.post(
                "https://api.example/token?code=geheim",
                data={"client_secret": "geheim", "code": "geheim", "grant": "x"},
            )
        if ctx.attempt == 1:
            raise OSError("once more")
        return repr(got.content)

    handle = await app.enqueue(agent)
    async with working(app):
        assert await handle.result(PATIENCE) == repr(body)
    assert len(sent) == 1
    log = str([event.payload for event in await handle.events()])
    assert "geheim" not in log
    assert "grant=x" in log


async def test_a_job_with_requests_replays_without_a_network() -> None:
    seen: list[httpx.Request] = []
    transports: list[httpx.AsyncBaseTransport] = [server(seen)]
    async with TestApp() as app:

        @app.job
        async def agent(ctx: JobContext) -> int:
            async def ask() -> int:
                async with perdure.http.client(ctx, transport=transports[-1], tools=()) as http:
                    return int((await http.post("https://api.example/v1", json={"a": 1})).json()["n"])

            async with perdure.http.client(ctx, transport=transports[-1]) as http:
                n = int((await http.get("https://api.example/v1")).json()["n"])
            await ctx.sleep("rest", "1h")
            return n + await ctx.step("ask", ask)

        handle = await app.enqueue(agent)
        assert await handle.result() == 3
        [recording] = recordings_of([r async for r in app.jobs.export(handle.id)], "it")

        def never(request: httpx.Request) -> httpx.Response:
            raise AssertionError(f"{request.url} was asked")

        transports.append(httpx.MockTransport(never))
        assert (await replay(app, recording)).result == 3
    assert len(seen) == 2


@pytest.mark.parametrize("again", [False, True])
async def test_a_plain_handler_records_as_well(again: bool) -> None:
    seen: list[httpx.Request] = []
    async with TestApp() as app:

        @app.job(backoff=NOW)
        def agent(ctx: BlockingContext) -> int:
            transport = perdure.http.BlockingRecordingTransport(ctx, server(seen), hidden=["x-number"])
            with httpx.Client(transport=transport) as http:
                n = int(http.get("https://api.example/v1").json()["n"])
            if again and ctx.attempt == 1:
                raise OSError
            return n

        handle = await app.enqueue(agent)
        assert await handle.result() == 1
        assert len(seen) == 1
        [step] = [e for e in await handle.events() if e.type == "node_finished"]
        assert ["x-number", "[redacted]"] in step.payload["result"]["headers"]
