"""What the commands about agents share."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.options import group

app = group("Create agents, send them messages and signals, read their mailboxes.", "perdure agents ls")

Id = Annotated[str, typer.Argument(metavar="ID", help="An agent")]
