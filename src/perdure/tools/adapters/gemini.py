"""gemini, of Google."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.model.tooling import RunClass, Usage
from perdure.tools.adapters.base import Adapter, Ended, Invocation, Program, Reader, Request, of_stderr
from perdure.tools.verdicts import Verdict, by_status, by_text, one_line

_STATUS_OF_EXIT = {
    144: 400, 145: 401, 146: 402, 147: 403, 152: 408, 173: 429, 244: 500, 246: 502, 247: 503, 248: 504, 17: 529,
}  # fmt: skip
"""An HTTP status modulo 256, because an exit code has one byte."""
_OF_EXIT = {
    41: Verdict(RunClass.AUTH, "41"),
    42: Verdict(RunClass.FATAL, "input"),
    44: Verdict(RunClass.FATAL, "sandbox"),
    52: Verdict(RunClass.FATAL, "config"),
    53: Verdict(RunClass.FATAL, "turns"),
    55: Verdict(RunClass.FATAL, "untrusted"),
}
_ATTEMPT = re.compile(r"Attempt \d+ failed:? ?(.*)")
_WAIT = re.compile(r"Retrying after ([\d.]+)\s*ms")


class GeminiReader(Reader):
    """Events of `gemini -o stream-json`."""

    def __init__(self) -> None:
        super().__init__()
        self._result: dict[str, Any] | None = None
        self._errors: list[str] = []
        self._parts: list[str] = []
        self._attempt: str | None = None  # what is said of a failed attempt goes over several lines

    def event(self, event: dict[str, Any], now: float) -> None:  # noqa: ARG002  it has no warnings here
        """See Reader."""
        kind = event.get("type")
        if kind == "init":
            self.session_id = event.get("session_id")
        elif kind == "message" and event.get("role") == "assistant":
            self.progress()
            self._parts.append(str(event.get("content") or ""))
            self.final_text = "".join(self._parts)
        elif kind in ("tool_use", "tool_result"):
            self.progress()
            self._parts = []  # what comes after the last tool call is the answer
            self.denials += _is_denial(event)
        elif kind == "error":
            self._errors.append(str(event.get("message") or event.get("error") or ""))
        elif kind == "result":
            self._result = event
            self.usage = _usage(event.get("stats") or {})

    def error_line(self, line: str, now: float) -> None:
        """See Reader."""
        if found := _ATTEMPT.search(line):
            self._attempt = found[1]
        elif self._attempt is not None:
            self._attempt += "\n" + line
        else:
            return
        if wait := _WAIT.search(self._attempt):
            verdict = by_text(self._attempt) or Verdict(RunClass.RETRYABLE, "network", one_line(self._attempt))
            delay = verdict.retry_after if verdict.retry_after is not None else float(wait[1]) / 1000
            self.warn(verdict._replace(retry_after=delay), now)
        if wait or "Max attempts reached" in self._attempt or len(self._attempt) > 10_000:
            self._attempt = None

    def verdict(self, ended: Ended) -> Verdict:
        """See Reader."""
        result = self._result
        if result is not None and result.get("status") == "success" and ended.exit_code == 0 and not ended.stopped:
            return Verdict(RunClass.OK, "") if self.final_text.strip() else Verdict(RunClass.RETRYABLE, "empty")
        if ended.stopped:
            return Verdict(RunClass.TIMEOUT, "")
        if result is None:
            if ended.exit_code == 0:
                return Verdict(RunClass.UNKNOWN, "no_result_event")
            return _of_exit(ended) or of_stderr(ended.stderr) or Verdict(RunClass.UNKNOWN, "")
        error = result.get("error")
        if not error:
            return by_text("\n".join(self._errors)) or Verdict(RunClass.RETRYABLE, "empty")
        message = str(error.get("message") if isinstance(error, dict) else error)
        status = _STATUS_OF_EXIT.get(ended.exit_code)
        return (
            by_text(message)
            or (by_status(status, message) if status is not None else None)
            or (_OF_EXIT[53]._replace(message=one_line(message)) if ended.exit_code == 53 else None)
            or Verdict(RunClass.UNKNOWN, "", one_line(message))
        )


class Gemini(Adapter):
    """gemini has no shell tool unless everything is allowed to it."""

    name = "gemini"
    program = "gemini"
    install = "npm install -g @google/gemini-cli"
    versions = ("0.40.0", "1.0.0")
    credential = ".gemini/oauth_creds.json"
    own_home = "GEMINI_CLI_HOME"
    prompt_limit = 8 * 1024 * 1024
    session_pattern = ".gemini/tmp/*/chats/session-*-{short}.json*"
    address_bytes = 64 << 30  # its WebAssembly reserves that much

    def locate(self, path: Path) -> Program:
        """See Adapter. It reads its whole package, and those that npm put next to it."""
        modules = next((above for above in path.parents if above.name == "node_modules"), path.parent.parent)
        return Program((str(path),), (modules,))

    def command(self, request: Request) -> Invocation:
        """See Adapter. The key is in the environment; the prompt comes by standard input."""
        task, settings = request.task, request.settings
        env = {name: value for name, value in request.env.items() if name != self.own_home}
        env |= {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "1"}
        options: dict[str, Any] = {
            "security": {"auth": {"selectedType": _login(request)}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {
                "enableAutoUpdate": False,
                "enableAutoUpdateNotification": False,
                "maxAttempts": min(settings.retries + 1, 10),
                "retryFetchErrors": settings.retries > 0,
            },
        }
        if request.mcp_servers:
            options["mcpServers"] = {name: {**server, "trust": True} for name, server in request.mcp_servers.items()}
        args = ["--approval-mode", "yolo" if request.dangerous else "auto_edit", "-o", "stream-json"]
        if task.model is not None:
            args += ["-m", task.model]
        if task.session is not None:
            args += ["--resume", task.session]
        return Invocation(tuple(args), env, task.prompt, {".gemini/settings.json": json.dumps(options)})

    def session_files(self, name: str, text: str, workspace: Path) -> Mapping[str, str]:
        """See Adapter. A list says which folder belongs to the workspace."""
        return {
            ".gemini/projects.json": json.dumps({"projects": {str(workspace): "workspace"}}),
            ".gemini/tmp/workspace/.project_root": str(workspace),
            ".gemini/history/workspace/.project_root": str(workspace),
            f".gemini/tmp/workspace/chats/{name}": text,
        }

    def reader(self) -> GeminiReader:
        """See Adapter."""
        return GeminiReader()


def _login(request: Request) -> str:
    if "GEMINI_API_KEY" in request.env:
        return "gemini-api-key"
    if "GOOGLE_API_KEY" in request.env or "GOOGLE_CLOUD_PROJECT" in request.env:
        return "vertex-ai"
    return "oauth-personal" if request.credential else "gemini-api-key"


def _of_exit(ended: Ended) -> Verdict | None:
    verdict = _OF_EXIT.get(ended.exit_code)
    return verdict and verdict._replace(message=one_line(ended.stderr))


def _is_denial(event: dict[str, Any]) -> bool:
    text = f"{event.get('output') or ''} {event.get('error') or ''}"
    return (
        event.get("status") == "error" and re.search(r'denied|not allowed|Tool \\?"\w+\\?" not found', text) is not None
    )


def _usage(stats: dict[str, Any]) -> Usage:
    """Its input tokens include those of the cache; what the total has besides them is output and thoughts."""
    tokens_in = int(stats.get("input_tokens") or 0)
    return Usage(
        tokens_in=tokens_in,
        tokens_out=max(0, int(stats.get("total_tokens") or 0) - tokens_in),
        tokens_cached=int(stats.get("cached") or 0),
    )
