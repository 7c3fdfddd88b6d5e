"""Tools that a table of the configuration describes: `[cli.tools.NAME]` in perdure.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any

from perdure.model.errors import ConfigError
from perdure.model.tooling import RunClass
from perdure.tools.adapters.base import Adapter, Ended, Invocation, Reader, Request, Stream, of_stderr
from perdure.tools.adapters.claude import ClaudeReader
from perdure.tools.adapters.codex import CodexReader
from perdure.tools.adapters.gemini import GeminiReader
from perdure.tools.verdicts import Verdict, by_text, one_line

PLACEHOLDERS = ("home", "model", "prompt_file", "session", "workspace")
READERS: Mapping[str, type[Reader]] = {"codex": CodexReader, "claude": ClaudeReader, "gemini": GeminiReader}
LONGEST_ANSWER = 256 * 1024

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PROGRAM = re.compile(r"(?!-)[\w./+-]{1,200}", re.ASCII)
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Description:
    """A tool as its table says it.

    program: its name, looked for in PATH, or its absolute path. args: its arguments; `{prompt_file}`, `{model}`, `{session}`,
    `{workspace}` and `{home}` stand for what a run has. model_args, session_args: further arguments of a task that names a model
    or a session. stdin: whether the prompt comes by standard input. output: `text`, or `codex`, `claude` or `gemini` where it
    prints the events of that tool. success: the exit codes of success. answer: whether a run without an answer failed. error: a
    pattern; an answer with it is an error. env: variables of the account that it may have; empty = all. install: a command that
    installs it. versions: at least, below. credential: where in HOME its credential belongs. prompt_limit: bytes.
    under_landlock: whether it works confined by Landlock.
    """

    program: str
    args: tuple[str, ...] = ()
    model_args: tuple[str, ...] = ()
    session_args: tuple[str, ...] = ()
    stdin: bool = True
    output: str = "text"
    success: tuple[int, ...] = (0,)
    answer: bool = True
    error: str = ""
    env: tuple[str, ...] = ()
    install: str = ""
    versions: tuple[str, ...] = ()
    credential: str = ""
    prompt_limit: int = 1_000_000
    under_landlock: bool = True


_KINDS: Mapping[str, type[Any]] = {
    "program": str, "args": list, "model_args": list, "session_args": list, "stdin": bool, "output": str, "success": list,
    "answer": bool, "error": str, "env": list, "install": str, "versions": list, "credential": str, "prompt_limit": int,
    "under_landlock": bool,
}  # fmt: skip
_NUMBERS = ("success",)


class Generic(Adapter):
    """A tool without code of its own."""

    def __init__(self, name: str, described: Description) -> None:
        self.described = described
        self.name = name
        self.program = described.program
        self.install = described.install or f"see the documentation of {described.program}"
        self.versions = (described.versions[0], described.versions[1]) if described.versions else None
        self.credential = described.credential or ".credential"
        self.own_home = ""
        self.prompt_limit = described.prompt_limit
        self.under_landlock = described.under_landlock

    def command(self, request: Request) -> Invocation:
        """See Adapter. Nothing of the task is in the arguments but its model and its session, whose characters are checked."""
        described, task = self.described, request.task
        values = {
            "home": str(request.home),
            "model": task.model or "",
            "prompt_file": str(request.home / "prompt.txt"),
            "session": task.session or "",
            "workspace": str(request.workspace),
        }
        args = [*described.args]
        if task.model is not None:
            args += described.model_args
        if task.session is not None:
            args += described.session_args
        env = {name: value for name, value in request.env.items() if not described.env or name in described.env}
        return Invocation(
            tuple(arg.format(**values) for arg in args),
            env,
            task.prompt if described.stdin else "",
            {"prompt.txt": task.prompt},
        )

    def reader(self) -> Reader:
        """See Adapter."""
        made = READERS.get(self.described.output, TextReader)
        inner = made() if made is not TextReader else TextReader(self.described)
        return _Checked(inner, self.described)


class TextReader(Reader):
    """Plain text: the answer is what is on standard output."""

    def __init__(self, described: Description) -> None:
        super().__init__()
        self._described = described
        self._kept: list[str] = []
        self._length = 0

    def line(self, stream: Stream, line: str, now: float) -> None:  # noqa: ARG002  it has no warnings
        """See Reader."""
        if stream == "stdout" and self._length + len(line) <= LONGEST_ANSWER:
            self._kept.append(line)
            self._length += len(line) + 1

    def event(self, event: dict[str, Any], now: float) -> None:
        """Not used: no line is an event."""

    def verdict(self, ended: Ended) -> Verdict:
        """See Reader."""
        self.final_text = "\n".join(self._kept).strip()
        if ended.stopped:
            return Verdict(RunClass.TIMEOUT, "")
        if ended.exit_code in self._described.success:
            empty = self._described.answer and not self.final_text
            return Verdict(RunClass.RETRYABLE, "empty") if empty else Verdict(RunClass.OK, "")
        return of_stderr(ended.stderr) or of_stderr(self.final_text) or Verdict(RunClass.UNKNOWN, str(ended.exit_code))


class _Checked(Reader):
    """Another reader, whose answer may be an error in the words of the tool."""

    def __init__(self, inner: Reader, described: Description) -> None:
        super().__init__()
        self._inner = inner
        self._error = re.compile(described.error) if described.error else None

    def line(self, stream: Stream, line: str, now: float) -> None:
        """See Reader."""
        self._inner.line(stream, line, now)

    def event(self, event: dict[str, Any], now: float) -> None:
        """See Reader."""
        self._inner.event(event, now)

    def hopeless(self, now: float, give_up_after: float) -> Verdict | None:
        """See Reader."""
        return self._inner.hopeless(now, give_up_after)

    def verdict(self, ended: Ended) -> Verdict:
        """See Reader."""
        verdict, inner = self._inner.verdict(ended), self._inner
        self.session_id, self.final_text = inner.session_id, inner.final_text
        self.usage, self.denials = inner.usage, inner.denials
        if verdict.outcome is RunClass.OK and self._error is not None and self._error.search(self.final_text):
            return by_text(self.final_text) or Verdict(RunClass.UNKNOWN, "", one_line(self.final_text))
        return verdict


def described_tools(tables: Mapping[str, Any], where: str = "[cli.tools]") -> dict[str, Adapter]:
    """The adapters of `[cli.tools]`, by name. Raises ConfigError naming the table and what is wrong with it."""
    found: dict[str, Adapter] = {}
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{where}: {name!r:.60} is no name of a tool: lower-case letters, digits, - and _")
        if name in READERS:
            raise ConfigError(f"{where}: {name} is a tool that perdure brings; give yours another name")
        try:
            found[name] = Generic(name, _description(table))
        except ValueError as error:
            raise ConfigError(f"{where[:-1]}.{name}]: {error}") from None
    return found


def _description(table: Any) -> Description:
    if not isinstance(table, Mapping):
        raise ValueError("must be a table")
    if unknown := set(table) - set(_KINDS):
        raise ValueError(f"unknown keys: {', '.join(sorted(map(str, unknown)))}; known: {', '.join(_KINDS)}")
    values: dict[str, Any] = {}
    for key, value in table.items():
        kind = _KINDS[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"{key} must be of type {kind.__name__}")
        values[key] = value
        if isinstance(value, list):
            element = int if key in _NUMBERS else str
            if not all(isinstance(item, element) for item in value):
                raise ValueError(f"{key} must be a list of type {element.__name__}")
            values[key] = tuple(value)
    if "program" not in values:
        raise ValueError("program is missing")
    described = Description(**values)
    _check(described)
    return described


def _check(described: Description) -> None:
    if not _PROGRAM.fullmatch(described.program):
        raise ValueError(f"program is a name or an absolute path, got {described.program!r:.120}")
    if described.output not in ("text", *READERS):
        raise ValueError(f"output is one of text, {', '.join(READERS)}")
    if described.versions and (len(described.versions) != 2 or not all(map(_VERSION.fullmatch, described.versions))):
        raise ValueError('versions are two: at least, below; such as ["0.80.0", "1.0.0"]')
    if described.prompt_limit < 1:
        raise ValueError("prompt_limit must be at least 1")
    try:
        re.compile(described.error)
    except re.error as error:
        raise ValueError(f"error is no pattern: {error}") from None
    for arg in (*described.args, *described.model_args, *described.session_args):
        try:
            fields = [
                (field, spec, conversion) for _, field, spec, conversion in Formatter().parse(arg) if field is not None
            ]
        except ValueError as error:
            raise ValueError(f"{arg!r}: {error}; write {{{{ for a bracket") from None
        for field, spec, conversion in fields:
            if field not in PLACEHOLDERS or spec or conversion:
                raise ValueError(f"{arg!r} has an unknown placeholder; known: {', '.join(PLACEHOLDERS)}")
    if "{prompt_file}" not in "".join(described.args) and not described.stdin:
        raise ValueError("the prompt comes by {prompt_file} or by standard input (stdin = true)")
