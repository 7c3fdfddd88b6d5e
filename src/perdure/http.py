"""HTTP exchanges as recorded steps, for httpx and what is built on it: the clients of OpenAI and Anthropic take an
`http_client`.

Needs httpx: `pip install 'perdure[http]'`. What is recorded is answered from the record by later attempts, forks and replays.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from perdure.model.errors import ExtraMissing

try:
    import httpx
except ModuleNotFoundError:
    raise ExtraMissing("perdure.http needs httpx, which is not installed", hint="pip install 'perdure[http]'") from None

HIDDEN = "[redacted]"

SECRET_NAMES = frozenset(
    {
        "access_token",
        "api_key",
        "apikey",
        "auth",
        "authorization",
        "client_secret",
        "code",
        "cookie",
        "credential",
        "credentials",
    }
    | {
        "id_token",
        "key",
        "passwd",
        "password",
        "proxy_authorization",
        "refresh_token",
        "secret",
        "session",
        "set_cookie",
        "sig",
    }
    | {"signature", "token", "x_amz_security_token", "x_amz_signature", "x_api_key", "x_auth_token", "x_goog_api_key"}
)
"""Names of headers, and of keys of queries, forms and JSON bodies, whose values are not recorded; case, `-` and `_` do not
matter."""

_NOT_IN_JSON = frozenset({"code", "key", "session"})
"""Of these: there they name errors, projects and conversations, by which a handler goes on."""

_FORM = "application/x-www-form-urlencoded"
_UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
_OF_THE_BODY = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers that are no longer true of a body that was read."""


class _Context(Protocol):
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any) -> Any: ...
    def tool(self, name: str, fn: Callable[..., Any], /, *args: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Recorder:
    """What is recorded of an exchange, and how.

    tools: methods that are recorded as side effects, by `ctx.tool`: a call that a crash cut off is not silently repeated. Give ()
    where repeating is harmless, as for models. hidden: more names whose values are not recorded.
    """

    tools: tuple[str, ...] = _UNSAFE
    hidden: frozenset[str] = field(default_factory=frozenset)

    def request(self, request: httpx.Request) -> dict[str, Any]:
        """A request as it is recorded, without secrets; another one under the same name is another call. Headers are left out."""
        return {"method": request.method, "url": self.url(str(request.url)), "body": self._body(request)}

    def response(self, response: httpx.Response) -> dict[str, Any]:
        """A response as it is recorded, its body read."""
        headers = [
            [name, HIDDEN if self._secret(name) else value]
            for name, value in response.headers.multi_items()
            if name.lower() not in _OF_THE_BODY
        ]
        return {"status": response.status_code, "headers": headers, **self._body(response)}

    def url(self, url: str) -> str:
        """An address without its user and without secret values in its query."""
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, self._pairs(parts.query), ""))

    def _pairs(self, text: str) -> str:
        pairs = parse_qsl(text, keep_blank_values=True)
        return urlencode([(name, HIDDEN if self._secret(name) else value) for name, value in pairs])

    def _body(self, of: httpx.Request | httpx.Response) -> dict[str, Any]:
        content = of.content
        if not content:
            return {}
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(content).decode()}
        if of.headers.get("content-type", "").lower().startswith(_FORM):
            return {"text": self._pairs(text)}
        try:
            value = self._masked(json.loads(text))
            json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        except (ValueError, RecursionError):  # also what no store holds: NaN, half a surrogate pair
            return {"text": text}
        return {"json": value}

    def _masked(self, value: Any) -> Any:
        match value:
            case dict():
                return {
                    k: HIDDEN if isinstance(v, str) and self._secret(k, _NOT_IN_JSON) else self._masked(v)
                    for k, v in value.items()
                }
            case list():
                return [self._masked(v) for v in value]
            case _:
                return value

    def _secret(self, name: str, besides: frozenset[str] = frozenset()) -> bool:
        plain = name.lower().replace("-", "_")
        return plain in SECRET_NAMES - besides or plain in {h.lower().replace("-", "_") for h in self.hidden}

    def name(self, request: httpx.Request) -> str:
        """The name of its step: `POST api.openai.com/v1/responses`."""
        return quote(f"{request.method} {request.url.netloc.decode()}{request.url.path}", safe=" /:.-_~")[:150]


