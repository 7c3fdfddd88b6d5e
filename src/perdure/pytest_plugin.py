"""The pytest plugin: fixtures for tests of handlers. Whoever does not use them pays for this file alone."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the engine is imported by the first test that asks for a fixture
    from perdure.app import App
    from perdure.testing import ManualClock, TestApp


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one setting."""
    parser.addini("perdure_app", "the App that the fixture perdure_app is for, as module:attribute")


@pytest.fixture
def perdure_clock() -> ManualClock:
    """The clock of `perdure_app`: it stands still until the test moves it."""
    from perdure.testing import ManualClock

    return ManualClock()


@pytest.fixture
def perdure_app(pytestconfig: pytest.Config, perdure_clock: ManualClock) -> Iterator[TestApp]:
    """A `perdure.testing.TestApp` for the App that `perdure_app` names in the configuration of pytest; for none, an App of its
    own. Asynchronous tests await its calls, synchronous ones give them to `perdure_app.run`."""
    from perdure.testing import TestApp

    named = pytestconfig.getini("perdure_app")
    with TestApp(_load(named) if named else None, clock=perdure_clock) as app:
        yield app


def _load(named: str) -> App:
    from perdure.app import App

    module, _, attribute = named.partition(":")
    try:
        app = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"perdure_app = {named}: {error}; it is module:attribute") from error
    if not isinstance(app, App):
        raise pytest.UsageError(f"perdure_app = {named}: that is a {type(app).__name__}, not a perdure App")
    return app
