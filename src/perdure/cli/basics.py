"""Small commands: version, completion, demo."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.errors import Usage
from perdure.cli.options import command, group

if TYPE_CHECKING:
    from rich.text import Text

    from perdure.cli.session import Cli

app = group("Small commands.", "perdure version")

SHELLS = ("bash", "zsh", "fish")
