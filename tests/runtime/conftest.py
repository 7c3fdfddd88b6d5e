"""An App over each kind of store, checked at the end of every test."""

import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pytest

from perdure import App
from perdure.model.jobs import DEFAULT_TENANT
from perdure.runtime import lease, worker
from perdure.testing import TestApp
from tests.postgres_server import PostgresServer
from tests.runtime.support import check_every_job

numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """The database and tenant of one test."""

    url: str
    tenant: str = DEFAULT_TENANT


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll more often than in production: what a hint does not tell is found soon."""
    monkeypatch.setattr(worker, "POLL", 0.1)
    monkeypatch.setattr(lease, "CANCEL_POLL", 0.1)


@pytest.fixture(scope="session")
def shared_postgres_url(postgres: PostgresServer, postgres_template: str) -> Iterator[str]:
    """One PostgreSQL database for all tests that use `place`: a fresh one for each would take as long as the tests."""
    name = f"perdure_test_{os.getpid()}_runtime"
    yield postgres.create_database(name, template=postgres_template)
    postgres.drop_database(name)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, fresh_store_url: Callable[[str], str]) -> Place:
    """A fresh database; in PostgreSQL a fresh tenant of a shared one, which also shows that tenants share nothing."""
    if request.param == "postgres":
        return Place(request.getfixturevalue("shared_postgres_url"), f"tenant-{next(numbers)}")
    return Place(fresh_store_url(request.param))


@pytest.fixture
async def app(place: Place) -> AsyncIterator[App]:
    """An App without handlers; the test runs over memory, SQLite and PostgreSQL."""
    async with App(place.url, tenant=place.tenant, migrate=True) as app:
        yield app
        await check_every_job(app)


@pytest.fixture
async def timed_app() -> AsyncIterator[TestApp]:
    """An App in memory, on a clock that the test moves: for what the stores have no part in, or are held to elsewhere."""
    async with TestApp() as app:
        yield app
        await check_every_job(app)


@pytest.fixture
async def file_app(file_store_url: str) -> AsyncIterator[App]:
    """As `app`, over the stores that other processes can share, in a database of its own."""
    async with App(file_store_url, migrate=True) as app:
        yield app
        await check_every_job(app)
