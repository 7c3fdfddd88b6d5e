"""Each command that reads or changes the database calls exactly one operation for it."""

import functools
import pkgutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest

import perdure.cli
from perdure.cli.main import root
from perdure.operations import catalog
from perdure.operations.catalog import OPERATIONS
from perdure.operations.registry import Operation
from tests.cli.conftest import Perdure

APP = ("--app", "agents:app")

VERBS: dict[str, str] = {
    "jobs start greet --input '\"ann\"'": "jobs.enqueue",
    "jobs ls": "jobs.list",
    "jobs get WAITING": "jobs.get",
    "jobs watch FAILED": "jobs.watch",
    "jobs events FAILED": "jobs.events",
    "jobs steps FAILED": "jobs.steps",
    "jobs messages FAILED": "jobs.messages",
    "jobs actions FAILED": "jobs.actions",
    "jobs variables FAILED": "jobs.variables",
    "jobs count": "jobs.count",
    "jobs explain WAITING": "jobs.explain",
    "jobs diff WAITING FAILED": "jobs.diff",
    "jobs tree FAILED": "jobs.tree",
    "jobs batch FAILED": "jobs.batch",
    "jobs cancel WAITING": "jobs.cancel",
    "jobs retry-now RETRYING": "jobs.retry_now",
    "jobs rerun FAILED": "jobs.rerun",
    "jobs fork FAILED": "jobs.fork",
    "jobs signal WAITING paid 3 --id x": "jobs.signal",
    "jobs export FAILED": "jobs.export",
    "enqueue --tool codex --prompt hello -o id": "tasks.enqueue",
    "tasks ls": "tasks.list",
    "tasks get TASK": "tasks.get",
    "tasks watch FAILED": "jobs.watch",
    "tasks logs TASK": "tasks.output",
    "tasks cancel TASK": "jobs.cancel",
    "tasks requeue FAILED": "tasks.requeue",
    "tasks rerun FAILED": "jobs.rerun",
    "tasks artifacts ls TASK": "tasks.files",
    "tasks artifacts cat TASK a.txt --input": "tasks.copy_file",
    "tasks artifacts get TASK a.txt --input": "tasks.copy_file",
    "tasks artifacts diff TASK": "tasks.copy_file",
    "accounts add --id a --tool codex": "accounts.add",
    "accounts ls": "accounts.list",
    "accounts get a": "accounts.get",
    "accounts enable a": "accounts.enable",
    "accounts disable a": "accounts.disable",
    "accounts set-limits a --max 2": "accounts.set_limits",
    "accounts test a": "accounts.test",
    "accounts rm a --yes": "accounts.remove",
    "agents ls": "agents.list",
    "agents create ann": "agents.create",
    "agents get ann": "agents.get",
    "agents set ann --batch 2": "agents.set",
    "agents send ann hello": "agents.send",
    "agents inbox ann": "agents.inbox",
    "agents outbox ann": "agents.outbox",
    "agents signal ann stop": "agents.signal",
    "agents signals ann": "agents.signals",
    "agents set-session ann 1": "agents.set_session",
    "agents session ann": "agents.session",
    "agents sessions ann": "agents.sessions",
    "agents pause ann": "agents.pause",
    "agents resume ann": "agents.resume",
    "agents rm ann --force --yes": "agents.delete",
    "approvals ls": "approvals.list",
    "approvals get WAITING": "approvals.get",
    "approvals approve WAITING": "approvals.approve",
    "approvals deny WAITING": "approvals.deny",
    "approvals token WAITING": "approvals.new_token",
    "approvals rules": "approvals.rules",
    "approvals add-rule deploy allow --scope user:ann --for 8h": "approvals.add_rule",
    "approvals revoke-rule RULE": "approvals.revoke_rule",
    "limits ls": "limits.list",
    "limits get customer:7": "limits.get",
    "limits set customer:7 --max 3": "limits.set",
    "limits unset customer:7": "limits.unset",
    "limits budgets": "limits.budgets",
    "limits set-budget --tokens 1000": "limits.set_budget",
    "limits unset-budget": "limits.unset_budget",
    "jobs edit RETRYING --priority 7": "jobs.edit",
    "jobs delete FAILED --yes": "jobs.delete",
    "queues ls": "queues.list",
    "queues pause mail": "queues.pause",
    "queues resume mail": "queues.resume",
    "queues pauses": "queues.pauses",
    "schedules ls": "schedules.list",
    "schedules get nightly": "schedules.get",
    "schedules next nightly": "schedules.next",
    "schedules add daily greet --every 24h": "schedules.add",
    "schedules pause nightly": "schedules.pause",
    "schedules resume nightly": "schedules.resume",
    "schedules trigger nightly": "schedules.trigger",
    "schedules backfill nightly --from 2026-01-01 --to 2026-01-02": "schedules.backfill",
    "schedules rm nightly": "schedules.remove",
    "memory search logs": "memory.search",
    "memory write hello": "memory.write",
    "memory get MEMORY": "memory.get",
    "memory ls": "memory.list",
    "memory supersede MEMORY hello": "memory.supersede",
    "memory archive MEMORY": "memory.archive",
    "memory restore MEMORY": "memory.restore",
    "memory pin MEMORY": "memory.pin",
    "memory undo FAILED": "memory.undo",
    "memory export": "memory.export",
    "memory import {}": "memory.import",
    "memory reindex": "memory.reindex",
    "worker status": "workers.list",
    "worker stop --all": "workers.stop",
    "worker drain --all": "workers.drain",
    "db status": "database.status",
    "db migrate": "database.migrate",
    "db backup copy.db": "database.backup",
    "db prune --older-than 1d --dry-run": "database.prune",
    "fsck": "database.fsck",
    "doctor": "database.diagnose",
}
"""A call of each command, and the operation it calls. WAITING, FAILED and RETRYING are the ids of jobs."""

