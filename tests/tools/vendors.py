"""What each vendor's API answers, in its own form."""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

ANSWER = "done as asked."
TOKENS_IN, TOKENS_CACHED, TOKENS_OUT, TOKENS_THOUGHT = 1200, 1000, 34, 8
COMMAND = "printf hello > results.txt"
SHELLS = ("exec_command", "shell_command", "shell", "Bash", "run_shell_command")
WRITERS = ("Write", "write_file")

Answer = tuple[int, Any, dict[str, str]]
Event = dict[str, Any]


class Vendor(ABC):
    """An API."""

    texts: dict[int, tuple[str, str]]
    other = ("server_error", "The server had an error while processing your request.")

    @abstractmethod
    def failure(self, what: str, ra: int | None) -> Answer:
        """The answer with an HTTP status of failure."""

    @abstractmethod
    def answer(self, what: str, cmd: str, request: Event, path: str) -> Iterator[Event]:
        """The events of an answer."""

    def streamed(self, request: Event, path: str) -> bool:
        """Whether the CLI wants a stream."""
        return bool(request.get("stream"))

    def whole(self, what: str, request: Event, path: str) -> Answer:
        """The answer where the CLI wants none in pieces."""
        return 404, {"error": {"message": "streams only"}}, {}


def of_path(path: str) -> Vendor | None:
    if path.endswith("/responses"):
        return OpenAi()
    if path.endswith("/messages"):
        return Anthropic()
    if re.search(r":(streamG|g)enerateContent$", path):
        return Google()
    return None


def call_of(tools: dict[str, Any], cmd: str, folder: str) -> tuple[str, dict[str, Any]]:
    """A call of one of the CLI's own tools: of its shell, or where it has none, of what writes a file."""
    for name in WRITERS:
        if name in tools and not cmd:
            return name, {"file_path": f"{folder}/results.txt", "content": "hello"}
    for name in SHELLS:
        if name in tools:
            key = "cmd" if name == "exec_command" else "command"
            return name, {key: cmd or COMMAND, "description": "write the results"}
    return SHELLS[-1], {"command": cmd or COMMAND}


def folder_in(request: Event) -> str:
    """The working folder, as the CLI says it to the model."""
    text = "\n".join(_texts(request))
    for pattern in (
        r"<cwd>([^<\n]+)</cwd>",
        r"[Ww]orking directory: ([^\n\"]+)",
        r"Workspace Directories:\**\s+- ([^\n\"]+)",
    ):
        if found := re.search(pattern, text):
            return found[1].strip().rstrip(".`'")
    return "."


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _retry_after(ra: int | None) -> dict[str, str]:
    return {} if ra is None else {"Retry-After": str(ra)}


def _function_call(name: str, arguments: dict[str, Any]) -> Event:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": name,
        "arguments": json.dumps(arguments),
    }


def _code_call(cmd: str) -> Event:
    """The newest models of OpenAI call tools by JavaScript, and get their list in a message."""
    code = f"text(await tools.exec_command({json.dumps({'cmd': cmd or COMMAND})}))"
    return {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "exec", "input": code}


class OpenAi(Vendor):
    """Responses."""

    def failure(self, what: str, ra: int | None) -> Answer:
        if what == "plan":
            body = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus"}
            return 429, {"error": {**body, "resets_at": int(time.time()) + 3600, "resets_in_seconds": 3600}}, {}
        kind, text, code = {
            "401": ("invalid_request_error", "Incorrect API key provided: sk-****.", "invalid_api_key"),
            "429": ("tokens", "Rate limit reached. Please try again in 2s.", "rate_limit_exceeded"),
            "529": ("server_error", "The engine is currently overloaded", "server_is_overloaded"),
        }.get(what, (*self.other, None))
        return int(what), {"error": {"type": kind, "message": text, "code": code}}, _retry_after(ra)

    def answer(self, what: str, cmd: str, request: Event, path: str) -> Iterator[Event]:
        tools = {t.get("name"): t for t in request.get("tools") or [] if t.get("name")}
        used = any(i.get("type", "").endswith("_output") for i in request.get("input") or [] if isinstance(i, dict))
        response = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "output": [],
            "status": "in_progress",
        }
        yield {"type": "response.created", "response": response}
        if what == "overloaded":
            error = {"code": "server_is_overloaded", "message": "Our servers are currently overloaded."}
            yield {"type": "response.failed", "response": {**response, "status": "failed", "error": error}}
            return
        if what == "write" and not used:
            item: Event = _code_call(cmd) if not tools else _function_call(*call_of(tools, cmd, folder_in(request)))
        else:
            content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
            item = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
        if what != "empty":
            begun = {**item, "status": "in_progress", **({"content": []} if "content" in item else {})}
            yield {"type": "response.output_item.added", "output_index": 0, "item": begun}
            yield {"type": "response.output_item.done", "output_index": 0, "item": {**item, "status": "completed"}}
        usage = {
            "input_tokens": TOKENS_IN,
            "input_tokens_details": {"cached_tokens": TOKENS_CACHED},
            "output_tokens": TOKENS_OUT,
            "output_tokens_details": {"reasoning_tokens": TOKENS_THOUGHT},
            "total_tokens": TOKENS_IN + TOKENS_OUT,
        }
        yield {"type": "response.completed", "response": {**response, "status": "completed", "usage": usage}}


