"""What an adapter is: data, a command line, and a reader of what the program prints."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perdure.model.tooling import Account, RunClass, TaskSpec, Usage
from perdure.tools.settings import CliSettings
from perdure.tools.verdicts import Verdict, by_text, first

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class Program:
    """An installed program. argv: how it is started (a script after its interpreter). folders: what it reads when it runs."""

    argv: tuple[str, ...]
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What a command line is made of.

    env: the environment of the account, task_env that of the task, and mcp_servers those of the task, references already read.
    credential: whether the account has a file that is put at
    `Adapter.credential` in HOME. dangerous: whether all conditions of
    dangerous flags are met.
    """

    task: TaskSpec
    account: Account
    env: Mapping[str, str]
    workspace: Path
    home: Path
    tmp: Path
    settings: CliSettings
    credential: bool = False
    dangerous: bool = False
    task_env: Mapping[str, str] = field(default_factory=dict)
    mcp_servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a program is called: arguments after its own name, environment on top of the common one, text for its standard input,
    files to write in HOME first."""

    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


class Ended(NamedTuple):
    """How the program ended. exit_code: negative for a signal; stopped: perdure ended it at its timeout or for silence; stderr:
    its last part."""

    exit_code: int
    stopped: bool
    stderr: str


class Reader(ABC):
    """Reads the lines of one run as they come. Fields: session_id, final_text, usage, denials (tool calls that were refused)."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.final_text = ""
        self.usage = Usage()
        self.denials = 0
        self._worked = False
        self._warning: Verdict | None = None
        self._warned_at = 0.0

    def line(self, stream: Stream, line: str, now: float) -> None:
        """Read one line; `now` is a clock in seconds. Lines of standard output that are no JSON object are skipped."""
        if stream == "stderr":
            self.error_line(line, now)
            return
        if not line.startswith("{"):
            return
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return
        if isinstance(event, dict):
            try:
                self.event(event, now)
            except (
                AttributeError,
                TypeError,
                KeyError,
                ValueError,
            ):  # an event of another form than its type had so far
                return

    @abstractmethod
    def event(self, event: dict[str, Any], now: float) -> None:
        """Read one event of standard output."""

    def error_line(self, line: str, now: float) -> None:  # noqa: B027  most have nothing to read there
        """Read one line of standard error."""

    @abstractmethod
    def verdict(self, ended: Ended) -> Verdict:
        """How the run ended, without regard to its files."""

    def hopeless(self, now: float, give_up_after: float) -> Verdict | None:
        """Why the run should be ended although the program still waits and repeats; None if it should not.

        A refused credential ends it at once, a rate limit if nothing was achieved yet or if the wait that was announced is longer
        than `give_up_after` (seconds), anything else after warnings for so long without progress.
        """
        warning = self._warning
        if warning is None:
            return None
        at_once = warning.outcome in (RunClass.AUTH, RunClass.FATAL)
        if warning.outcome is RunClass.RATE_LIMITED:
            at_once = not self._worked or (warning.retry_after or 0.0) > give_up_after
        return warning if at_once or now - self._warned_at > give_up_after else None

    def progress(self) -> None:
        """The program got an answer: earlier warnings are over."""
        self._worked, self._warning = True, None

    def warn(self, verdict: Verdict | None, now: float) -> None:
        """The program says that it will repeat a request."""
        if verdict is None:
            return
        if self._warning is None:
            self._warned_at = now
        self._warning = verdict


class Adapter(ABC):
    """A tool.

    name: in commands. program: what is looked for in PATH. install: a command that installs it. versions: from the first
    (inclusive) to the second (exclusive); None = any, and the program is not asked. credential: where in HOME the credential file
    belongs. own_home: the variable with which accounts name a folder that has it. prompt_limit: bytes of a prompt, at most.
    under_landlock: whether it works confined by Landlock. address_bytes: the least address space it starts with. soft_signal:
    what asks it to end. session_pattern: where in HOME a session is, with `{id}` and `{short}` (its first 8 characters); None =
    its sessions cannot be continued.
    """

    name: str
    program: str
    install: str
    versions: tuple[str, str] | None
    credential: str
    own_home: str
    prompt_limit: int
    under_landlock: bool = True
    address_bytes: int | None = None
    soft_signal: str = "TERM"
    session_pattern: str | None = None

    def locate(self, path: Path) -> Program:
        """How the program found at `path` (links resolved) is started."""
        return Program((str(path),), (path.parent,))

    def bundled_bwrap(self, program: Program) -> str | None:  # noqa: ARG002  for those that bring one
        """The bubblewrap that comes with the tool, for a machine that has no other."""
        return None

    @abstractmethod
    def command(self, request: Request) -> Invocation:
        """How the program is called for a task."""

    def session_files(self, name: str, text: str, workspace: Path) -> Mapping[str, str]:  # noqa: ARG002  for those that have them
        """The files in HOME by which the tool finds a session again, made of the one that was kept."""
        return {}

    @abstractmethod
    def reader(self) -> Reader:
        """A reader for one run."""


def of_stderr(text: str) -> Verdict | None:
    """What a failure is by the last lines of standard error, the last line first."""
    lines = [line for line in text.splitlines() if line.strip()][-200:]
    return first(by_text(line) for line in reversed(lines))
