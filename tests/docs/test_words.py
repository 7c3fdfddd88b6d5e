"""Plain words: what a page says, it says literally, and with one word for one thing."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name

INSTEAD = {
    r"nobody|no-one": "say who or what does not: 'no worker', 'is not ...'",
    r"somebody|someone|anybody|anyone|everybody|everyone": "say who: a person, a process, every caller",
    r"whoever|whosoever": "say who: the process that ..., the holder of ...",
    r"strangers?": "another program, another process",
    r"doors?|doorbells?": "via; notifier",
    r"halls?|rooms?|houses?|nursery|temper|patience|boarding|landing": "the literal word",
    r"mend(s|ed|ing)?": "repair, repaired, fixed",
    r"tries|another try|a try|each try|first try|last try|(further|third|second) tr(y|ies)": "attempt, or call",
    r"blots?|hush(es|ed)?|rings?|rang|bells?|rung": "the literal word",
    r"the dead|the truth|itself the truth|in earnest|makes? no sense|at a glance|in vain": "the literal words",
    r"fates?|mortals?|steers?|steering|steered|severs?|severed|severing": "what happens; what can be killed; control; terminate",
    r"anew|thrice": "again; three times",
    r"told|heard of": "reported, shown, given; last heartbeat",
    r"beside": "next to, besides, while",
}
"""A word that is not used, as a pattern, and what is used instead. `retries` is allowed: it is the name of an option."""

BANNED = [(re.compile(rf"\b({pattern})\b", re.IGNORECASE), instead) for pattern, instead in INSTEAD.items()]
ALLOWED = re.compile(r"\bretries\b|\bdead (letters?|rows?|ones?|worker)", re.IGNORECASE)

GENERATED = (
    ROOT / "docs" / "cli.md",
    *(ROOT / "docs" / "errors").iterdir(),
    *(ROOT / "docs" / "reference").glob("*.md"),
)
"""Their words are those of the code."""

TEXTS = [page for page in PAGES if page not in GENERATED]
TEXTS += [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "alerts.yml"]

TEXTS += sorted(
    path
    for folder in ("tests", "bench", "examples", "docs")
    for path in (ROOT / folder).rglob("*.py")
    if path.name != "test_words.py"
)
TEXTS += sorted(path for suffix in ("*.py", "*.sql") for path in (ROOT / "src").rglob(suffix))

_PARTS = re.compile(r"<!-- generated: .*?<!-- end -->|<!-- measured -->.*?<!-- /measured -->", re.DOTALL)
_CODE = re.compile(r"^```.*?^```$|``?[^`\n]+`?`|\]\([^)]*\)|https?://\S+", re.DOTALL | re.MULTILINE)


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page without its code and its generated parts; the comments and texts of a module; the comments of SQL."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _of_code(text)
        return
    if path.suffix == ".sql":
        for number, line in enumerate(text.splitlines(), 1):
            yield number, line.partition("--")[2]
        return
    blank = re.compile(r"[^\n]")
    for pattern in (_PARTS, _CODE):
        text = pattern.sub(lambda found: blank.sub(" ", found[0]), text)
    yield from enumerate(text.splitlines(), 1)


def _of_code(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _CODE.sub(" ", token.string)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for number, line in enumerate(node.value.splitlines()):
                yield node.lineno + number, _CODE.sub(" ", line)


def found_in(path: Path) -> list[str]:
    """Every banned word of a text, where it is, and what to write instead."""
    return [
        f"{name(path)}:{number}: {match[0]!r} ({instead})"
        for number, line in sentences(path)
        for pattern, instead in BANNED
        for match in pattern.finditer(ALLOWED.sub("", line))
    ]


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_the_words_are_plain(path: Path) -> None:
    assert found_in(path) == []


def test_what_is_not_plain_is_found() -> None:
    code = (
        "def door(door: str) -> None:\n"
        '    """Nobody comes in."""\n'
        '    raise ValueError("door", "mended `somebody` by a stranger")  # rings\n'
    )
    found = [
        (number, match[0]) for number, line in _of_code(code) for word, _ in BANNED for match in word.finditer(line)
    ]
    assert sorted(found) == [(2, "Nobody"), (3, "mended"), (3, "rings"), (3, "stranger")]


IN_NAMES = re.compile(
    "nobody|nobodys|somebody|someone|anybody|anyone|everybody|everyone|whoever|strangers?|doors?|doorbell|bell|nursery|"
    "mend(s|ed|ing)?|mortal|fate|steer(ing)?|sever(ing)?|told|beside|anew|thrice"
)
"""Words that no name of a function, class, parameter or variable has."""
NAMES_ALLOWED = {
    "NOBODY_INSIDE",
    "become_user_nobody",
    "nobody",
    "test_without_a_user_namespace_root_becomes_the_user_nobody",
}
"""They name the user `nobody` of the operating system."""


@pytest.mark.parametrize("path", [path for path in TEXTS if path.suffix == ".py"], ids=name)
def test_the_names_are_plain(path: Path) -> None:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=given) | ast.AsyncFunctionDef(name=given) | ast.ClassDef(name=given):
                found.add(given)
            case ast.arg(arg=given) | ast.Name(id=given, ctx=ast.Store()) | ast.Attribute(attr=given, ctx=ast.Store()):
                found.add(given)
            case ast.alias(asname=str(given)):
                found.add(given)
            case _:
                pass
    words = {given: re.sub(r"([a-z])([A-Z])", r"\1_\2", given).lower().split("_") for given in found | {path.stem}}
    assert {given for given, parts in words.items() if any(map(IN_NAMES.fullmatch, parts))} <= NAMES_ALLOWED
