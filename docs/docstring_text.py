"""Docstrings and types as Markdown, with links to the entries of the Python reference."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from public_names import entries, is_error
from signatures import plain_annotation

DESCRIBED = re.compile(r"(?:^|(?<=[.;] )|(?<=\) ))([a-z_]+(?:, [a-z_]+)*): ")


def as_markdown(doc: str, parameters: Iterable[str] = ()) -> str:
    """A docstring as Markdown: its paragraphs; lines that begin with the name of a parameter as a list; its examples as code."""
    return "\n\n".join(_paragraph(part, set(parameters)) for part in paragraphs(inspect.cleandoc(doc)) if part.strip())


def paragraphs(doc: str) -> list[str]:
    """Paragraphs; the code between them, which is not prose, in one piece."""
    parts: list[str] = []
    for part in re.split(r"\n\s*\n", doc):
        if parts and _is_code(parts[-1]) and _is_code(part):
            parts[-1] += "\n\n" + part
        else:
            parts.append(part)
    return parts


def _is_code(part: str) -> bool:
    if part.lstrip().startswith(">>>"):
        return True
    return bool(
        re.match(r"(from \w+(\.\w+)* import |import \w+$|@\w+|\w+ = |async (with|def) |# await )", part.lstrip())
    )


def _paragraph(part: str, parameters: set[str]) -> str:
    if _is_code(part):
        return f"```py\n{part.rstrip()}\n```"
    found: list[str] = []
    for piece in re.split(r"(?<=[.:])\n(?=[A-Z])", part):  # a line that begins a sentence
        text = " ".join(piece.split())
        raised = re.search(r"(?:^|(?<=\. ))Raises ", text)
        rest = text[raised.start() :] if raised else ""
        text = text[: raised.start()].strip() if raised else text
        items = _items(text, parameters)
        found += ["\n".join(items)] if items else []
        found += [_linked(rest)] if rest else []
    return "\n\n".join(_wrapped(item) for item in found)


def _items(text: str, parameters: set[str]) -> list[str]:
    """A sentence that describes parameters, `name: what it is`, as a list of them."""
    places = [m for m in DESCRIBED.finditer(text) if set(m[1].split(", ")) & parameters]
    if not places:
        return [_linked(text)] if text else []
    items = [_linked(text[: places[0].start()].strip()), ""] if places[0].start() else []
    for place, following in zip(places, [*places[1:], None], strict=True):
        end = following.start() if following else len(text)
        names = ", ".join(f"`{name}`" for name in place[1].split(", "))
        items.append(f"- {names}: {_linked(text[place.end() : end].strip())}")
    return items


def _wrapped(text: str) -> str:
    lines = []
    for line in text.splitlines():
        indent = "  " if line.startswith("- ") else ""
        wrap = textwrap.wrap(line, 128, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += wrap or [""]
    return "\n".join(lines)


def doc_cell(doc: str) -> str:
    text = " ".join(doc.split())
    return _linked(text[:1].upper() + text[1:])


def _linked(text: str) -> str:
    """Text whose names of errors lead to their entries."""
    names = "|".join(entry.name for entry in entries() if is_error(entry.value))
    pieces = re.split(r"(`[^`]*`)", escaped_text(text))
    return "".join(
        piece if piece.startswith("`") else re.sub(rf"\b({names})\b", lambda m: link_to(m[1]), piece)
        for piece in pieces
    )


def link_to(name: str) -> str:
    entry = next((e for e in entries() if e.name == name), None)
    return f"`{name}`" if entry is None else f"[`{name}`]({entry.page}.md#{anchor_of(name)})"


def type_cell(annotation: Any) -> str:
    plain = plain_annotation(annotation)
    return f"`{plain}`".replace("|", "\\|") if plain else ""


def anchor_of(name: str) -> str:
    return re.sub(r"[^\w\- ]", "", name.lower())


def escaped_text(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")


def code_block(lines: list[str]) -> Iterator[str]:
    yield from ("```py", *lines, "```", "")
