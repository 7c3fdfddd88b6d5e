"""The Python reference: docs/reference/*.md, made of the signatures and docstrings of every public name. Used by generate.py.

What is public: all that `perdure`, `perdure.sync`, `perdure.testing` and `perdure.logs` export, and the records that their
signatures name. Which page an entry is on follows from the module that defines it, so nothing here needs to change when a name
does.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_origin, get_overloads, is_typeddict

import perdure
import perdure.logs
import perdure.sync
import perdure.testing
from perdure.model.errors import PerdureError

PAGES = {
    "app": (
        "App, client, handlers and workers",
        "What a program calls to register handlers, to enqueue and to run jobs.",
    ),
    "context": ("Inside a handler", "What a handler calls: the context, and what its calls return."),
    "records": ("Records", "What calls take and return. Times are timezone-aware, in UTC; durations are in seconds."),
    "errors": (
        "Errors",
        "Every error, by its place in the tree. Each has a page that says [what to do](../errors.md).",
    ),
    "sync": ("perdure.sync", "The client for synchronous programs: see [synchronous code](../sync.md)."),
    "testing": ("perdure.testing", "For tests of handlers: see [testing](../testing.md)."),
}
"""Each page with its title and what it holds."""

MODULES = (
    ("perdure.sync", "sync"),
    ("perdure.testing", "testing"),
    ("perdure.model.errors", "errors"),
    ("perdure.runtime.context", "context"),
    ("perdure.runtime", "app"),
    ("perdure.logs", "app"),
    ("perdure.app", "app"),
    ("perdure", "records"),
)
"""The page of what a module defines; the first that fits."""

FIRST = (
    "App",
    "Client",
    "Jobs",
    "Approvals",
    "Workers",
    "Database",
    "Handle",
    "JobContext",
    "BlockingContext",
    "Job",
    "Event",
    "Approval",
    "TestApp",
    "PerdureError",
)
"""Where they exist, these come first on their pages."""

SHOWN_DUNDERS = ("__call__", "__aenter__", "__enter__")
MOST_OVERLOADS = 3
LONGEST_LINE = 100
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z`])")
_SEE = re.compile(r"See `(?:\w+\.)*(\w+)\.(\w+)`\.\s*")
_DESCRIBED = re.compile(r"(?:^|(?<=[.;] )|(?<=\) ))([a-z_]+(?:, [a-z_]+)*): ")


@dataclass(frozen=True)
class Entry:
    """One public name."""

    name: str
    value: Any
    home: str
    """The module that a program imports it from."""
    exported: bool = True

    @property
    def module(self) -> str:
        """Where it is defined."""
        defined = str(getattr(self.value, "__module__", ""))
        return defined if defined.startswith("perdure.") else self.home

    @property
    def page(self) -> str:
        """The page it is on."""
        return next(page for prefix, page in MODULES if self.module == prefix or self.module.startswith(f"{prefix}."))


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Every public name, in the order of the pages."""
    found = {entry.name: entry for entry in _exports()}
    queue = [entry.value for entry in found.values()]
    known = {id(value) for value in queue}
    while queue:
        for name, value in _named_by(queue.pop()):
            if id(value) not in known and name not in found:
                known.add(id(value))
                found[name] = Entry(
                    name, value, value.__module__ if inspect.isclass(value) else "perdure", exported=False
                )
                queue.append(value)
    pages = list(PAGES)
    return tuple(sorted(found.values(), key=lambda e: (pages.index(e.page), *_order(e))))


def _order(entry: Entry) -> tuple[Any, ...]:
    if _is_error(entry.value):
        return (0, [base.__name__ for base in reversed(entry.value.__mro__) if base.__module__ == entry.module])
    return (FIRST.index(entry.name) if entry.name in FIRST else len(FIRST), not entry.exported, entry.name.lower())


