"""What came of one run of a coding CLI."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum


class RunClass(StrEnum):
    """How a run ended, as far as retrying is concerned.

    ok: the answer and the declared files are there. retryable: network, server or an empty answer. rate_limited: the account has
    to wait. auth: the credential was refused. fatal: the same request fails again. timeout: ended by perdure. unknown: none of
    these, as far as its output shows. missing_output: it succeeded without a file that it was to write.
    """

    OK = "ok"
    RETRYABLE = "retryable"
    RATE_LIMITED = "rate_limited"
    AUTH = "auth"
    FATAL = "fatal"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"
    MISSING_OUTPUT = "missing_output"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run used. tokens_in: all input tokens, with those from the cache. tokens_out: with those of reasoning.
    tokens_cached: the part of tokens_in from the cache. cost: in US dollars, an estimate of the CLI; None where it gives none."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    cost: Decimal | None = None

    @property
    def tokens(self) -> int:
        """All tokens, in and out."""
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True, slots=True)
class Captured:
    """What a program wrote to one stream. head and tail: its first and last part, without overlap; size: all of it, in bytes."""

    head: str = ""
    tail: str = ""
    size: int = 0

    @property
    def text(self) -> str:
        """Head and tail, with a line between them that says how many bytes are left out."""
        left_out = self.size - len(self.head.encode()) - len(self.tail.encode())
        if left_out <= 0 or not self.tail:
            return self.head + self.tail
        return f"{self.head}\n... {left_out:,} bytes left out ...\n{self.tail}"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How a run was confined. requested and effective: `L0` (process), `L1` (Landlock) or `L2` (bubblewrap). missing: protections
    that the requested level has and this run had not, and limits on the whole run (`memory`, `pids`) that were asked for and
    could not be set. kernel: its release. landlock_abi: 0 where there is none. limits: those that were set, by cgroups."""

    requested: str = "L0"
    effective: str = "L0"
    missing: tuple[str, ...] = ()
    kernel: str = ""
    landlock_abi: int = 0
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunStart:
    """What is about to be started. args: without secrets, and without the prompt. dangerous: the dangerous flags among them.
    writable: folders that the run may write to. ports: TCP ports it may connect to; None = it is not restricted."""

    tool: str
    version: str
    args: tuple[str, ...]
    sandbox: Sandbox
    dangerous: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    ports: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class CliRun:
    """What came of one run.

    outcome: its class. detail: one word that says more. exit_code: negative = ended by that signal; None = it did not start.
    session_id: to continue it. final_text: the answer. retry_after: seconds until the CLI said that it may be called again, None
    where it did not say. message: one line for people, the CLI's own words where it gave some. seconds: how long it ran.
    permission_denials: tool calls that the CLI refused. ended_early: perdure ended it because of its own warnings.
    credential_changed: it wrote to its copy of the credential. survivors: processes that could not be killed.
    cpu_seconds, max_rss_bytes: of the whole tree of processes.
    """

    outcome: RunClass
    detail: str = ""
    message: str = ""
    exit_code: int | None = None
    session_id: str | None = None
    final_text: str = ""
    usage: Usage = field(default_factory=Usage)
    retry_after: float | None = None
    permission_denials: int = 0
    ended_early: bool = False
    credential_changed: bool = False
    survivors: int = 0
    missing_files: tuple[str, ...] = ()
    stdout: Captured = field(default_factory=Captured)
    stderr: Captured = field(default_factory=Captured)
    sandbox: Sandbox = field(default_factory=Sandbox)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    max_rss_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether the answer and the declared files are there."""
        return self.outcome is RunClass.OK
