"""The pytest plugin: fixtures for tests of handlers. Tests that do not use them import only this file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the rest is imported by the first test that uses a fixture
    from perdure.app import App
    from perdure.testing import ManualClock, Replay, TestApp


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one setting."""
    parser.addini("perdure_app", "the App that the fixture perdure_app is for, as module:attribute")


@pytest.fixture
def perdure_clock() -> ManualClock:
    """The clock of `perdure_app`: its time changes only when the test moves it."""
    from perdure.testing import ManualClock

    return ManualClock()


@pytest.fixture
def perdure_app(pytestconfig: pytest.Config, perdure_clock: ManualClock) -> Iterator[TestApp]:
    """A `perdure.testing.TestApp` for the App that the setting `perdure_app` of pytest names; without it, for an App without
    handlers. Asynchronous tests await its calls, synchronous ones pass them to `perdure_app.run`."""
    from perdure.testing import TestApp

    named = pytestconfig.getini("perdure_app")
    with TestApp(_load(named) if named else None, clock=perdure_clock) as app:
        yield app


@pytest.fixture
def perdure_replay(pytestconfig: pytest.Config) -> Callable[..., Replay]:
    """A function that replays the job in a file of `perdure jobs export`, offline, by the handlers of the App that the setting
    `perdure_app` names: `perdure_replay("tests/recorded/order.jsonl", to="publish")`. It raises ReplayDiverged, which names the
    first step that differs. Of a file with several jobs it replays all, and returns the last."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from perdure.testing import read_recordings, replay

    named = pytestconfig.getini("perdure_app")
    if not named:
        raise pytest.UsageError("perdure_replay needs the setting perdure_app = module:attribute")

    def of(file: str | Path, *, to: str | int | None = None) -> Replay:
        async def all_of_them() -> Replay:
            app, done = _load(named), None
            for recording in read_recordings(file):
                done = await replay(app, recording, to=to)
            assert done is not None
            return done

        with ThreadPoolExecutor(1) as thread:  # the test may run in an event loop
            return thread.submit(asyncio.run, all_of_them()).result()

    return of


def _own_path() -> str:
    """The directories where Python looks for modules that are not installed."""
    own = [str(Path(place).resolve()) for place in sys.path if not place.startswith((sys.prefix, sys.base_prefix))]
    return ", ".join(dict.fromkeys(own)) or "no directory"


def _load(named: str) -> App:
    from perdure.app import App

    module, _, attribute = named.partition(":")
    try:
        app = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if not error.name or not f"{module}.".startswith(f"{error.name}."):
            raise pytest.UsageError(f"perdure_app = {named}: importing {module} failed: {error}") from error
        raise pytest.UsageError(
            f"perdure_app = {named}: there is no module '{error.name}' in {_own_path()}, and none is installed. "
            "Add the directory that has it to the path, in the configuration of pytest: pythonpath = ."
        ) from error
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"perdure_app = {named}: {error}; write it as module:attribute") from error
    if not isinstance(app, App):
        raise pytest.UsageError(f"perdure_app = {named}: it is of type {type(app).__name__}, not a perdure App")
    return app
