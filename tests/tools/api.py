"""The APIs of OpenAI, Anthropic and Google as far as their CLIs need them, on a port of this machine. The first part of the path
of a base URL says what happens: `/write`, `/429;ra=30`, `/hang`; see `Plan`."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

from tests.tools import vendors


@dataclass
class Plan:
    """What a request gets. what: `text` or `write` (a tool call that runs `cmd`, then an answer), an HTTP status, `plan` (a
    window of a subscription is used up), `overloaded` (an error in the stream), `empty`, `hang` (no answer), `stall` (it
    stops). ra: Retry-After in seconds. ok: so many requests get a tool call first. cmd: a shell command instead of the one that
    writes results.txt."""

    what: str
    ra: int | None = None
    ok: int = 0
    cmd: str = ""
    label: str = ""


def plan_of(part: str) -> Plan:
    what, *options = part.split(";")
    plan = Plan(what)
    for option in options:
        name, _, value = option.partition("=")
        setattr(plan, name, int(value) if name in ("ra", "ok") else unquote(value).replace("~", " ").replace("|", "/"))
    return plan


class Api(ThreadingHTTPServer):
    """`with Api() as api: api.url("write")`. requests: model requests of each base URL; keys: what was sent as a key; last:
    the text of the last request of each base URL."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: dict[str, int] = {}
        self.keys: set[str] = set()
        self.last: dict[str, str] = {}
        self.stopping = threading.Event()
        self._numbers = iter(range(1, 1_000_000))

    def url(self, plan: str) -> str:
        """A base URL of its own."""
        return f"http://127.0.0.1:{self.server_address[1]}/{plan};label={next(self._numbers)}"

    def asked(self, url: str) -> int:
        """How many model requests this base URL got."""
        return self.requests.get(url.rpartition("/")[2], 0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A CLI that went away is no error."""

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [], "models": []})

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = self._body()
        request = json.loads(body or b"{}")
        _, part, *rest = self.path.split("?")[0].split("/")
        self.server.last[part] = body.decode()
        plan = plan_of(part)
        vendor = vendors.of_path("/".join(rest))
        if vendor is None:
            self._send(404, {"error": {"message": "no such path"}})
            return
        for header in ("authorization", "x-api-key", "x-goog-api-key"):
            if header in self.headers:
                self.server.keys.add(self.headers[header].removeprefix("Bearer "))
        number = self.server.requests[part] = self.server.requests.get(part, 0) + 1
        if number <= plan.ok:
            plan.what = "write"
        if plan.what.isdigit() or plan.what == "plan":
            status, body, headers = vendor.failure(plan.what, plan.ra)
            self._send(status, body, headers)
        elif plan.what == "hang":
            self.server.stopping.wait(60)
        else:
            self._stream(vendor, plan, request)

    def _stream(self, vendor: vendors.Vendor, plan: Plan, request: dict[str, Any]) -> None:
        events = vendor.answer(plan.what, plan.cmd, request, self.path)
        if not vendor.streamed(request, self.path):
            self._send(*vendor.whole(plan.what, request, self.path))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for number, event in enumerate(events):
            if plan.what == "stall" and number == 2:
                self.server.stopping.wait(60)
                return
            kind = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{kind}data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline() or b"0", 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        with suppress(ConnectionError):
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **(headers or {}),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
