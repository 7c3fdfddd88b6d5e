"""What the demo shows: lines, a progress bar on a terminal, a question."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import textwrap

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from perdure.cli.format import clean_text


class View:
    """Lines, and on a terminal a bar below them."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._console = Console(highlight=False, soft_wrap=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._live)
        self._task = self._bar.add_task("steps recorded", total=None)

    def say(self, text: str, style: str = "") -> None:
        """One or more lines."""
        self._console.print(escape(clean_text(text)), style=style)

    def page(self, text: str, most: int | None) -> None:
        """A text, or its first lines."""
        lines = text.splitlines()
        left = 0 if most is None else max(0, len(lines) - most)
        shown = [*lines[: len(lines) - left], *([f"... {left} more lines"] if left else [])]
        self.say(textwrap.indent("\n".join(shown), "  | ", lambda _: True), "dim")

    def expect(self, total: int) -> None:
        """Now it is known how many steps there are."""
        self._bar.update(self._task, total=total)
        self._bar.start()

    def step(self, number: int, text: str) -> None:
        """A step was recorded."""
        self._bar.update(self._task, completed=number)
        width = self._console.width if self._live else 100
        self.say(f"  {number:>2} {text}"[: width - 1].rstrip())

    async def ask(self, question: str) -> bool:
        """Yes unless the person says no."""
        self._bar.stop()
        self._console.print(question, end="")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        loop.add_reader(sys.stdin, lambda: None if answer.done() else answer.set_result(sys.stdin.readline()))
        try:
            said = await answer
        finally:
            loop.remove_reader(sys.stdin)
        self._bar.start()
        return said.strip().lower() in ("", "y", "yes")

    def close(self) -> None:
        """Take the bar away."""
        with contextlib.suppress(Exception):
            self._bar.stop()
