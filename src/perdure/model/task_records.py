"""What the database knows of coding CLIs: accounts, files of jobs, runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from perdure.model.tooling import Account, CliRun, Usage


@dataclass(frozen=True, slots=True)
class AccountInfo:
    """An account as it is stored.

    used: how many of its slots live leases have. parked_until: no task starts under it before; set where its tool said that a
    limit is reached. parked_reason: what it said. failed_probes: how often in a row its credential was refused.
    """

    account: Account
    parked_until: datetime | None
    parked_reason: str | None
    failed_probes: int
    created_at: datetime
    updated_at: datetime
    used: int = 0


DIFF = "task.diff"
"""The path under which the changes of a task in its copy of a repository are stored."""
MORE_OUTPUT = {"stdout": "task.stdout.gz", "stderr": "task.stderr.gz"}
"""By stream, the path under which what a run wrote is stored, from where its chunks end."""
OWN_FILES = frozenset({DIFF, *MORE_OUTPUT.values()})
"""Paths of files that perdure makes."""


class NewFile(NamedTuple):
    """A file to be stored. path: relative, checked. content: None if it is in the blob directory already. hash: SHA-256 of its
    content, hex. size: bytes."""

    path: str
    content: bytes | None
    hash: str
    size: int

    @classmethod
    def of(cls, path: str, content: bytes) -> NewFile:
        """A file whose content is stored in the database."""
        return cls(path, content, hashlib.sha256(content).hexdigest(), len(content))


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file of a job. attempt: that wrote it; 0 for an input. hash: SHA-256 of its content, hex. size: bytes."""

    id: UUID
    path: str
    is_input: bool
    attempt: int
    hash: str
    size: int


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run of a coding CLI. attempt: of its job. files: the paths of what was collected, with their sizes in bytes."""

    job_id: UUID
    attempt: int
    tool: str
    account_id: str | None
    worker_id: str
    started_at: datetime
    finished_at: datetime
    files: tuple[tuple[str, int], ...]
    run: CliRun


class OutputChunk(NamedTuple):
    """A part of what a run wrote. seq: counts the chunks of an attempt from 1. stream: stdout or stderr."""

    attempt: int
    seq: int
    stream: str
    content: bytes


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How a task ended that a job has run: what `ctx.run_tool` returns.

    task_id: of its job. ok: whether it has an answer and the declared files. text: the answer, empty where it failed. usage: of
    the run that gave it. files: paths of the files that were collected, with their sizes in bytes; `ctx.read_file` reads one.
    diff: the changes in its copy of a repository, None where there was none. session: to continue with. account: under which it
    ran. error, error_kind: why it failed; None where it did not, and kind `cancelled` where it was cancelled.
    """

    task_id: UUID
    ok: bool
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    files: Mapping[str, int] = field(default_factory=dict)
    diff: str | None = None
    session: str | None = None
    account: str | None = None
    exit_code: int | None = None
    error: str | None = None
    error_kind: str | None = None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task gives. text: the answer. files: paths of the files that were collected, with their sizes in bytes; their
    contents are read with `app.tasks.read_file`. session: to continue with. account: under which it ran."""

    text: str
    files: Mapping[str, int]
    session: str | None
    account: str | None
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    cost: str | None
    seconds: float
    exit_code: int | None = 0