class Anthropic(Vendor):
    """Messages."""

    def failure(self, what: str, ra: int | None) -> Answer:
        status = 429 if what == "plan" else int(what)
        kind, text = {
            401: ("authentication_error", "invalid x-api-key"),
            429: (
                "rate_limit_error",
                "This request would exceed your organization's rate limit of 50 requests per minute.",
            ),
            529: ("overloaded_error", "Overloaded"),
        }.get(status, ("api_error", "Internal server error"))
        headers = _retry_after(ra)
        if what == "plan":
            headers = {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-reset": str(int(time.time()) + 3600),
                "anthropic-ratelimit-unified-representative-claim": "five_hour",
            }
        return status, {"type": "error", "error": {"type": kind, "message": text}}, headers

    def answer(self, what: str, cmd: str, request: Event, path: str) -> Iterator[Event]:
        yield {"type": "message_start", "message": self._message(request)}
        if what == "overloaded":
            yield {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            return
        block = self._block(what, cmd, request)
        if what != "empty":
            if "input" in block:
                yield {"type": "content_block_start", "index": 0, "content_block": {**block, "input": {}}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            else:
                yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
                delta = {"type": "text_delta", "text": ANSWER}
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
            yield {"type": "content_block_stop", "index": 0}
        stop = "tool_use" if "input" in block else "end_turn"
        usage = {**self._message(request)["usage"], "output_tokens": TOKENS_OUT}
        yield {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
        yield {"type": "message_stop"}

    def whole(self, what: str, request: Event, path: str) -> Answer:
        if what == "overloaded":
            return self.failure("529", None)
        content = [] if what == "empty" else [{"type": "text", "text": ANSWER}]
        return 200, {**self._message(request), "content": content, "stop_reason": "end_turn"}, {}

    def _block(self, what: str, cmd: str, request: Event) -> Event:
        tools = {t.get("name"): t for t in request.get("tools") or []}
        contents = [m["content"] for m in request.get("messages") or [] if isinstance(m.get("content"), list)]
        used = any(block.get("type") == "tool_result" for content in contents for block in content)
        if what != "write" or used or not tools:
            return {"type": "text", "text": ANSWER}
        name, arguments = call_of(tools, cmd, folder_in(request))
        return {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}

    def _message(self, request: Event) -> Event:
        usage = {
            "input_tokens": TOKENS_IN - TOKENS_CACHED,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": TOKENS_CACHED,
            "output_tokens": 1,
        }
        message: Event = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": request.get("model"),
            "content": [],
        }
        return {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}


class Google(Vendor):
    """generateContent."""

    def failure(self, what: str, ra: int | None) -> Answer:
        status = 429 if what == "plan" else int(what)
        name, text = {
            401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
            429: ("RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details."),
            529: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
        }.get(status, ("INTERNAL", "An internal error has occurred."))
        error: Event = {"code": status, "message": text, "status": name}
        if status == 429:
            period = "PerDay" if what == "plan" else "PerMinute"
            kinds = "type.googleapis.com/google.rpc."
            violation = {"quotaId": f"GenerateRequests{period}PerProjectPerModel-FreeTier", "quotaValue": "5"}
            error["details"] = [{"@type": f"{kinds}QuotaFailure", "violations": [violation]}]
            if ra is not None:
                error["details"].append({"@type": f"{kinds}RetryInfo", "retryDelay": f"{ra}s"})
        return status, {"error": error}, {}

    def streamed(self, request: Event, path: str) -> bool:
        return ":streamGenerateContent" in path

    def answer(self, what: str, cmd: str, request: Event, path: str) -> Iterator[Event]:
        tools = {f["name"]: f for tool in request.get("tools") or [] for f in tool.get("functionDeclarations") or []}
        parts = [part for content in request.get("contents") or [] for part in content.get("parts") or []]
        used = any("functionResponse" in part for part in parts)
        if what == "overloaded":
            yield self.failure("529", None)[1]
            return
        if what == "empty":
            yield self._chunk([], "STOP")
            return
        if what == "write" and tools and not used:
            name, arguments = call_of(tools, cmd, folder_in(request))
            yield self._chunk([{"functionCall": {"name": name, "args": arguments}}])
        else:
            yield self._chunk([{"text": ANSWER[:4]}])
            yield self._chunk([{"text": ANSWER[4:]}])
        yield self._chunk([{"text": ""}], "STOP")

    def whole(self, what: str, request: Event, path: str) -> Answer:
        return 200, self._chunk([{"text": ANSWER}], "STOP"), {}

    def _chunk(self, parts: list[Event], finish: str | None = None) -> Event:
        usage = {
            "promptTokenCount": TOKENS_IN,
            "candidatesTokenCount": TOKENS_OUT,
            "cachedContentTokenCount": TOKENS_CACHED,
            "thoughtsTokenCount": TOKENS_THOUGHT,
            "totalTokenCount": TOKENS_IN + TOKENS_OUT + TOKENS_THOUGHT,
        }
        candidate: Event = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish is not None:
            candidate["finishReason"] = finish
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}
