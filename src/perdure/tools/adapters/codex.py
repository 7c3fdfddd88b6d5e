"""codex, of OpenAI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.model.tooling import RunClass, Usage
from perdure.tools.adapters.base import Adapter, Ended, Invocation, Program, Reader, Request, of_stderr
from perdure.tools.verdicts import Verdict, by_text, one_line

_KEYS = ("CODEX_API_KEY", "OPENAI_API_KEY")
_DEFAULT_URL = "https://api.openai.com/v1"


class CodexReader(Reader):
    """Events of `codex exec --json`."""

    def __init__(self) -> None:
        super().__init__()
        self._completed = False
        self._failures: list[str] = []

    def event(self, event: dict[str, Any], now: float) -> None:
        """See Reader."""
        kind = event.get("type")
        if kind == "thread.started":
            self.session_id = str(event["thread_id"])
        elif kind in ("item.started", "item.completed"):
            self._item(event["item"])
        elif kind == "turn.completed":
            self._completed = True
            self.usage = _usage(event.get("usage") or {})
        elif kind == "turn.failed":
            self._failures.append(str(event["error"]["message"]))
        elif kind == "error" and "Reconnecting" in (message := str(event.get("message", ""))):
            self.warn(by_text(message) or Verdict(RunClass.RETRYABLE, "network", one_line(message)), now)

    def _item(self, item: dict[str, Any]) -> None:
        if item.get("type") == "error":  # a warning about the model or a setting
            return
        self.progress()
        if item.get("type") == "agent_message":
            self.final_text = str(item.get("text") or "")

    def verdict(self, ended: Ended) -> Verdict:
        """See Reader."""
        if ended.exit_code == 0 and self._completed:
            return Verdict(RunClass.OK, "") if self.final_text.strip() else Verdict(RunClass.RETRYABLE, "empty")
        if ended.stopped:
            return Verdict(RunClass.TIMEOUT, "")
        if self._failures:
            message = self._failures[-1]
            if found := by_text(message):
                return found
            if message.startswith("{"):
                return Verdict(RunClass.FATAL, "400", one_line(message))
            return Verdict(RunClass.UNKNOWN, "", one_line(message))
        if found := of_stderr(ended.stderr):
            return found
        if ended.exit_code == 2:
            return Verdict(RunClass.FATAL, "usage", one_line(ended.stderr))
        return Verdict(RunClass.UNKNOWN, "")


class Codex(Adapter):
    """codex runs its tools in a sandbox of its own, which needs bubblewrap: it does not start under Landlock."""

    name = "codex"
    program = "codex"
    install = "npm install -g @openai/codex"
    versions = ("0.130.0", "1.0.0")
    credential = ".codex/auth.json"
    own_home = "CODEX_HOME"
    prompt_limit = 1_048_576
    under_landlock = False
    address_bytes = 1 << 30
    session_pattern = ".codex/sessions/**/rollout-*-{id}.jsonl"

    def locate(self, path: Path) -> Program:
        """The program itself where npm put it: the script that starts it would leave it running when it is killed."""
        package = path.parent.parent
        for folder in (package / "node_modules" / "@openai", package.parent):
            for native in sorted(folder.glob("codex-*/vendor/*/bin/codex")):
                return Program((str(native),), (native.parents[1],))
        return Program((str(path),), (package,))

    def bundled_bwrap(self, program: Program) -> str | None:
        """See Adapter."""
        bwrap = Path(program.argv[0]).parents[1] / "codex-resources" / "bwrap"
        return str(bwrap) if bwrap.is_file() else None

    def command(self, request: Request) -> Invocation:
        """See Adapter. The key is in the environment; the prompt comes by standard input."""
        task, settings = request.task, request.settings
        env = {
            name: value for name, value in request.env.items() if name not in (*_KEYS, "OPENAI_BASE_URL", "CODEX_HOME")
        }
        env["CODEX_HOME"] = str(request.home / ".codex")
        provider: dict[str, Any] = {
            "name": "account",
            "wire_api": "responses",
            "supports_websockets": False,
            "request_max_retries": settings.retries,
            "stream_max_retries": settings.retries,
            "stream_idle_timeout_ms": int(settings.idle_timeout * 1000),
        }
        key = next((request.env[name] for name in _KEYS if name in request.env), None)
        if key is not None:
            env["CODEX_API_KEY"] = key
            provider |= {"env_key": "CODEX_API_KEY", "base_url": request.env.get("OPENAI_BASE_URL", _DEFAULT_URL)}
        else:
            provider["requires_openai_auth"] = True
            if "OPENAI_BASE_URL" in request.env:
                provider["base_url"] = request.env["OPENAI_BASE_URL"]
        options: dict[str, Any] = {
            "model_provider": "account",
            "model_providers.account": provider,
            "analytics.enabled": False,
            "check_for_update_on_startup": False,
            "shell_environment_policy.inherit": "core",
            "sandbox_workspace_write.exclude_slash_tmp": True,
        }
        config = {f"mcp_servers.{name}": {**s, "required": True} for name, s in request.mcp_servers.items()}
        if request.task_env:
            config["shell_environment_policy.set"] = dict(request.task_env)
        args = ["-a", "never", "exec", "--json", "--color", "never", "--skip-git-repo-check", "--ignore-rules"]
        if task.session is None and settings.sessions is None:
            args.append("--ephemeral")
        args += ["-C", str(request.workspace)]
        args += ["--dangerously-bypass-approvals-and-sandbox"] if request.dangerous else ["-s", "workspace-write"]
        args += ["--disable", "plugins", "--disable", "apps"]
        if task.model is not None:
            args += ["-m", task.model]
        for name, value in options.items():
            args += ["-c", f"{name}={_toml(value)}"]
        if task.session is not None:
            args += ["resume", task.session]
        # values of the environment may be secret: they are in a file and in no argument, which other users can read
        text = "".join(f"{name} = {_toml(value)}\n" for name, value in config.items())
        return Invocation((*args, "-"), env, task.prompt, {".codex/config.toml": text})

    def session_files(self, name: str, text: str, workspace: Path) -> Mapping[str, str]:  # noqa: ARG002  it works in any
        """See Adapter."""
        return {f".codex/sessions/2026/01/01/{name}": text}

    def reader(self) -> CodexReader:
        """See Adapter."""
        return CodexReader()


def _usage(usage: dict[str, Any]) -> Usage:
    """Input tokens include those from the cache, output tokens those of reasoning."""
    return Usage(
        tokens_in=int(usage.get("input_tokens") or 0),
        tokens_out=int(usage.get("output_tokens") or 0),
        tokens_cached=int(usage.get("cached_input_tokens") or 0),
    )


def _toml(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_toml_key(k)}={_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _toml_key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)