def _exports() -> Iterator[Entry]:
    for name in perdure.__all__:
        if not name.startswith("_"):
            yield Entry(name, getattr(perdure, name), "perdure")
    for name in perdure.sync.__all__:
        yield Entry(f"sync.{name}", getattr(perdure.sync, name), "perdure.sync")
    for name in perdure.testing.__all__:
        yield Entry(name, getattr(perdure.testing, name), "perdure.testing")
    for name in perdure.logs.__all__:
        yield Entry(name, getattr(perdure.logs, name), "perdure.logs")


def _named_by(value: Any) -> Iterator[tuple[str, Any]]:
    """The records, clients and aliases of perdure that the public signatures and fields of a value name."""
    if not inspect.isclass(value) and not callable(value):
        return
    for text, names in _annotations(value):
        for word in _WORD.findall(text):
            named = names.get(word)
            if inspect.isclass(named):
                if named.__module__.startswith("perdure.") and _is_public_type(named):
                    yield named.__name__, named
            elif get_origin(named) is not None and word in _described_values():
                yield word, named


def _is_public_type(value: type) -> bool:
    if value.__name__.startswith("_") or value.__module__.startswith("perdure.observe"):
        return False
    record = dataclasses.is_dataclass(value) or issubclass(value, enum.Enum) or hasattr(value, "_fields")
    return record or is_typeddict(value) or value.__module__.startswith(("perdure.runtime.client", "perdure.config"))


