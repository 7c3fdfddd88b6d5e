"""A copy of a database file, made while other processes use it."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import structlog

from perdure.model.errors import ContentDamaged, ContentMissing, InvalidInput, StoreError
from perdure.store.blobs.contents import BlobFolders, identity_of
from perdure.store.protocol.blobs import ContentSettings
from perdure.store.sqlite.engine.connection import connect
from perdure.store.sqlite.engine.statements import SQL

log = structlog.get_logger("perdure.store")

_BESIDES = ("", "-wal", "-shm", "-lock", "-journal")


def back_up(source: str, target: str, folders: BlobFolders, *, overwrite: bool) -> int:
    """See `protocol.SchemaStore.backup`.

    The copy is made under a name of its own in the same directory, and gets its own name when it is complete, with its blobs.
    folders: where those of the source are.
    """
    path = Path(target).absolute()
    _check_free(source, path, overwrite=overwrite)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        # by perdure, not by SQLite: a private file whatever the umask is
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _copy(source, str(partial))
        _sync(partial)
        _copy_blobs(partial, folders, BlobFolders(ContentSettings(), Path(f"{path}-blobs")))
        _name(partial, path, overwrite=overwrite)
        _sync(path.parent)
        return path.stat().st_size
    except OSError as error:
        raise _cannot_write(path, error.strerror or str(error)) from error
    finally:
        for suffix in ("", "-journal"):
            Path(f"{partial}{suffix}").unlink(missing_ok=True)


def _check_free(source: str, path: Path, *, overwrite: bool) -> None:
    """Raise InvalidInput if there is something that must stay."""
    for suffix in _BESIDES:
        with contextlib.suppress(OSError):
            if path.samefile(source + suffix):
                raise InvalidInput(f"{path} is the database itself, or a part of it", hint="name another file")
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{path} is a directory or a device", hint="name a file")
    if os.path.lexists(path) and not overwrite:
        raise InvalidInput(
            f"{path} exists already", hint="name another file, or replace it: --overwrite, overwrite=True"
        )
    for suffix in ("-wal", "-journal"):
        if Path(f"{path}{suffix}").exists():
            raise InvalidInput(
                f"{path}{suffix} exists: it belongs to a database that was or is at {path}, and would damage the copy",
                hint="name another file, or delete it if no process uses that database",
            )


def _copy(source: str, partial: str) -> None:
    with closing(connect(source, writes=False)) as old, closing(sqlite3.connect(partial, isolation_level=None)) as new:
        new.execute("pragma journal_mode = off")  # what fails is deleted
        new.execute("pragma synchronous = off")
        with _translated(partial):
            # in one step: it reads one moment, while others write, and never starts again
            old.backup(new, pages=-1)


def _copy_blobs(partial: Path, here: BlobFolders, there: BlobFolders) -> None:
    """Copy the blobs that the copy refers to. One that is gone was lost before, or its job was pruned meanwhile."""
    with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
        if copy.execute(SQL["has_contents"]).fetchone() is None:
            return  # an older schema, without files
        rows = copy.execute(SQL["all_blobs"]).fetchall()
        (made,) = copy.execute(SQL["schema_made"]).fetchone()
    missing = []
    for tenant_id, hash in rows:
        target = there.of(identity_of(made), tenant_id)
        try:
            if not target.holds(hash):
                target.add(here.of(identity_of(made), tenant_id).read(hash))
        except (ContentMissing, ContentDamaged):
            missing.append(hash)
    if missing:
        log.warning("blobs that are missing or damaged were not copied", blobs=len(missing), first=missing[0])


@contextlib.contextmanager
def _translated(partial: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if isinstance(error, sqlite3.OperationalError) and "disk" in str(error):
            raise _cannot_write(Path(partial), str(error)) from error
        raise


def _name(partial: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        partial.replace(path)
        return
    try:
        os.link(partial, path)  # unlike a rename it replaces nothing
    except FileExistsError:
        raise InvalidInput(f"{path} exists already: it was made meanwhile", hint="name another file") from None
    except OSError:  # a file system without links
        partial.replace(path)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _cannot_write(path: Path, why: str) -> StoreError:
    return StoreError(f"the copy cannot be written to {path}: {why}", hint="is the directory there, and writable?")
