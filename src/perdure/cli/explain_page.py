"""The page of `jobs explain`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.text import Text

from perdure.cli.format import Times, clean_text, one_line
from perdure.cli.output import status_cell
from perdure.model.explanation import Explanation


def explain_page(explanation: Explanation, times: Times) -> Text:
    """The reason, the facts behind it, and what to do."""
    text = Text()
    word, style = status_cell(explanation.status)
    text.append(word, f"bold {style}")
    text.append(f"  {one_line(explanation.kind)}  ", "bold")
    text.append(f"{explanation.job_id}\n", "dim")
    text.append(f"{clean_text(explanation.sentence)}\n")
    for name, value in (("why", explanation.code.value), *explanation.details.items()):
        if shown := _shown(value, times):
            text.append(f"  {name.replace('_', ' '):<20}", "dim")
            text.append(one_line(shown) + "\n")
    if explanation.moves:
        text.append("\nWhat to do\n", "bold")
        for move in explanation.moves:
            text.append(f"  {one_line(move.what)}:\n    {one_line(move.command)}\n")
    return text


def _shown(value: Any, times: Times) -> str:
    match value:
        case None | 0 | [] | "":  # False equals 0
            return ""
        case datetime():
            return times.show(value)
        case float():
            return f"{value:g}"
        case list():  # of records: the sentence names them
            return "" if isinstance(value[0], dict) else ", ".join(map(str, value))
        case _:
            return str(value)
