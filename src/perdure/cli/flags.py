"""The global options and those of lists, as given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

OUTPUTS = ("table", "wide", "json", "jsonl", "id", "none")


@dataclass(slots=True)
class Flags:
    """The global options as given; None, False and 0 where they were not."""

    db: str | None = None
    tenant: str | None = None
    app: str | None = None
    output: str | None = None
    json: bool = False
    fields: str | None = None
    quiet: bool = False
    verbose: int = 0
    color: str | None = None
    time_format: str | None = None
    no_input: bool = False
    yes: bool = False


@dataclass(slots=True)
class Paging:
    """The options of every list."""

    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most this many; default 50", min=1)] = 50
    cursor: Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="Continue where a page ended")] = None
    all: Annotated[bool, typer.Option("--all", help="Every page")] = False
