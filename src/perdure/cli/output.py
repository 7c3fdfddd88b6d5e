"""Printing: tables, JSON, ids; the same rows in every mode. Data goes to stdout, messages to stderr."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeVar
from uuid import UUID

from perdure.cli.errors import log_line
from perdure.cli.format import ICONS, TimeFormat, Times, clean_text, iso, one_line, safe_json
from perdure.cli.usage_error import Usage
from perdure.model.approvals import Approval, ApprovalStatus
from perdure.model.cost import text_of_cost
from perdure.model.safe_text import same_length
from perdure.model.states import Status

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

T = TypeVar("T")
DEEPEST = 50
"""How many lists and objects within each other are shown as such."""
Cell = str | tuple[str, str]
"""Text, or text with a style."""


class Mode(enum.StrEnum):
    """How data is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    ID = "id"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table. `name` is what --fields calls it; a `wide` one is shown with -o wide only; a `flexible` one is cut
    where the terminal is too narrow."""

    name: str
    cell: Callable[[T], Cell]
    wide: bool = False
    flexible: bool = False
    right: bool = False
    least: int = 0
    """Cells that are never cut: those of an id, which can be typed again."""


class Output:
    """Where and how a command prints."""

    def __init__(
        self,
        *,
        mode: Mode = Mode.TABLE,
        fields: str | None = None,
        color: str | None = None,
        time_format: str | None = None,
        quiet: bool = False,
    ) -> None:
        self.mode = mode
        self.fields = None if fields is None else [f.strip() for f in fields.split(",") if f.strip()]
        self.tty = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.color = wants_color(color, sys.stdout)
        self.error_color = wants_color(color, sys.stderr)
        self.quiet = quiet
        self.logs_json = False
        """Whether messages are log lines in JSON: of a worker whose log is JSON, so that every line of its stderr is."""
        self._epoch = time_format == "epoch"
        self._format = TimeFormat(time_format or ("relative" if self.tty else "iso"))
        if self.fields == []:
            raise Usage("--fields needs at least one name")

    @property
    def times(self) -> Times:
        """Shows times as of this moment."""
        return Times(self._format, datetime.now(UTC))

    @property
    def for_people(self) -> bool:
        """True where a table or page is printed."""
        return self.mode in (Mode.TABLE, Mode.WIDE)

    @property
    def for_programs(self) -> bool:
        """True where JSON is printed: errors and warnings are JSON as well."""
        return self.mode in (Mode.JSON, Mode.JSONL)

    @property
    def width(self) -> int | None:
        """The terminal's width; None where output goes elsewhere and nothing is cut."""
        if not self.tty:
            return None
        try:
            return int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns) or 80
        except (OSError, ValueError):
            return 80

    def console(self, *, live: bool = False) -> Console:
        """A rich console on stdout that obeys --color; a live one cuts lines at the edge, to know how many there are."""
        from rich.console import Console

        system = ("auto" if self.tty else "standard") if self.color else None
        return Console(
            force_terminal=self.tty or self.color,
            color_system=system,  # type: ignore[arg-type]  # a literal chosen at run time
            width=self.width or 10_000,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=not live,
        )

    # -- messages ----------------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """A message for people: on stderr; not with -q, and not with JSON output."""
        if not self.for_programs:
            self._say(text, "2")

    def warn(self, text: str) -> None:
        """A more important message; with JSON output it is JSON as well."""
        if self.for_programs:
            self._say(safe_json(json.dumps({"warning": text}, ensure_ascii=False)), None)
        else:
            self._say(text, "33")

    def _say(self, text: str, style: str | None) -> None:
        if self.quiet:
            return
        sys.stdout.flush()
        if self.logs_json:
            level = "warning" if style == "33" else "info"
            print(log_line(text.strip(), level), file=sys.stderr, flush=True)
            return
        text = clean_text(text)
        print(f"\x1b[{style}m{text}\x1b[0m" if self.error_color and style else text, file=sys.stderr, flush=True)

    # -- data --------------------------------------------------------------------------------------------------------------

    def rows(
        self,
        items: Sequence[T],
        columns: Sequence[Column[T]],
        *,
        id: Callable[[T], Any],
        next_cursor: str | None = None,
        plain: Callable[[T], dict[str, Any]] | None = None,
    ) -> None:
        """Print a list: a table, `{items, next_cursor}`, one JSON object per line, or ids."""
        plain = plain or as_dict
        match self.mode:
            case Mode.TABLE | Mode.WIDE:
                chosen = self._columns(columns, items, plain)
                if items:
                    self.print(laid_out([[c.cell(i) for c in chosen] for i in items], chosen, self.width))
            case Mode.JSON:
                self.json({"items": [self.picked(plain(i)) for i in items], "next_cursor": next_cursor})
            case Mode.JSONL:
                for item in items:
                    self.json_line(plain(item))
            case Mode.ID:
                for item in items:
                    print(clean_text(str(id(item))))
            case Mode.NONE:
                pass

    def one(
        self, item: T, page: Callable[[], Text], *, id: Any, plain: Callable[[T], dict[str, Any]] | None = None
    ) -> None:
        """Print one thing: a page, a JSON object, or its id. With --fields the page is those fields, one per line."""
        plain = plain or as_dict
        match self.mode:
            case Mode.TABLE | Mode.WIDE if self.fields:
                for value in self.picked(plain(item)).values():
                    print(clean_text(_shown(value)))
            case Mode.TABLE | Mode.WIDE:
                self.print(page())
            case Mode.JSON:
                self.json(self.picked(plain(item)))
            case Mode.JSONL:
                self.json_line(plain(item))
            case Mode.ID:
                print(id)
            case Mode.NONE:
                pass

    def print(self, text: Text) -> None:
        """Print laid-out text as it is."""
        lines = [line.rstrip() for line in self._rendered(text).split("\n")]
        print("\n".join(lines).rstrip("\n"))

    def _rendered(self, text: Text) -> str:
        text = safe(text)
        if not self.color:
            return text.plain
        console = self.console()
        with console.capture() as captured:
            console.print(text, end="")
        return captured.get()

    def json(self, value: Any) -> None:
        """Print indented JSON."""
        print(safe_json(json.dumps(self._jsonable(value), ensure_ascii=False, indent=2)))

    def json_line(self, value: dict[str, Any]) -> None:
        """Print one line of JSON and flush it: a program may read it while the command runs."""
        print(safe_json(json.dumps(self._jsonable(self.picked(value)), ensure_ascii=False)), flush=True)

    def _jsonable(self, value: Any) -> Any:
        return jsonable(value, epoch=self._epoch)

    def picked(self, value: dict[str, Any]) -> dict[str, Any]:
        """What --fields asks for, or everything."""
        if self.fields is None:
            return value
        return {name: _dig(value, name) for name in self.fields}

    def _columns(
        self, columns: Sequence[Column[T]], items: Sequence[T], plain: Callable[[T], dict[str, Any]]
    ) -> list[Column[T]]:
        if self.fields is None:
            return [c for c in columns if self.mode is Mode.WIDE or not c.wide]
        by_name = {c.name: c for c in columns}
        keys = list(plain(items[0])) if items else []
        chosen = []
        for name in self.fields:
            if name in by_name:
                chosen.append(by_name[name])
            elif not items or name.partition(".")[0] in keys:
                chosen.append(Column(name, _digger(name, plain)))
            else:
                known = ", ".join(dict.fromkeys([*by_name, *keys]))
                raise Usage(f"--fields: there is no field '{name}'", hint=f"known: {known}")
        return chosen


