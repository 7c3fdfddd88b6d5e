"""Files that a run was to write: found without following a link, whatever its processes do meanwhile."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from perdure.model.tooling.paths import matches

MAX_ENTRIES = 200_000
"""Names that are looked at; a workspace with more is not searched to its end."""
MAX_DEPTH = 64


class OutputFile(NamedTuple):
    """A regular file of the workspace: its relative path, and its size in bytes when it was found."""

    path: str
    size: int


def find_outputs(workspace: Path, output_spec: Iterable[str]) -> tuple[OutputFile, ...]:
    """The regular files that `output_spec` covers, sorted by path. Links are never followed, `.git` is left out."""
    wanted = tuple(output_spec)
    if not wanted:
        return ()
    found = {
        path: size for path, size in _files(workspace) if any(path == entry or matches(entry, path) for entry in wanted)
    }
    return tuple(OutputFile(path, size) for path, size in sorted(found.items()))


def missing_outputs(found: Iterable[OutputFile], output_spec: Iterable[str]) -> tuple[str, ...]:
    """The entries of `output_spec` that no file was found for."""
    paths = [file.path for file in found]
    return tuple(entry for entry in output_spec if not any(path == entry or matches(entry, path) for path in paths))


def open_output(workspace: Path, path: str) -> BinaryIO:
    """A file of the workspace for reading. Raises OSError if a part of its path is a link, it is no regular file, or it has a
    second name, which may be that of a file outside of the workspace."""
    *folders, name = path.split("/")
    folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    facts = os.fstat(file)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(file)
        why = "it is a hard link" if stat.S_ISREG(facts.st_mode) else "it is no regular file"
        raise OSError(errno.EINVAL, why, path)
    return os.fdopen(file, "rb")


def create_input(workspace: Path, path: str) -> BinaryIO:
    """An input file in the workspace, open for writing, before the run. `path` was checked by `check_path`. Raises OSError, also
    where a part of the path is a link (a repository may have links)."""
    *folders, name = path.split("/")
    folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=folder)
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, 0o644, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "no regular file", path)
    return os.fdopen(file, "wb")


def _files(workspace: Path) -> Iterator[tuple[str, int]]:
    seen = 0
    for folder, names, files, fd in os.fwalk(workspace, follow_symlinks=False):
        below = "" if folder == str(workspace) else os.path.relpath(folder, workspace) + "/"
        names[:] = sorted(n for n in names if n.lower() != ".git") if below.count("/") < MAX_DEPTH else []
        for name in sorted(files):
            seen += 1
            if seen > MAX_ENTRIES:
                return
            try:
                facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(facts.st_mode):
                yield below + name, facts.st_size
