"""What a task asks for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.model.errors import EmptyPrompt, InvalidModel, InvalidOutputSpec, InvalidTask, SecretByValue
from perdure.model.tooling.environment import names_a_secret, referred_variable, task_problem
from perdure.model.tooling.paths import check_path, check_pattern

AUTO = "auto"
"""The account of a task that takes any enabled account of its tool."""

DEFAULT_TIMEOUT = 1800.0
DEFAULT_KILL_AFTER = 10.0
MAX_TIMEOUT = 7 * 86400.0
MAX_FILES = 1000

_TOOL = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,127}")
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/@^~+-]{0,255}")
_SERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SERVER_KEYS = {"command", "args", "env"}


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task: one run of a coding CLI in a workspace of its own.

    tool: the name of its adapter. prompt: what the CLI is asked. model: None is the tool's default. input_files: paths in the
    workspace of files that are put there before the run; their contents are kept apart. output_spec: paths and patterns of
    files that are collected after it. account: None or "auto" is any enabled account of the tool. repo: a git repository on the
    worker's machine; ref: what is checked out of it. timeout: seconds until the CLI is asked to end; kill_after: seconds from
    then until it is killed. no_output_timeout: seconds without any output after which it is ended. session: the id of a session
    to continue. mcp_servers: further MCP servers, name to command, args and env. env: environment for the CLI and what it
    starts; a secret is given as `env:NAME`, a variable of the worker that its setting `cli_task_env` names. keep_workspace: leave
    the workspace where it is.

    Raises the subclass of InvalidTask that fits: EmptyPrompt, InvalidModel, UnsafePath, InvalidOutputSpec; or SecretByValue. That
    the tool exists, and reads a prompt of this length, is checked by `perdure.tools.check_task`.
    """

    tool: str
    prompt: str
    model: str | None = None
    input_files: tuple[str, ...] = ()
    output_spec: tuple[str, ...] = ()
    account: str | None = None
    repo: str | None = None
    ref: str | None = None
    timeout: float = DEFAULT_TIMEOUT
    kill_after: float = DEFAULT_KILL_AFTER
    no_output_timeout: float | None = None
    session: str | None = None
    mcp_servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    keep_workspace: bool = False

    def __post_init__(self) -> None:
        _matching(self.tool, _TOOL, "tool", "is 1 to 32 lower-case letters, digits, - or _")
        if not self.prompt.strip():
            raise EmptyPrompt(
                "the prompt is empty", hint="--prompt TEXT, --prompt @FILE, or --prompt - for standard input"
            )
        if "\0" in self.prompt or not _is_unicode(self.prompt):
            raise InvalidTask("the prompt has a NUL character or a lone surrogate, which is not text")
        if self.model is not None and not _MODEL.fullmatch(self.model):
            raise InvalidModel(
                f"a model's name is letters, digits and ._:/@+[]-, and begins with a letter or digit; got {self.model!r:.120}"
            )
        object.__setattr__(self, "input_files", _listed(self.input_files, "input_files", InvalidTask))
        object.__setattr__(self, "output_spec", _listed(self.output_spec, "output_spec", InvalidOutputSpec))
        for path in self.input_files:
            check_path(path, "input_files")
        if len(set(self.input_files)) < len(self.input_files):
            raise InvalidTask("input_files names a path twice")
        for pattern in self.output_spec:
            check_pattern(pattern)
        _time(self.timeout, "timeout")
        _time(self.kill_after, "kill_after", least=0.0)
        if self.no_output_timeout is not None:
            _time(self.no_output_timeout, "no_output_timeout")
        if self.session is not None:
            _matching(self.session, _SESSION, "session", "is the id that the earlier run reported")
        self._check_repo()
        for name, server in self.mcp_servers.items():
            _check_server(name, server)
        for name, value in self.env.items():
            check_variable(name, value)

    def _check_repo(self) -> None:
        if self.ref is not None:
            if self.repo is None:
                raise InvalidTask("ref needs a repo")
            _matching(self.ref, _REF, "ref", "is a branch, tag or commit")
        if self.repo is not None and (not self.repo.startswith("/") or "\0" in self.repo):
            raise InvalidTask(
                f"repo is the absolute path of a git repository on the worker's machine, got {self.repo!r:.200}"
            )

    def with_env(self, env: Mapping[str, str]) -> TaskSpec:
        """The same task with these variables as well; those of its own stay. Raises InvalidTask, SecretByValue."""
        return replace(self, env={**env, **self.env}) if env else self

    @property
    def any_account(self) -> bool:
        """Whether it runs under any enabled account of its tool."""
        return self.account in (None, AUTO)


def is_session(value: object) -> bool:
    """Whether this may be the id of a session."""
    return isinstance(value, str) and _SESSION.fullmatch(value) is not None


def _listed(value: Any, name: str, error: type[InvalidTask]) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise error(f"{name} is a list of paths, got {type(value).__name__}")
    if len(value) > MAX_FILES:
        raise error(f"{name} has {len(value):,} entries; the limit is {MAX_FILES:,}")
    return tuple(value)


def _matching(value: Any, pattern: re.Pattern[str], name: str, rule: str) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidTask(f"{name} {rule}; got {value!r:.120}")


def _time(value: Any, name: str, least: float | None = None) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value > MAX_TIMEOUT or (value <= 0 if least is None else value < least):
        raise InvalidTask(f"{name} is a number of seconds, up to seven days, got {value!r:.60}")


def _check_server(name: Any, server: Any) -> None:
    _matching(name, _SERVER, "the name of an MCP server", "is letters, digits, - or _")
    if not isinstance(server, Mapping) or not isinstance(server.get("command"), str) or not server["command"]:
        raise InvalidTask(f"the MCP server {name} needs a command")
    if unknown := set(server) - _SERVER_KEYS:
        raise InvalidTask(f"the MCP server {name} has unknown keys: {', '.join(sorted(map(str, unknown)))}")
    args, env = server.get("args", []), server.get("env", {})
    if not isinstance(args, list | tuple) or not all(isinstance(a, str) for a in args):
        raise InvalidTask(f"args of the MCP server {name} is a list of texts")
    if not isinstance(env, Mapping):
        raise InvalidTask(f"env of the MCP server {name} is a table of texts")
    for variable, value in env.items():
        check_variable(variable, value)
    if not all("\0" not in text and _is_unicode(text) for text in [server["command"], *args]):
        raise InvalidTask(f"the MCP server {name} has a NUL character or a lone surrogate")


def check_variable(name: Any, value: Any) -> None:
    """Raises InvalidTask unless a task may set this variable to this value, SecretByValue for a secret that is no reference."""
    if problem := task_problem(name):
        raise InvalidTask(f"the variable {name!r:.120} {problem}")
    if not isinstance(value, str) or "\0" in value or not _is_unicode(value):
        raise InvalidTask(f"the value of {name} is text without NUL")
    if value.startswith(("env:", "file:")) and referred_variable(value) is None:
        raise InvalidTask(
            f"the value of {name} refers to '{value:.120}'; a task can refer to a variable of the worker alone",
            hint=f"write {name}=env:NAME",
        )
    if names_a_secret(name) and referred_variable(value) is None and not value.startswith("/"):
        raise SecretByValue(
            f"{name} holds a secret and not where it is",
            hint=f"put it into a variable of the worker, name that in its setting cli_task_env, and give {name}=env:NAME",
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