def safe(text: Text) -> Text:
    """The text without what could control the terminal, its styles in place: pages escape what they know to come from jobs, and
    nothing else gets through."""
    if (plain := same_length(text.plain)) != text.plain:
        text.plain = plain
    return text


def wants_color(flag: str | None, stream: TextIO) -> bool:
    """--color, else NO_COLOR, FORCE_COLOR, TERM=dumb, else whether the stream is a terminal."""
    if flag in ("always", "never"):
        return flag == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def status_cell(status: Status | str) -> tuple[str, str]:
    """Icon, word and style of a status."""
    icon, style = ICONS[Status(status)]
    return f"{icon} {Status(status)}", style


def laid_out(rows: Sequence[Sequence[Cell]], columns: Sequence[Column[Any]], width: int | None) -> Text:
    """A table as text: columns as wide as their content, flexible ones cut until the whole fits into `width`."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    grid: list[list[tuple[str, str]]] = [[(c.name.upper().replace("_", " "), "bold") for c in columns]]
    grid += [
        [(one_line(cell), "") if isinstance(cell, str) else (one_line(cell[0]), cell[1]) for cell in r] for r in rows
    ]
    widths = [max(cell_len(row[n][0]) for row in grid) for n in range(len(columns))]
    if width is not None:
        _shrink(widths, columns, width - 2 * (len(columns) - 1))
    text = Text()
    for number, row in enumerate(grid):
        for n, (content, style) in enumerate(row):
            size = cell_len(content)
            if size > widths[n]:
                shown = set_cell_size(content, max(0, widths[n] - 1)) + "…"
            elif columns[n].right:
                shown = " " * (widths[n] - size) + content
            else:
                shown = content + " " * (widths[n] - size)
            if all(not cell[0] for cell in row[n:]):
                break
            if all(not cell[0] for cell in row[n + 1 :]):
                shown = shown.rstrip()
            text.append(("  " if n else "") + shown, style or None)
        text.append("\n" if number < len(grid) - 1 else "")
    return text


def _shrink(widths: list[int], columns: Sequence[Column[Any]], room: int) -> None:
    """Cut the widest flexible column, and again, until all fits; the others only where that is not enough."""
    for all_of_them, least in ((False, 12), (True, 4)):
        while sum(widths) > room:
            wide = [n for n, c in enumerate(columns) if (c.flexible or all_of_them) and widths[n] > max(least, c.least)]
            if not wide:
                break
            widths[max(wide, key=lambda n: widths[n])] -= 1


def as_dict(value: Any) -> dict[str, Any]:
    """The fields of a record."""
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def jsonable(value: Any, *, epoch: bool = False, depth: int = 0) -> Any:
    """Records, ids, times and enums as JSON values; times in UTC, ISO 8601 or seconds since 1970. What is nested deeper
    than DEEPEST is shown as its JSON text."""
    if depth > DEEPEST and isinstance(value, dict | list | tuple):
        return _text_of(value)
    deeper = depth + 1
    match value:
        case datetime():
            return round(value.timestamp(), 3) if epoch else iso(value)
        case UUID():
            return str(value)
        case Decimal():
            return text_of_cost(value)
        case enum.Enum():
            return value.value
        case dict():
            return {str(k): jsonable(v, epoch=epoch, depth=deeper) for k, v in value.items()}
        case list() | tuple():
            return [jsonable(v, epoch=epoch, depth=deeper) for v in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return jsonable(as_dict(value), epoch=epoch, depth=deeper)
        case _:
            return value


def _text_of(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "nested too deep to be shown: perdure jobs export has it"


def _dig(value: Any, path: str) -> Any:
    if isinstance(value, dict) and path in value:
        return value[path]
    head, _, rest = path.partition(".")
    inner = value.get(head) if isinstance(value, dict) else getattr(value, head, None)
    if head and rest:
        return _dig(inner, rest)
    if isinstance(value, dict) and head not in value:
        raise Usage(f"--fields: there is no field '{path}'", hint=f"known: {', '.join(map(str, value))}")
    return inner


def _digger(name: str, plain: Callable[[T], dict[str, Any]]) -> Callable[[T], Cell]:
    return lambda item: _shown(_dig(plain(item), name))


def _shown(value: Any) -> str:
    value = jsonable(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else safe_json(json.dumps(value, ensure_ascii=False))


APPROVAL_ICONS = {
    ApprovalStatus.PENDING: ("✋", "magenta"),
    ApprovalStatus.APPROVED: ("✓", "green"),
    ApprovalStatus.DENIED: ("✕", "red"),
    ApprovalStatus.EXPIRED: ("⊘", "yellow"),
    ApprovalStatus.CANCELLED: ("⊘", "dim"),
}


def approval_cell(approval: Approval) -> tuple[str, str]:
    """Icon, word and style."""
    icon, style = APPROVAL_ICONS[approval.status]
    return f"{icon} {approval.status}", style
