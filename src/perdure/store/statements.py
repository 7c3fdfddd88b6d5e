"""SQL lives in .sql files: this loads named statements and numbered migrations from them.

A statement file is a list of blocks, each headed `-- name: some_name` followed by comment lines and the statement.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

from perdure.store.protocol import Migration

_NAME = re.compile(r"^-- name: *([a-z][a-z0-9_]*) *$", re.MULTILINE)


def load_statements(package: str) -> dict[str, str]:
    """All named statements of the .sql files in the folders of `package`, migrations excepted.

    Raises ValueError if one name stands in them twice.
    """
    statements: dict[str, str] = {}
    for file in _statement_files(package):
        parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in statements:
                raise ValueError(f"statement '{name}' stands twice in {package}")
            statements[name] = body.strip().rstrip(";")
    return statements


def _statement_files(package: str) -> Iterator[Traversable]:
    for folder in sorted(resources.files(package).iterdir(), key=lambda f: f.name):
        if folder.is_dir():
            yield from sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)


def load_migrations(package: str) -> list[Migration]:
    """The migrations `NNNN_name.sql` of `package`.engine.migrations in order; their numbers are 1, 2, 3, ... without a gap."""
    found: list[Migration] = []
    for file in sorted(resources.files(package).joinpath("engine", "migrations").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            sql = file.read_text(encoding="utf-8")
            found.append(Migration(int(number), name, hashlib.sha256(sql.encode()).hexdigest(), sql))
    if [m.number for m in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations of {package} are not numbered 1, 2, 3, ...")
    return found
