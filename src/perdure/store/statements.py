"""Loads named statements and numbered migrations from .sql files.

A statement file is a list of blocks, each headed `-- name: some_name` followed by comment lines and the statement.
Parameters are written `:name`. SQLite takes them as they are; `compiled` writes them as another driver needs them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from perdure.store.protocol import Migration

_NAME = re.compile(r"^-- name: *([a-z][a-z0-9_]*) *$", re.MULTILINE)

_PARAMETER = re.compile(
    r"""
      --[^\n]* | /\*.*?\*/                             # comments
    | [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*'        # strings
    | "(?:[^"]|"")*"                                   # quoted names
    | \$([A-Za-z_]*)\$.*?\$\1\$                        # dollar quotes
    | ::                                               # casts
    | (?<![:\w]):(?P<parameter>[a-z_][a-z0-9_]*)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as a driver takes it. `parameters` has the name of each positional parameter."""

    name: str
    sql: str
    parameters: tuple[str, ...]

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """The values in the order of their places. Raises TypeError unless each parameter is given, and nothing else."""
        if len(given) == len(self.parameters):
            try:
                return [given[name] for name in self.parameters]
            except KeyError:
                pass
        raise TypeError(f"statement '{self.name}' takes {sorted(self.parameters)}, not {sorted(given)}")


def compiled(name: str, sql: str, marker: Callable[[int, str], str] = lambda number, _: f"${number}") -> Statement:
    """The statement with `marker(number, parameter)` in place of each `:parameter`.

    Numbers count the different parameters from 1, in the order of their first use. Strings, quoted names, comments, dollar
    quotes and casts are left alone.
    """
    numbers: dict[str, int] = {}

    def write(match: re.Match[str]) -> str:
        parameter = match["parameter"]
        if parameter is None:
            return match[0]
        return marker(numbers.setdefault(parameter, len(numbers) + 1), parameter)

    text = _PARAMETER.sub(write, sql)
    return Statement(name, text, tuple(numbers))


def load_statements(package: str) -> dict[str, str]:
    """All named statements of the .sql files in the folders of `package`, migrations excepted, with `:name` parameters.

    Raises ValueError if two statements have one name.
    """
    statements: dict[str, str] = {}
    for file in _statement_files(package):
        parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in statements:
                raise ValueError(f"two statements of {package} have the name '{name}'")
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
