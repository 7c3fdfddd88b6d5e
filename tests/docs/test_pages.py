"""The pages say what is so: links lead somewhere, tests that are named exist, everything public is described."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.error_help import ADVICE
from perdure.cli.main import root
from perdure.cli.options import GLOBALS, leading
from perdure.config import SETTINGS
from perdure.model.events import EVENT_TYPES
from perdure.model.explanation import Why
from perdure.model.states import CAUSES, TRANSITIONS, Status
from tests.docs.pages import PAGES, ROOT, anchors, blocks, links, name, prose

DOCS = ROOT / "docs"
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=name)


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run `make docs`\n{done.stdout[:4000]}{done.stderr}"


@EVERY_PAGE
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if link.startswith("https://"):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@EVERY_PAGE
def test_tests_that_are_named_exist(page: Path) -> None:
    """`[test_file.py](path)` is followed by the names of its tests in backticks."""
    missing = []
    for path, named in re.findall(r"\]\((\.\./tests/[^)]+\.py)\)((?:,? ?(?:and )?`test_\w+`)*)", prose(page)):
        text = (page.parent / path).read_text(encoding="utf-8")
        missing += [f"{path}: {test}" for test in re.findall(r"`(test_\w+)`", named) if f"def {test}(" not in text]
    assert not missing


def test_every_guarantee_names_its_tests() -> None:
    text = (DOCS / "guarantees.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| Promise \| Test \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert len(tables) == len(re.findall(r"^## \d", text, re.MULTILINE))
    rows = [row for table in tables for row in table.splitlines()]
    assert [row for row in rows if not re.search(r"\]\(\.\./tests/\S+\.py\) `test_\w+`[^|]* \|$", row)] == []


def test_every_page_is_in_the_index() -> None:
    linked = {(DOCS / link).resolve() for link in links(DOCS / "index.md")}
    assert [
        name(page)
        for page in PAGES
        if page.parent not in (ROOT, DOCS / "errors", DOCS / "reference")
        and page.name != "index.md"
        and page not in linked
    ] == []


def test_every_setting_is_documented() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert [s.name for s in SETTINGS if f"`{s.name}`" not in text or f"`{s.variable}`" not in text] == []


def test_every_event_is_documented() -> None:
    text = (DOCS / "events.md").read_text(encoding="utf-8")
    assert [type for type in EVENT_TYPES if f"`{type}`" not in text] == []


def test_every_state_is_explained() -> None:
    text = (DOCS / "states.md").read_text(encoding="utf-8")
    assert [status for status in Status if f"\n| {status} | " not in text] == []


def test_every_transition_says_what_causes_it() -> None:
    text = (DOCS / "states.md").read_text(encoding="utf-8")
    assert set(CAUSES) == {(old, new) for old, targets in TRANSITIONS.items() for new in targets}
    assert [pair for pair, cause in CAUSES.items() if f"    {pair[0]} --> {pair[1]} : {cause}\n" not in text] == []


def test_every_reason_of_explain_is_documented() -> None:
    text = (DOCS / "explain.md").read_text(encoding="utf-8")
    assert [why for why in Why if f"\n| `{why}` | " not in text] == []


def test_every_error_is_documented_with_what_to_do() -> None:
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (DOCS / "errors").glob("*.md")}
    assert set(pages) == set(ADVICE)
    assert [code for code, page in pages.items() if ADVICE[code] not in page] == []
    assert {f"errors/{code}.md" for code in pages} <= set(links(DOCS / "errors.md"))


# -- the command lines ----------------------------------------------------------------------------------------------------


def tree() -> dict[str, Any]:
    """Every command that is not hidden, by its path: `jobs get`."""
    found: dict[str, Any] = {}

    def walk(group: Any, path: str) -> None:
        for word in group.list_commands(None):
            command = group.get_command(None, word)
            if command.hidden:
                continue
            found[f"{path}{word}"] = command
            if hasattr(command, "list_commands"):
                walk(command, f"{path}{word} ")

    walk(root(), "")
    return found


def test_every_command_and_option_is_documented() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    missing = [name for option in GLOBALS for name in option.names if f"`{name}`" not in text]
    for path, command in tree().items():
        if f" perdure {path}\n" not in text:
            missing.append(path)
        shown = [p for p in command.params if p.param_type_name == "option" and not p.hidden and p.name != "help"]
        missing += [f"{path} {p.opts[0]}" for p in shown if f"`{p.opts[0]}`" not in text]
    assert not missing


def test_global_options_are_listed_once() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `-")]
    assert [option.help for option in GLOBALS if sum(option.help in row for row in rows) != 1] == []


def command_lines(page: Path) -> list[str]:
    """The lines of a page's shell blocks that call perdure."""
    lines = [line for block in blocks(page, "sh") for line in block.text.replace("\\\n", " ").splitlines()]
    return [m[1] for line in lines if (m := re.search(r"(?:^|\$\()\s*((?:perdure|schedulerctl) [^|)&;>]*)", line))]


@EVERY_PAGE
def test_command_lines_can_be_read(page: Path) -> None:
    """The commands exist, and so do their options."""
    known = tree()
    wrong = []
    for line in command_lines(page):
        words = leading(shlex.split(line, comments=True)[1:])[1]
        path = next((p for p in (" ".join(words[:n]) for n in (3, 2, 1)) if p in known), None)
        if path is None:
            wrong.append(line)
            continue
        options = {o for p in known[path].params for o in (*p.opts, *p.secondary_opts)} | {"-h", "--help"}
        used = [word.partition("=")[0] for word in words if re.match(r"-{1,2}[A-Za-z]", word)]
        wrong += [f"{line}: {word}" for word in used if word not in options]
    assert not wrong
