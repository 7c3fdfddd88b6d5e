"""Whether the error of a tool says what became of its call.

A tool whose request was sent and whose answer did not come may have had its effect: its outcome is unknown. Such errors are
known by the names of their classes and packages, so that no client library is imported. `ctx.options(unknown_on=, known_on=)`
adds classes of one's own.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import Enum
from typing import Any

from perdure.model.errors import Verdict

ErrorClasses = type[BaseException] | tuple[type[BaseException], ...]


class Says(Enum):
    """What a class of errors says about a request."""

    LOST = "it was sent, or a part of it, and no answer was read"
    KNOWN = "it was not sent, or it was answered"
    BROKEN = "a connection broke or a time was up: it may have been sent, unless what lies below says that it was not"


_BY_SENT = {
    Says.LOST: "ReadTimeout WriteTimeout ReadError WriteError CloseError NetworkError RemoteProtocolError LocalProtocolError "
    "ProtocolError ProxyError TimeoutException TransportError DecodingError TooManyRedirects",
    Says.KNOWN: "ConnectError ConnectTimeout PoolTimeout UnsupportedProtocol HTTPStatusError",
}
_NAMES: dict[str, dict[Says, str]] = {
    "httpx": _BY_SENT,
    "httpx2": _BY_SENT,
    "httpcore": _BY_SENT,
    "httpcore2": _BY_SENT,
    "requests": {
        Says.LOST: "ReadTimeout ChunkedEncodingError ContentDecodingError TooManyRedirects RetryError",
        Says.KNOWN: "ConnectTimeout HTTPError InvalidURL MissingSchema InvalidSchema InvalidHeader InvalidProxyURL",
        Says.BROKEN: "ConnectionError Timeout SSLError ProxyError",
    },
    "urllib3": {
        Says.LOST: "ReadTimeoutError ProtocolError IncompleteRead InvalidChunkLength DecodeError ResponseError",
        Says.KNOWN: "ConnectTimeoutError NewConnectionError NameResolutionError EmptyPoolError ClosedPoolError "
        "LocationValueError",
        Says.BROKEN: "MaxRetryError SSLError TimeoutError ProxyError",
    },
    "aiohttp": {
        Says.LOST: "ServerDisconnectedError SocketTimeoutError ClientPayloadError ClientOSError ClientConnectionResetError "
        "ClientConnectionError HttpProcessingError BadHttpMessage",
        Says.KNOWN: "ClientConnectorError ClientSSLError ConnectionTimeoutError ClientResponseError InvalidURL",
        Says.BROKEN: "ServerTimeoutError",
    },
    "http": {
        Says.LOST: "RemoteDisconnected BadStatusLine IncompleteRead LineTooLong HTTPException",
        Says.KNOWN: "NotConnected InvalidURL UnknownProtocol CannotSendRequest CannotSendHeader",
    },
    "urllib": {Says.KNOWN: "HTTPError", Says.BROKEN: "URLError", Says.LOST: "ContentTooShortError"},
    "socket": {Says.KNOWN: "gaierror herror"},
    "ssl": {Says.KNOWN: "SSLCertVerificationError", Says.BROKEN: "SSLError"},
    "asyncio": {Says.LOST: "IncompleteReadError"},
    "builtins": {Says.KNOWN: "ConnectionRefusedError", Says.BROKEN: "TimeoutError ConnectionError"},
}
CLASSES = {
    (package, name): says
    for package, sorts in _NAMES.items()
    for says, names in sorts.items()
    for name in names.split()
}
"""What is known of a class, by the package it is from and its name. Of an error the nearest of its classes counts."""

_AWAY = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENETRESET, errno.ESHUTDOWN}
_ANSWERED = {
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
}
"""The codes of gRPC with which a server refuses a call. All others may also stand for an answer that was lost."""


def outcome_known(error: Exception, unknown_on: ErrorClasses = (), known_on: ErrorClasses = ()) -> bool:
    """Whether a call that raised this did not happen. False: it may have happened.

    What the error was made of counts too: its cause, the error it was raised in the place of (unless `from None`), what it holds
    as `reason` or among its arguments, and the members of a group. An answer lost anywhere in it makes the outcome unknown. A
    verdict of perdure's (`Retry`, `Fail`, ...) is a word of the tool's own and always known.
    """
    if isinstance(error, unknown_on):
        return False
    if isinstance(error, (known_on, Verdict)):
        return True
    said = {says for part in _parts(error) if (says := _said(part)) is not None}
    return Says.LOST not in said and (Says.KNOWN in said or Says.BROKEN not in said)


def _said(error: BaseException) -> Says | None:
    for cls in type(error).__mro__:
        package = cls.__module__.partition(".")[0]
        if package == "grpc" and cls.__name__ == "RpcError":
            return Says.KNOWN if _grpc_code(error) in _ANSWERED else Says.LOST
        if (says := CLASSES.get((package, cls.__name__))) is not None:
            return says
    return Says.BROKEN if isinstance(error, OSError) and error.errno in _AWAY else None


def _grpc_code(error: Any) -> str:
    code = getattr(error, "code", None)
    return str(getattr(code() if callable(code) else None, "name", ""))


def _parts(error: BaseException) -> Iterator[BaseException]:
    """The error and those it was made of, each once."""
    seen: set[int] = set()
    left: list[object] = [error]
    while left:
        part = left.pop()
        if not isinstance(part, BaseException) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        left += [part.__cause__, getattr(part, "reason", None), *part.args]
        if not part.__suppress_context__:
            left.append(part.__context__)
        if isinstance(part, BaseExceptionGroup):
            left += part.exceptions
