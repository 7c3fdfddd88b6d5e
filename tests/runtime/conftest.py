"""An App over each kind of store, checked at the end of every test."""

from collections.abc import AsyncIterator

import pytest

from perdure import App
from perdure.runtime import lease, worker
from tests.runtime.support import check_every_job


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll more often than in production: what a hint does not tell is found soon."""
    monkeypatch.setattr(worker, "POLL", 0.1)
    monkeypatch.setattr(lease, "CANCEL_POLL", 0.1)


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    """An App without handlers on a fresh store; the test runs over memory, SQLite and PostgreSQL."""
    async with App(store_url, migrate=True) as app:
        yield app
        await check_every_job(app)


@pytest.fixture
async def file_app(file_store_url: str) -> AsyncIterator[App]:
    """As `app`, over the stores that other processes can share."""
    async with App(file_store_url, migrate=True) as app:
        yield app
        await check_every_job(app)
