"""Collecting what a run wrote: the content of the files that its output_spec covers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from perdure.model.errors import UnsafePath
from perdure.model.task_records import DIFF, NewFile
from perdure.model.tooling import check_path
from perdure.tools.outputs import OutputFile, find_outputs, open_output

MAX_FILES = 1000


class Collected:
    """files: what was collected. refused: paths that were found and not collected, with the reason."""

    def __init__(self) -> None:
        self.files: list[NewFile] = []
        self.refused: dict[str, str] = {}

    def add_diff(self, diff: bytes, *, most: int) -> None:
        """What a run changed in its copy of a repository, as one more file."""
        if len(diff) > most:
            self.refused[DIFF] = f"it has {len(diff):,} bytes; the limit is {most:,}"
        elif diff:
            self.files.append(NewFile(DIFF, diff, hashlib.sha256(diff).hexdigest()))


def collect(workspace: Path, output_spec: Sequence[str], *, most: int) -> Collected:
    """The files that output_spec covers. most: bytes of one file."""
    collected = Collected()
    for found in find_outputs(workspace, output_spec):
        reason = _add(collected, workspace, found, most)
        if reason is not None:
            collected.refused[found.path] = reason
    return collected


def _add(collected: Collected, workspace: Path, found: OutputFile, most: int) -> str | None:
    """Read one file; returns why it was not collected."""
    if len(collected.files) >= MAX_FILES:
        return f"there are more than {MAX_FILES:,} files"
    if found.size > most:
        return f"it has {found.size:,} bytes; the limit is {most:,}"
    try:
        check_path(found.path)
        with open_output(workspace, found.path) as file:
            content = file.read(most + 1)
    except UnsafePath as error:
        return error.message
    except OSError as error:
        return error.strerror or "it cannot be read"
    if len(content) > most:
        return f"it grew beyond {most:,} bytes"
    collected.files.append(NewFile(found.path, content, hashlib.sha256(content).hexdigest()))
    return None
