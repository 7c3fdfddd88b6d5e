"""The version of the code of a worker: of the distribution that its handlers are installed with, else the git commit and a digest
of the handlers' files, else the digest."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import sys
from collections.abc import Iterable
from pathlib import Path

UNKNOWN = "unknown"
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def version_of(modules: Iterable[str]) -> str:
    """The version of these modules, which are imported; UNKNOWN where they have no files. It is the same in each process that
    has the same files."""
    names = sorted(set(modules))
    files = [Path(file) for name in names if (file := getattr(sys.modules.get(name), "__file__", None))]
    if not files:
        return UNKNOWN
    if any(part in ("site-packages", "dist-packages") for part in files[0].parts):
        found = _distribution(names[0])
        if found is not None:
            return found
    digest = hashlib.sha256()
    for file in files:
        try:
            digest.update(file.read_bytes())
        except OSError:
            continue
    commit = _commit(files[0].resolve().parent)
    return f"{commit[:10]}+{digest.hexdigest()[:6]}" if commit else digest.hexdigest()[:10]


def _distribution(module: str) -> str | None:
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0])
    return importlib.metadata.version(names[0]) if names else None


def _commit(directory: Path) -> str | None:
    """The commit that is checked out, read from the files of git: git itself may not be installed."""
    for place in (directory, *directory.parents):
        entry = place / ".git"
        if entry.exists():
            try:
                return _head(entry)
            except OSError:
                return None
    return None


def _head(entry: Path) -> str | None:
    folder = entry
    if entry.is_file():  # a work tree names its folder
        folder = entry.parent / entry.read_text().partition("gitdir:")[2].strip()
    common = folder / "commondir"
    shared = folder / common.read_text().strip() if common.exists() else folder
    head = (folder / "HEAD").read_text().strip()
    name = head.removeprefix("ref: ")
    if name != head:
        head = _ref(shared, name)
    return head if _COMMIT.fullmatch(head) else None


def _ref(folder: Path, name: str) -> str:
    loose = folder / name
    if loose.exists():
        return loose.read_text().strip()
    packed = folder / "packed-refs"
    lines = packed.read_text().splitlines() if packed.exists() else []
    return next((line.partition(" ")[0] for line in lines if line.endswith(f" {name}")), "")