VARIANTS: dict[str, tuple[str, ...]] = {
    "jobs start greet --input '\"ann\"' --json": ("jobs.enqueue", "jobs.get"),
    "jobs start greet --input '\"ann\"' --wait=0s": ("jobs.enqueue", "jobs.wait"),
    "enqueue --tool codex --prompt hello": ("tasks.enqueue", "accounts.list"),
    "enqueue --tool codex --prompt hello --json": ("tasks.enqueue", "tasks.get"),
    "enqueue --tool codex --prompt hello --wait=0s": ("tasks.enqueue", "jobs.wait"),
    "jobs rerun FAILED --json": ("jobs.rerun",),
    "jobs cancel --kind asks --dry-run": ("jobs.cancel_many",),
    "jobs cancel --kind asks --yes": ("jobs.cancel_many", "jobs.cancel_many"),
    "jobs retry-now --kind breaks --dry-run": ("jobs.retry_many",),
    "jobs rerun --kind fails --dry-run": ("jobs.rerun_many",),
    "jobs edit --kind breaks --priority 7 --dry-run": ("jobs.edit_many",),
    "jobs delete --kind fails --dry-run": ("jobs.delete_many",),
    "jobs fork FAILED --json": ("jobs.fork", "jobs.get"),
    "jobs events FAILED --follow": ("jobs.follow",),
    "fsck --fix": ("database.repair",),
    "db migrate --dump-sql": (),
}
"""Calls with options that make another operation of it, or add one: to wait for the job, or to print it."""