def _annotations(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if inspect.isclass(value):
        for base in _bases(value):
            names = vars(inspect.getmodule(base))
            for name, annotation in vars(base).get("__annotations__", {}).items():
                if not name.startswith("_"):
                    yield str(annotation), names
        for _, member in members(value):
            yield from _annotations(member.fget if isinstance(member, property) else member)
    elif callable(value):
        function = inspect.unwrap(value)
        names = getattr(function, "__globals__", {})
        for one in [function, *get_overloads(function)] if inspect.isfunction(function) else []:
            for annotation in getattr(one, "__annotations__", {}).values():
                yield str(annotation), names


def _bases(value: type) -> list[type]:
    return [base for base in value.__mro__ if base.__module__.startswith("perdure")]


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def members(value: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class, in the order of their definitions; not those of a base that has an entry."""
    found: dict[str, Any] = {}
    for base in _own_bases(value):
        for name, member in vars(base).items():
            public = not name.startswith("_") or (name in SHOWN_DUNDERS and bool(getattr(member, "__doc__", None)))
            if public and (inspect.isroutine(member) or isinstance(member, property | functools.cached_property)):
                found.setdefault(name, member)
    return list(found.items())


def _own_bases(value: type) -> list[type]:
    exported = [export.value for export in _exports() if inspect.isclass(export.value) and export.value is not value]
    above = {base for known in exported if issubclass(value, known) for base in known.__mro__}
    return [base for base in _bases(value) if base not in above]


# -- the pages ---------------------------------------------------------------------------------------------------------


def pages() -> Iterator[tuple[str, str]]:
    """Every page of the reference, by its file's name."""
    yield "index.md", "\n".join(_index()) + "\n"
    for page, (title, says) in PAGES.items():
        lines = [f"# {title}", "", says, "", "[All names](index.md)", ""]
        for entry in entries():
            if entry.page == page:
                lines += _entry(entry)
        yield f"{page}.md", "\n".join(lines).rstrip("\n") + "\n"


def undocumented() -> list[str]:
    """Public names without a docstring."""
    missing = []
    for entry in entries():
        if inspect.isclass(entry.value):
            if not _own_doc(entry.value):
                missing.append(entry.name)
            missing += [f"{entry.name}.{name}" for name, member in members(entry.value) if not inspect.getdoc(member)]
        elif not _doc_of_value(entry):
            missing.append(entry.name)
    return missing


def _own_doc(value: type) -> str:
    """The docstring of a class; a dataclass without one has its signature there, which says nothing new."""
    doc = inspect.cleandoc(vars(value).get("__doc__") or "")
    return "" if doc.startswith(f"{value.__name__}(") else doc


def _index() -> Iterator[str]:
    yield from ("# Python reference", "", "Every public name, from its signature and docstring in the code.", "")
    yield from (_text(perdure.__doc__ or ""), "")
    for page, (title, _) in PAGES.items():
        yield from (f"## {title}", "", "| Name | What it is |", "|---|---|")
        for entry in entries():
            if entry.page == page:
                doc = _own_doc(entry.value) if inspect.isclass(entry.value) else _doc_of_value(entry)
                first = _SENTENCE.split(" ".join(doc.split("\n\n", 1)[0].split()), maxsplit=1)[0]
                yield f"| [`{entry.name}`]({page}.md#{_anchor(entry.name)}) | {_escaped(first)} |"
        yield ""


def _entry(entry: Entry) -> Iterator[str]:
    yield from (f"## {entry.name}", "")
    if not inspect.isclass(entry.value):
        if entry.exported:
            yield from (f"`from {entry.home} import {entry.name}`", "")
        if inspect.isroutine(entry.value):
            yield from _code(_signatures(entry.name, entry.value))
        elif not entry.exported:
            yield from _code([f"{entry.name} = {_plain(_definitions()[entry.name])}"])
        yield from (_text(_doc_of_value(entry)), "")
        return
    yield from _class_head(entry)
    doc, described = _without_fields(entry.value)
    yield from (_text(doc, _parameters(entry.value)), "")
    yield from _fields(entry.value, described)
    for name, member in members(entry.value):
        if not isinstance(member, property | functools.cached_property):
            yield from _member(entry, name, member)


def _class_head(entry: Entry) -> Iterator[str]:
    value = entry.value
    facts = [f"`from {entry.home} import {value.__name__}`"]
    if issubclass(value, PerdureError) and "code" in vars(value):
        facts.append(f"code [{value.code}](../errors/{value.code}.md)")
    named = [base for base in value.__bases__ if base.__module__ in ("builtins", "enum") and base is not object]
    named += [base for base in value.__mro__[1:] if _has_entry(base)][:1]
    if bases := [base.__name__ for base in named]:
        facts.append("a kind of " + ", ".join(_link(base) for base in bases))
    yield from ("; ".join(facts), "")
    made_by_programs = any("__init__" in vars(base) for base in _own_bases(value))
    if made_by_programs and not dataclasses.is_dataclass(value) and not _takes_internals(value):
        yield from _code(_signatures(value.__name__, value))


def _has_entry(value: type) -> bool:
    return any(entry.value is value for entry in entries())


def _takes_internals(value: type) -> bool:
    """Whether the constructor takes what no program has: then the runtime makes it."""
    return not {"Run", "Store", "Registry"}.isdisjoint(re.findall(r"\w+", str(inspect.signature(value))))


def _member(entry: Entry, name: str, member: Any) -> Iterator[str]:
    title = f"{entry.name}.{name}"
    yield from (f"### {title}", "")
    yield from _code(_signatures(name, inspect.unwrap(member)))
    doc = inspect.getdoc(member) or ""
    target = _referred(doc)
    if target is not None:
        yield from (_text(inspect.getdoc(target) or "", _parameters(target)), "")
        doc = _SEE.sub("", doc, count=1)
    if doc:
        yield from (_text(doc, _parameters(member)), "")


def _referred(doc: str) -> Any:
    """The method that a docstring refers to, as in "See `JobContext.step`."; None if it does not."""
    found = _SEE.match(doc)
    if found is None:
        return None
    owners = [
        e.value for e in entries() if inspect.isclass(e.value) and e.value.__name__ == found[1] and e.page != "sync"
    ]
    owners += [perdure.App]
    return next((m for owner in owners if (m := getattr(owner, found[2], None)) is not None), None)


def _type_elsewhere(name: str) -> str:
    """The type of a property of the blocking context, which has it from the async one."""
    twin = getattr(perdure.JobContext, name, None)
    return str(getattr(getattr(twin, "fget", None), "__annotations__", {}).get("return", ""))


def _without_fields(value: type) -> tuple[str, dict[str, str]]:
    """The docstring of a record without its descriptions of fields, and these."""
    names = {name for base in _own_bases(value) for name, _, _ in _attributes(base)}
    kept, described = [], {}
    for part in _parts(_own_doc(value)):
        text = " ".join(part.split())
        places = [m for m in _DESCRIBED.finditer(text) if set(m[1].split(", ")) <= names]
        kept.append(text[: places[0].start()].strip() if places else part)
        for place, following in zip(places, [*places[1:], None], strict=bool(places)):
            says = text[place.end() : following.start() if following else len(text)].strip()
            raised = re.search(r"(?:^|(?<=\. ))Raises ", says)
            kept.append(says[raised.start() :] if raised else "")
            described |= dict.fromkeys(place[1].split(", "), says[: raised.start()].strip() if raised else says)
    return "\n\n".join(part for part in kept if part), described


def _fields(value: type, described: dict[str, str]) -> Iterator[str]:
    rows = list(_field_rows(value, described))
    if rows:
        head = "Key" if is_typeddict(value) else "Value" if issubclass(value, enum.Enum) else "Attribute"
        yield from (f"| {head} | Type | What it is |", "|---|---|---|")
        yield from rows
        yield ""


def _field_rows(value: type, described: dict[str, str]) -> Iterator[str]:
    if issubclass(value, enum.Enum):
        for one in value:
            yield f"| `{one.name}` | `{one.value!r}` | |"
        return
    seen = set()
    for base in _own_bases(value):
        for name, annotation, says in _attributes(base):
            if name not in seen and not isinstance(vars(value).get(name), property) and (annotation or says):
                seen.add(name)
                yield f"| `{name}` | {_type(annotation)} | {_cell(says or described.get(name, ''))} |"
    for name, member in members(value):
        if isinstance(member, property | functools.cached_property):
            getter = member.fget if isinstance(member, property) else member.func
            annotation = getattr(getter, "__annotations__", {}).get("return") or _type_elsewhere(name)
            yield f"| `{name}` | {_type(annotation)} | {_cell(inspect.getdoc(member) or '')} |"


@functools.cache
def _attributes(value: type) -> tuple[tuple[str, str, str], ...]:
    """The public attributes that the source of a class declares, in its body or in __init__: name, type, what follows as text."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    except (OSError, TypeError):
        return ()
    found = []
    bodies = [getattr(tree, "body", [])]
    bodies += [node.body for node in bodies[0] if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    for body in bodies:
        for node, following in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign | ast.Assign):
                continue
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Attribute):
                name = target.attr
            elif isinstance(target, ast.Name) and isinstance(node, ast.AnnAssign):
                name = target.id
            else:
                continue
            if name.startswith("_") or (name == "code" and _is_error(value)):
                continue
            if isinstance(node, ast.AnnAssign):
                annotation = ast.unparse(node.annotation)
                if isinstance(node.value, ast.Constant) and isinstance(target, ast.Name):
                    annotation += f" = {node.value.value!r}"
            else:
                annotation = _parameter_type(tree, node)
            says = following.value.value if _is_text(following) else ""
            found.append((name, annotation, says))
    return tuple(found)


def _parameter_type(tree: Any, node: ast.Assign) -> str:
    """`self.job = job`: the type of the parameter."""
    if isinstance(node.value, ast.Name):
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                arguments = function.args
                for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
                    if argument.arg == node.value.id and argument.annotation is not None:
                        return ast.unparse(argument.annotation)
    return ""


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _assignments() -> Iterator[tuple[str, Any, Any]]:
    """The constants and aliases of all modules that are loaded: name, value, what follows; as syntax trees."""
    for module in [module for name, module in sorted(sys.modules.items()) if name.startswith("perdure.")]:
        body = ast.parse(inspect.getsource(module)).body
        for node, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign | ast.Assign):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                if isinstance(target, ast.Name):
                    yield target.id, node.value, following


@functools.cache
def _described_values() -> dict[str, str]:
    """What the text below a constant or an alias says of it, by name."""
    return {name: following.value.value for name, _, following in _assignments() if _is_text(following)}


@functools.cache
def _definitions() -> dict[str, str]:
    """What an alias stands for."""
    return {name: ast.unparse(value) for name, value, following in _assignments() if _is_text(following)}


def _doc_of_value(entry: Entry) -> str:
    if inspect.isroutine(entry.value):
        return inspect.getdoc(entry.value) or ""
    return _described_values().get(entry.name, "")


# -- signatures and text -----------------------------------------------------------------------------------------------


def _signatures(name: str, value: Any) -> list[str]:
    functions = [value]
    if inspect.isfunction(value):
        overloads = get_overloads(value)
        functions = list(overloads) if 0 < len(overloads) <= MOST_OVERLOADS else [value]
    if isinstance(value, staticmethod | classmethod):
        functions = [value.__func__]
    return [_signature(name, function) for function in functions]


def _signature(name: str, function: Any) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{name}(...)"
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    shown: list[str] = []
    for number, parameter in enumerate(parameters):
        before = parameters[number - 1] if number else None
        if (
            before is not None
            and before.kind is before.POSITIONAL_ONLY
            and parameter.kind is not before.POSITIONAL_ONLY
        ):
            shown.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and not any(
            p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for p in parameters[:number]
        ):
            shown.append("*")
        shown.append(_parameter(parameter))
    if parameters and parameters[-1].kind is parameters[-1].POSITIONAL_ONLY:
        shown.append("/")
    result = "" if signature.return_annotation is signature.empty else f" -> {_plain(signature.return_annotation)}"
    if inspect.isclass(function):
        result = ""
    start = "async def " if inspect.iscoroutinefunction(function) else "" if inspect.isclass(function) else "def "
    line = f"{start}{name}({', '.join(shown)}){result}"
    if len(line) <= LONGEST_LINE:
        return line
    return f"{start}{name}(\n" + "".join(f"    {one},\n" for one in shown) + f"){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_plain(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if inspect.isclass(value):
        return value.__name__
    text = "..." if value is ... else repr(value)
    return "..." if " at 0x" in text or text.startswith("<") else text


def _plain(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return re.sub(r"\b(?:builtins|perdure\.[\w.]+|collections\.abc|datetime|uuid)\.(?=[A-Za-z])", "", text)


def _parameters(value: Any) -> tuple[str, ...]:
    try:
        names = tuple(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        names = ()
    if inspect.isclass(value):
        names += tuple(name for base in _bases(value) for name, _, _ in _attributes(base))
    return names


def _text(doc: str, parameters: Iterable[str] = ()) -> str:
    """A docstring as Markdown: its paragraphs; lines that begin with the name of a parameter as a list; its examples as code."""
    return "\n\n".join(_paragraph(part, set(parameters)) for part in _parts(inspect.cleandoc(doc)) if part.strip())


def _parts(doc: str) -> list[str]:
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
    places = [m for m in _DESCRIBED.finditer(text) if set(m[1].split(", ")) & parameters]
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


def _cell(doc: str) -> str:
    text = " ".join(doc.split())
    return _linked(text[:1].upper() + text[1:])


def _linked(text: str) -> str:
    """Text whose names of errors lead to their entries."""
    names = "|".join(entry.name for entry in entries() if _is_error(entry.value))
    pieces = re.split(r"(`[^`]*`)", _escaped(text))
    return "".join(
        piece if piece.startswith("`") else re.sub(rf"\b({names})\b", lambda m: _link(m[1]), piece) for piece in pieces
    )


def _link(name: str) -> str:
    entry = next((e for e in entries() if e.name == name), None)
    return f"`{name}`" if entry is None else f"[`{name}`]({entry.page}.md#{_anchor(name)})"


def _type(annotation: Any) -> str:
    plain = _plain(annotation)
    return f"`{plain}`".replace("|", "\\|") if plain else ""


def _anchor(name: str) -> str:
    return re.sub(r"[^\w\- ]", "", name.lower())


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")


def _code(lines: list[str]) -> Iterator[str]:
    yield from ("```py", *lines, "```", "")
