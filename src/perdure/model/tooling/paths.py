"""Paths and patterns inside a workspace: relative, with `/`, and with nothing that could leave it."""

from __future__ import annotations

import functools
import re

from perdure.model.errors import InvalidOutputSpec, UnsafePath

MAX_PATH_BYTES = 1024
MAX_PART_BYTES = 255

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def check_path(path: object, what: str = "a file") -> str:
    """A relative path inside the workspace, unchanged. `what` names it in the error.

    Raises UnsafePath if it is empty, absolute or too long, or has `..`, `.` or nothing between two slashes, a backslash, a
    control character, or a part `.git` (whose files make git run programs).
    """
    if problem := _problem(path):
        raise UnsafePath(
            f"{what} has the path {path!r:.200}, which {problem}",
            hint="give a path relative to the workspace, such as src/main.py",
        )
    assert isinstance(path, str)
    return path


def check_pattern(pattern: object) -> str:
    """A path or a pattern of output_spec, unchanged: `*` and `?` stay within a name, `**` is any folders, `[ab]` is one of these.

    Raises UnsafePath as `check_path` does, and InvalidOutputSpec for a bracket that is not closed or `**` next to other letters.
    """
    check_path(pattern, "output_spec")
    assert isinstance(pattern, str)
    for part in pattern.split("/"):
        if "**" in part and part != "**":
            raise InvalidOutputSpec(
                f"output_spec has {pattern!r}: `**` stands alone between slashes", hint="write src/**/*.py"
            )
        if "[" in re.sub(r"\[!?\]?[^\]]+\]", "", part):
            raise InvalidOutputSpec(f"output_spec has {pattern!r}, whose bracket is not closed", hint="write [ab]")
    return pattern


def matches(pattern: str, path: str) -> bool:
    """Whether a checked pattern of output_spec covers a path of the workspace; without a slash, of its top folder only."""
    return _compiled(pattern).fullmatch(path) is not None


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = pattern.split("/")
    text = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            text += ".*" if last else "(?:[^/]+/)*"
        else:
            text += "".join(map(_translated, re.findall(r"\[!?\]?[^\]]+\]|.", part))) + ("" if last else "/")
    return re.compile(text, re.DOTALL)


def _translated(piece: str) -> str:
    if piece == "*":
        return "[^/]*"
    if piece == "?":
        return "[^/]"
    if len(piece) > 1:
        inner = piece[1:-1]
        negated = inner.startswith("!")
        members = "".join(f"\\{c}" if c in "\\[]^&~|" else c for c in inner[negated:])
        return f"(?!/)[{'^' if negated else ''}{members}]"
    return re.escape(piece)


def _problem(path: object) -> str | None:
    if not isinstance(path, str):
        return f"is no text but {type(path).__name__}"
    if not path:
        return "is empty"
    if _CONTROL.search(path):
        return "has a control character"
    if "\\" in path:
        return "has a backslash"
    if path.startswith("/"):
        return "is absolute"
    parts = path.split("/")
    if ".." in parts:
        return "has `..`"
    if "." in parts or "" in parts:
        return "has an empty part or `.`"
    if any(part.lower() == ".git" for part in parts):
        return "is inside .git"
    if len(path.encode()) > MAX_PATH_BYTES or any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        return f"is longer than {MAX_PATH_BYTES} bytes, or has a name longer than {MAX_PART_BYTES}"
    return None