def _recorder(tools: Iterable[str], hidden: Iterable[str]) -> Recorder:
    return Recorder(tuple(method.upper() for method in tools), frozenset(hidden))


def _response(recorded: dict[str, Any], request: httpx.Request) -> httpx.Response:
    if "base64" in recorded:
        content = base64.b64decode(recorded["base64"])
    elif "json" in recorded:
        content = json.dumps(recorded["json"], ensure_ascii=False).encode()
    else:
        content = recorded.get("text", "").encode()
    headers = [(name, value) for name, value in recorded["headers"]]
    return httpx.Response(recorded["status"], headers=headers, content=content, request=request)


class RecordingTransport(httpx.AsyncBaseTransport):
    """The transport of an `httpx.AsyncClient` in a handler: each request is a recorded step or tool of the job.

    ctx: the handler's JobContext. transport: what sends the requests; None: over the network. tools, hidden: see `Recorder`. A
    response is read as a whole and is at most 1 MiB; secrets in it are masked in the record, and so in what a later attempt gets.
    """

    def __init__(
        self,
        ctx: _Context,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        tools: Iterable[str] = _UNSAFE,
        hidden: Iterable[str] = (),
    ) -> None:
        self._ctx = ctx
        self._transport = transport or httpx.AsyncHTTPTransport()
        self._recorder = _recorder(tools, hidden)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, or answer it from the record. Raises what the transport raises, StepChanged, TooLarge."""
        await request.aread()
        live: list[httpx.Response] = []

        async def send(asked: dict[str, Any]) -> dict[str, Any]:
            del asked
            response = await self._transport.handle_async_request(request)
            try:
                await response.aread()
            finally:
                await response.aclose()
            live.append(response)
            return self._recorder.response(response)

        call = self._ctx.tool if request.method in self._recorder.tools else self._ctx.step
        recorded = await call(self._recorder.name(request), send, self._recorder.request(request))
        return _answer(live, recorded, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


class BlockingRecordingTransport(httpx.BaseTransport):
    """As `RecordingTransport`, for an `httpx.Client` in a plain handler. ctx: its BlockingContext."""

    def __init__(
        self,
        ctx: _Context,
        transport: httpx.BaseTransport | None = None,
        *,
        tools: Iterable[str] = _UNSAFE,
        hidden: Iterable[str] = (),
    ) -> None:
        self._ctx = ctx
        self._transport = transport or httpx.HTTPTransport()
        self._recorder = _recorder(tools, hidden)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """See `RecordingTransport.handle_async_request`."""
        request.read()
        live: list[httpx.Response] = []

        def send(asked: dict[str, Any]) -> dict[str, Any]:
            del asked
            response = self._transport.handle_request(request)
            try:
                response.read()
            finally:
                response.close()
            live.append(response)
            return self._recorder.response(response)

        call = self._ctx.tool if request.method in self._recorder.tools else self._ctx.step
        recorded = call(self._recorder.name(request), send, self._recorder.request(request))
        return _answer(live, recorded, request)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


def _answer(live: list[httpx.Response], recorded: dict[str, Any], request: httpx.Request) -> httpx.Response:
    """The response itself where the request was sent, else the recorded one."""
    if not live:
        return _response(recorded, request)
    headers = [(name, value) for name, value in live[-1].headers.multi_items() if name.lower() not in _OF_THE_BODY]
    return httpx.Response(live[-1].status_code, headers=headers, content=live[-1].content, request=request)


def client(
    ctx: _Context,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    tools: Iterable[str] = _UNSAFE,
    hidden: Iterable[str] = (),
    **options: Any,
) -> httpx.AsyncClient:
    """An `httpx.AsyncClient` whose exchanges are recorded. options: of httpx: base_url, headers, timeout. The rest: see
    `RecordingTransport`."""
    return httpx.AsyncClient(transport=RecordingTransport(ctx, transport, tools=tools, hidden=hidden), **options)
