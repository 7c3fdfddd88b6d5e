"""In a child process: the points at which it kills itself, the files that it writes for the test, and changes of perdure."""

import asyncio
import json
import os
import signal
import zlib
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from perdure.model.errors import LeaseLost
from perdure.model.jobs import Outcome
from perdure.runtime.lease import LeaseManager
from perdure.runtime.run import Run
from perdure.store.open import open_store
from perdure.store.postgres.schema import schema as postgres_schema
from perdure.store.protocol import Migration, Store
from perdure.store.sqlite.schema import schema as sqlite_schema
from perdure.store.statements import load_migrations
from tests.crash.child_config import ChildConfig

_WRITES = {
    "leases": ("claim", "record", "finish", "finish_many", "set_waiting", "release_held"),
    "approvals": ("request_approval", "replace_token"),
    "agents": ("deliver",),
    "signals": ("take_signals",),
    "limits": ("reserve_budget",),
}
_config = ChildConfig("worker", "memory:", ".")
Method = Callable[..., Coroutine[Any, Any, Any]]


def configure(config: ChildConfig) -> None:
    """Use this configuration, and change the parts of perdure that it says."""
    global _config  # noqa: PLW0603  one process has one configuration
    _config = config
    if config.stubborn:
        LeaseManager._lost = lambda *_: None  # type: ignore[method-assign]
        LeaseManager._give_up_expired = lambda *_: None  # type: ignore[method-assign]
        Run.lease_ended = False  # type: ignore[method-assign,assignment]
    if config.extra_migrations:
        ship_more_migrations(config.extra_migrations)
    if config.role == "migrator":
        add_migration_kill_points()


def at_point(point: str) -> None:
    """The process has reached this point, and kills itself if its configuration says so."""
    if point == _config.kill_at:
        kill_self()


def kill_self() -> NoReturn:
    """End this process by SIGKILL."""
    write_mark("deaths", str(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def write_mark(name: str, line: str) -> None:
    """Append a line to a file that the test reads; it is there also if the process is killed right after."""
    file = os.open(Path(_config.place, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


def is_open(gate: str) -> bool:
    """Whether the test has opened a gate."""
    return Path(_config.place, gate).exists()


def add_kill_points(store: Store) -> None:
    """Add points before, during and after every write of a worker, and mark the writes that are refused."""
    for role, names in _WRITES.items():
        methods = getattr(store, role)
        for name in names:
            setattr(methods, name, _watched(name, getattr(methods, name)))


def _watched(name: str, original: Method) -> Method:
    async def watched(*args: Any, **kwargs: Any) -> Any:
        points = list(_points(name, args))
        for point in points:
            at_point(f"before {point}")
        for point in points:
            if _config.kill_at == f"during {point}":
                write = asyncio.ensure_future(original(*args, **kwargs))
                await asyncio.wait({write}, timeout=zlib.crc32(point.encode()) % 4 / 1000)
                kill_self()
        try:
            result = await original(*args, **kwargs)
        except LeaseLost:
            write_mark("refusals", f"{os.getpid()} {points[0]}")
            raise
        if name == "finish_many":
            for point, each in zip(points, result, strict=True):
                if isinstance(each, LeaseLost):
                    write_mark("refusals", f"{os.getpid()} {point}")
                else:
                    at_point(f"after {point}")
        elif name != "claim" or result:
            at_point(f"after {points[0]}")
        return result

    return watched


def _points(name: str, args: tuple[Any, ...]) -> Iterator[str]:
    """The writes of a call; `finish_many` is the end of several attempts."""
    if name == "finish_many":
        for _, outcome in args[0]:
            yield f"finish {outcome.status.value}"
    else:
        yield " ".join([name, *_details(args)])


def _details(args: tuple[Any, ...]) -> Iterator[str]:
    """What identifies a write: the type and key of its first event, the status that an attempt ends in."""
    what: Any = args[1] if len(args) > 1 else None
    if isinstance(what, Outcome):
        yield what.status.value
    elif isinstance(what, list | tuple):
        for event in what[:1]:
            payload = json.loads(event.payload)
            yield event.type
            if "key" in payload:
                yield payload["key"]
    elif hasattr(what, "status"):
        yield what.status.value
    elif isinstance(what, bool):
        yield "on" if what else "off"


# --- migrations ----------------------------------------------------------------------------------------------------------


def ship_more_migrations(scripts: tuple[str, ...]) -> None:
    """Make this perdure a newer one, with these migrations after the real ones."""

    def shipped(package: str) -> list[Migration]:
        real = load_migrations(package)
        more = enumerate(scripts, len(real) + 1)
        return real + [Migration(number, f"extra_{number}", sql, sql) for number, sql in more]

    sqlite_schema._MIGRATIONS = shipped("perdure.store.sqlite")
    postgres_schema.load_migrations = shipped  # type: ignore[attr-defined]


def add_migration_kill_points() -> None:
    """Add the points `inside migration N` (its last statement runs) and `after migration N`."""
    numbers = iter(range(1, 100))
    plain = sqlite_schema._statements

    def statements(script: str) -> Iterator[str]:
        number = next(numbers)
        found = list(plain(script))
        for count, statement in enumerate(found, 1):
            if count == len(found):
                at_point(f"inside migration {number}")
            yield statement

    sqlite_schema._statements = statements
    once = sqlite_schema.SqliteSchema._migrate_once

    def migrate_once(self: Any, conn: Any, now: int) -> Any:
        at_point(f"after migration {max(sqlite_schema._applied(conn), default=0)}")
        return once(self, conn, now)

    sqlite_schema.SqliteSchema._migrate_once = migrate_once  # type: ignore[method-assign]
    apply = postgres_schema.PostgresSchema._apply
    apply_next = postgres_schema.PostgresSchema._apply_next

    async def slow_apply(self: Any, tx: Any, migration: Migration) -> Migration:
        if _config.kill_at == f"inside migration {migration.number}":
            slow = replace(migration, sql=f"{migration.sql};\nselect pg_sleep(1)")
            write = asyncio.ensure_future(apply(self, tx, slow))
            await asyncio.wait({write}, timeout=0.5)
            kill_self()
        return await apply(self, tx, migration)

    async def apply_next_then_point(self: Any, connection: Any) -> Migration | None:
        applied = await apply_next(self, connection)
        if applied is not None:
            at_point(f"after migration {applied.number}")
        return applied

    postgres_schema.PostgresSchema._apply = slow_apply  # type: ignore[method-assign]
    postgres_schema.PostgresSchema._apply_next = apply_next_then_point  # type: ignore[method-assign]


async def migrate(config: ChildConfig) -> None:
    """Migrate, and say what was applied."""
    store = await open_store(config.url)
    try:
        for migration in await store.schema.migrate():
            write_mark("applied", str(migration.number))
    finally:
        await store.close()
