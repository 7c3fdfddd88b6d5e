"""The Python reference has an entry for every public name, and the examples in docstrings run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import perdure
import perdure.logs
import perdure.sync
import perdure.testing
from perdure.testing import TestApp
from tests.docs.pages import PAGES, ROOT, blocks

REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def generator() -> Iterator[ModuleType]:
    """docs/python_reference.py, which is a script's module and in no package."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        yield importlib.import_module("python_reference")
    finally:
        sys.path.remove(str(ROOT / "docs"))


def headings() -> set[str]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    return {line.lstrip("#").strip() for line in text.splitlines() if line.startswith("##")}


def test_every_public_name_has_an_entry() -> None:
    names = {name for name in perdure.__all__ if not name.startswith("_")} | set(perdure.testing.__all__)
    names |= set(perdure.logs.__all__)
    names |= {f"sync.{name}" for name, value in vars(perdure.sync).items() if _defined_in(value, "perdure.sync")}
    assert sorted(names - headings()) == []


def test_what_pages_and_examples_import_has_an_entry() -> None:
    pages = [page for page in PAGES if page.parent != REFERENCE]  # whose blocks are signatures
    texts = [block.text for page in pages for language in ("python", "py") for block in blocks(page, language)]
    texts += [example.read_text(encoding="utf-8") for example in (ROOT / "examples").glob("*.py")]
    imported = {
        (node.module or "", alias.name)
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "perdure"
        for alias in node.names
        if not (node.module or "").startswith("perdure.integrations.")  # each has a page of its own
    }
    exported = {
        (module.__name__, name)
        for module in (perdure, perdure.logs, perdure.sync, perdure.testing)
        for name in module.__all__
    }
    assert len(imported) > 20
    assert sorted(imported - exported) == []


@pytest.mark.parametrize(
    "name", ["App", "JobContext", "BlockingContext", "Handle", "Worker", "sync.Client", "sync.Handle"]
)
def test_every_method_has_an_entry(name: str) -> None:
    owner: Any = perdure
    for part in name.split("."):
        owner = getattr(owner, part)
    bases = [base.__name__ for base in owner.__mro__]
    known = headings()
    methods = [
        method for method in dir(owner) if not method.startswith("_") and inspect.isroutine(getattr(owner, method))
    ]
    assert [
        method
        for method in methods
        if not any(f"{title}.{method}" in known for title in (name, *bases)) and _is_ours(owner, method)
    ] == []


def test_every_public_name_has_a_docstring(generator: ModuleType) -> None:
    assert generator.undocumented() == []


def test_every_error_can_be_imported_from_perdure() -> None:
    from perdure.model import errors

    defined = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert sorted(defined - set(perdure.__all__)) == []


def test_examples_in_docstrings_run(generator: ModuleType) -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(verbose=False)
    tried = 0
    for entry in generator.entries():
        if inspect.isclass(entry.value) or inspect.isroutine(entry.value):
            for test in finder.find(entry.value, entry.name, globs=vars(perdure).copy()):
                tried += runner.run(test).attempted
    assert tried > 0
    assert runner.summarize(verbose=False).failed == 0


async def test_the_example_of_the_package_runs() -> None:
    (example,) = blocks(REFERENCE / "index.md", "py")
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example.text, "perdure/__init__.py", "exec"), names)
    async with TestApp(names["app"]) as t:
        job = await t.enqueue(names["greet"], "world")
        assert await job.result() == "hello world"


async def test_the_example_of_the_testing_package_runs(tmp_path: Path) -> None:
    app = perdure.App(f"sqlite:///{tmp_path / 'perdure.db'}")

    @dataclass
    class Brief:
        topic: str

    @app.job
    async def research(ctx: perdure.JobContext, brief: Brief) -> str:
        await ctx.sleep("wait", "1h")
        return await ctx.step("search", brief.topic.upper)

    text = inspect.cleandoc(perdure.testing.__doc__ or "").partition("\n\n")[2]
    code = compile(text, "perdure/testing/__init__.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, {"TestApp": TestApp, "app": app, "research": research, "Brief": Brief})


def _defined_in(value: object, module: str) -> bool:
    return inspect.isclass(value) and value.__module__ == module and not value.__name__.startswith("_")


def _is_ours(owner: type, method: str) -> bool:
    home = next(base for base in owner.__mro__ if method in vars(base))
    return home.__module__.startswith("perdure")
