"""claude, of Anthropic."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from perdure.model.tooling import RunClass, Usage
from perdure.tools.adapters.base import Adapter, Ended, Invocation, Program, Reader, Request, of_stderr
from perdure.tools.verdicts import Verdict, by_status, by_text, one_line, until

_KINDS: Mapping[str, tuple[RunClass, str]] = {
    "authentication_failed": (RunClass.AUTH, "authentication_failed"),
    "oauth_org_not_allowed": (RunClass.AUTH, "oauth_org_not_allowed"),
    "billing_error": (RunClass.FATAL, "billing"),
    "rate_limit": (RunClass.RATE_LIMITED, "api"),
    "overloaded": (RunClass.RETRYABLE, "server"),
    "server_error": (RunClass.RETRYABLE, "server"),
    "model_not_found": (RunClass.FATAL, "model"),
    "max_output_tokens": (RunClass.FATAL, "max_output"),
    "invalid_request": (RunClass.FATAL, "request"),
}
_LIMITS_OF_RUNS = ("error_max_turns", "error_max_budget_usd", "error_max_structured_output_retries")


class ClaudeReader(Reader):
    """Events of `claude -p --output-format stream-json`."""

    def __init__(self) -> None:
        super().__init__()
        self._result: dict[str, Any] | None = None
        self._error: str | None = None
        self._window: float | None = None

    def event(self, event: dict[str, Any], now: float) -> None:
        """See Reader."""
        self.session_id = event.get("session_id") or self.session_id
        kind = event.get("type")
        if kind == "assistant":
            self._error = event.get("error")
            if not self._error:
                self.progress()
        elif kind == "rate_limit_event":
            self._limit(event.get("rate_limit_info") or {}, now)
        elif kind == "system" and event.get("subtype") == "api_retry":
            self._retry(event, now)
        elif kind == "result":
            self._result = event
            self.final_text = str(event.get("result") or "") if not event.get("is_error") else ""
            self.denials = len(event.get("permission_denials") or [])
            self.usage = _usage(event)

    def _limit(self, info: dict[str, Any], now: float) -> None:
        """A window of a subscription; while requests are still allowed it is only news."""
        if info.get("resetsAt") is None or str(info.get("status", "")).startswith("allowed"):
            return
        self._window = float(info["resetsAt"])
        self.warn(self._window_verdict(""), now)

    def _window_verdict(self, message: str) -> Verdict:
        assert self._window is not None
        return Verdict(RunClass.RATE_LIMITED, "plan_window", message, until(self._window))

    def _retry(self, event: dict[str, Any], now: float) -> None:
        delay = float(event["retry_delay_ms"]) / 1000 if event.get("retry_delay_ms") is not None else None
        message = f"{event.get('error') or 'error'} {event.get('error_status') or ''}".strip()
        verdict = _of_kind(event.get("error"), message) or _of_status(event.get("error_status"), message)
        self.warn((verdict or Verdict(RunClass.RETRYABLE, "network", message))._replace(retry_after=delay), now)

    def verdict(self, ended: Ended) -> Verdict:
        """See Reader. `result.subtype` is "success" for errors of the API as well, so it says nothing."""
        result = self._result
        if result is not None and not result.get("is_error") and ended.exit_code == 0:
            return Verdict(RunClass.OK, "") if self.final_text.strip() else Verdict(RunClass.RETRYABLE, "empty")
        if ended.stopped:
            return Verdict(RunClass.TIMEOUT, "")
        if result is None:
            return of_stderr(ended.stderr) or Verdict(RunClass.UNKNOWN, "")
        text = str(result.get("result") or "")
        if self._window is not None:
            return self._window_verdict(one_line(text))
        if result.get("subtype") in _LIMITS_OF_RUNS:
            return Verdict(RunClass.FATAL, str(result["subtype"]), one_line(text))
        if self._error == "server_error" and result.get("api_error_status") is None and (found := by_text(text)):
            return found  # it calls a refused connection an error of the server
        return (
            _of_kind(self._error, one_line(text))
            or _of_status(result.get("api_error_status"), text)
            or by_text(text)
            or Verdict(RunClass.UNKNOWN, "", one_line(text))
        )


class Claude(Adapter):
    """claude confines none of its tools by itself; it refuses those that its permission mode does not allow."""

    name = "claude"
    program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    versions = ("2.0.0", "3.0.0")
    credential = ".claude/.credentials.json"
    own_home = "CLAUDE_CONFIG_DIR"
    prompt_limit = 10_000_000
    address_bytes = 4 << 30
    soft_signal = "INT"  # it then reports what it used
    session_pattern = ".claude/projects/*/{id}.jsonl"

    def locate(self, path: Path) -> Program:
        """The program itself where npm put it: without install scripts the file in `bin` only says that they are missing."""
        package = path.parent.parent
        if path.parent.name == "bin" and (package / "package.json").is_file():
            for folder in (package / "node_modules" / "@anthropic-ai", package.parent):
                for native in sorted(folder.glob("claude-code-*/claude")):
                    return Program((str(native),), (native.parent,))
        return Program((str(path),), (path.parent,))

    def command(self, request: Request) -> Invocation:
        """See Adapter. The key is in the environment; the prompt comes by standard input."""
        task, settings = request.task, request.settings
        milliseconds = int(settings.idle_timeout * 1000)
        env = {
            **request.env,
            "CLAUDE_CONFIG_DIR": str(request.home / ".claude"),
            "CLAUDE_CODE_TMPDIR": str(request.tmp),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_MAX_RETRIES": str(settings.retries),
            "API_TIMEOUT_MS": str(milliseconds),
        }
        args = ["-p", "--output-format", "stream-json", "--verbose", "--setting-sources", "", "--strict-mcp-config"]
        files: dict[str, str] = {".claude/.keep": ""}
        if request.dangerous:
            args += ["--dangerously-skip-permissions", "--no-session-persistence"]
            env["IS_SANDBOX"] = "1"  # without it the flag is refused to root
        else:
            args += ["--permission-mode", "acceptEdits"]
            if task.session is None and settings.sessions is None:
                args.append("--no-session-persistence")
        if task.session is not None:
            args += ["--resume", task.session]
        if task.model is not None:
            args += ["--model", task.model]
        if request.mcp_servers:
            files["mcp.json"] = json.dumps({"mcpServers": {name: dict(s) for name, s in request.mcp_servers.items()}})
            args += ["--mcp-config", str(request.home / "mcp.json")]
            if not request.dangerous:
                args += ["--allowedTools", ",".join(f"mcp__{name}" for name in request.mcp_servers)]
        return Invocation(tuple(args), env, task.prompt, files)

    def session_files(self, name: str, text: str, workspace: Path) -> Mapping[str, str]:
        """See Adapter. A folder is named after the workspace."""
        return {f".claude/projects/{re.sub('[^A-Za-z0-9]', '-', str(workspace))}/{name}": text}

    def reader(self) -> ClaudeReader:
        """See Adapter."""
        return ClaudeReader()


def _of_kind(kind: Any, message: str) -> Verdict | None:
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    return Verdict(*_KINDS[kind], message)


def _of_status(status: Any, text: str) -> Verdict | None:
    return by_status(status, text) if isinstance(status, int) else None


def _usage(result: dict[str, Any]) -> Usage:
    """Its input tokens are without those of the cache, in either direction. The cost is the CLI's own estimate."""
    usage = result.get("usage") or {}
    cached, cost = int(usage.get("cache_read_input_tokens") or 0), result.get("total_cost_usd")
    return Usage(
        tokens_in=int(usage.get("input_tokens") or 0) + int(usage.get("cache_creation_input_tokens") or 0) + cached,
        tokens_out=int(usage.get("output_tokens") or 0),
        tokens_cached=cached,
        cost=None if cost is None else Decimal(str(cost)),
    )