WITHOUT_DATABASE = {
    "config ls": "reads settings",
    "config get": "reads settings",
    "config path": "reads settings",
    "version": "prints what is installed",
    "completion": "prints a script",
    "help": "prints help",
}
PROCESSES = {
    "worker start": "runs a worker in this process",
    "dev": "runs a worker and shows its jobs",
    "demo": "runs workers and kills one; a program that uses the Python API as users do",
    "jobs replay": "runs a handler in this process, by a record that it exports first or reads from a file",
    "chaos": "runs workers and kills them; in a tenant of its own",
}
"""Commands that run something, instead of asking for something."""


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command of the tree by its path, without those that are another name of one."""
    for name in group.list_commands(None):
        member = group.get_command(None, name)
        if hasattr(member, "list_commands"):
            yield from commands(member, (*path, name))
        elif not member.hidden:
            yield " ".join((*path, name))


def path_of(call: str) -> str:
    words = call.split()
    return next(path for n in (3, 2, 1) if (path := " ".join(words[:n])) in set(commands(root())))


def test_every_command_is_listed_here() -> None:
    listed = [path_of(call) for call in VERBS]
    assert sorted([*listed, *WITHOUT_DATABASE, *PROCESSES]) == sorted(commands(root()))


def test_every_operation_is_called_by_a_command() -> None:
    assert {*VERBS.values()}.union(*VARIANTS.values()) == set(OPERATIONS)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the operations that the command line calls, in order."""
    names: list[str] = []
    noted = {operation.function: note(operation, names) for operation in OPERATIONS.values()}
    for found in pkgutil.iter_modules(perdure.cli.__path__):
        module = import_module(f"perdure.cli.{found.name}")
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value in noted:
                monkeypatch.setattr(module, name, noted[value])
            elif isinstance(value, ModuleType) and value in catalog.MODULES:
                functions = {n: noted.get(v, v) for n, v in vars(value).items() if isinstance(v, FunctionType)}
                monkeypatch.setattr(module, name, SimpleNamespace(**{**vars(value), **functions}))
    return names


def note(operation: Operation, names: list[str]) -> Callable[..., Any]:
    @functools.wraps(operation.function)
    def noting(*args: Any, **given: Any) -> Any:
        names.append(operation.name)
        return operation.function(*args, **given)

    return noting


made: dict[str, Any] = {}
"""The ids of the first test, and the file that they are in: each other test begins with a copy of it."""


@pytest.fixture
def ids(perdure: Perdure, place: Path) -> dict[str, str]:
    file = place / "perdure.db"
    if made:
        file.write_bytes(made["file"])
        file.chmod(0o600)  # as perdure makes it
    else:
        made["ids"] = make_jobs(perdure)
        with closing(sqlite3.connect(file)) as database:
            database.execute("pragma wal_checkpoint(truncate)")
        made["file"] = file.read_bytes()
    return dict(made["ids"])


def make_jobs(perdure: Perdure) -> dict[str, str]:
    return {
        "WAITING": perdure.ran("asks", "--input", '"draft"'),
        "FAILED": perdure.ran("fails"),
        "RETRYING": perdure.ran("breaks"),
        "MEMORY": perdure("memory", "write", "the pool was exhausted", "-o", "id").out.strip(),
        "RULE": perdure("approvals", "add-rule", "deploy", "deny", "--scope", "tenant", "-o", "id").out.strip(),
        "TASK": perdure("enqueue", "--tool", "codex", "--prompt", "hello", "-o", "id").out.strip(),
    }


def run(perdure: Perdure, ids: dict[str, str], call: str) -> None:
    words = [ids.get(word, word.strip("'")) for word in call.split()]
    perdure(*words, code=None)


@pytest.mark.parametrize(("call", "operation"), VERBS.items(), ids=VERBS)
def test_a_command_calls_its_operation_alone(
    perdure: Perdure, ids: dict[str, str], called: list[str], call: str, operation: str
) -> None:
    run(perdure, ids, call)
    assert called == [operation]


@pytest.mark.parametrize(("call", "operations"), VARIANTS.items(), ids=VARIANTS)
def test_an_option_may_add_another(
    perdure: Perdure, ids: dict[str, str], called: list[str], call: str, operations: tuple[str, ...]
) -> None:
    run(perdure, ids, call)
    assert tuple(called) == operations
