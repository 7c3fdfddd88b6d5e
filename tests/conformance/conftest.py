"""Stores to be held to the protocol: over every dialect, over those that can be shared, and their second instances."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell, open_shell
from tests.postgres_server import PostgresServer

THROUGH_PGBOUNCER = frozenset(
    [
        "test_approvals",
        "test_cancel",
        "test_claim",
        "test_concurrent_calls",
        "test_effects",
        "test_enqueue",
        "test_enqueue_recorded",
        "test_follow",
        "test_leases",
        "test_outcomes",
        "test_retention",
        "test_situation",
        "test_wait_answers",
        "test_workers",
    ]
)
"""The modules whose tests of `store` are also run through PgBouncer."""

tenants = itertools.count(1)


@pytest.fixture(scope="session")
def shared_postgres_url(postgres: PostgresServer, postgres_template: str) -> Iterator[str]:
    """One database for many tests: to make one takes as long as a test."""
    name = f"{postgres_template}_shared_{next(tenants)}"
    yield postgres.create_database(name, template=postgres_template)
    postgres.drop_database(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is not run through PgBouncer."""
    items[:] = [item for item in items if not _is_left_out(item)]


def _is_left_out(item: pytest.Item) -> bool:
    of_case = getattr(item, "callspec", None)
    return (
        of_case is not None and of_case.params.get("store") == "pgbouncer" and item.path.stem not in THROUGH_PGBOUNCER
    )


@pytest.fixture(params=["memory", "sqlite", "postgres", "pgbouncer"])
async def store(request: pytest.FixtureRequest, fresh_store_url: Callable[[str], str]) -> AsyncIterator[Store]:
    """A store in which nothing happened yet: a fresh database, or for PostgreSQL a tenant of its own in the shared one.

    `pgbouncer` is PostgreSQL through a pooler in transaction mode, for the modules of THROUGH_PGBOUNCER.
    """
    if request.param in ("postgres", "pgbouncer"):
        url = request.getfixturevalue("shared_postgres_url")
        if request.param == "pgbouncer":
            url = request.getfixturevalue("pgbouncer").url(url)
        store = await open_store(url, tenant=f"tenant-{next(tenants)}")
    else:
        store = await open_store(fresh_store_url(request.param))
    await store.schema.migrate()
    yield store
    await store.close()


@pytest.fixture
async def file_store(file_store_url: str) -> AsyncIterator[Store]:
    """A fresh store that other processes can share: SQLite and PostgreSQL."""
    store = await open_store(file_store_url)
    await store.schema.migrate()
    yield store
    await store.close()


@pytest.fixture
async def twin(file_store: Store, file_store_url: str) -> AsyncIterator[Store]:
    """A second instance over the database of `file_store`, as another process would have."""
    store = await open_store(file_store_url)
    yield store
    await store.close()


@pytest.fixture
async def neighbour(file_store: Store, file_store_url: str) -> AsyncIterator[Store]:
    """Another tenant in the database of `file_store`."""
    store = await open_store(file_store_url, tenant="neighbour")
    yield store
    await store.close()


@pytest.fixture
async def shell(file_store: Store, file_store_url: str) -> AsyncIterator[Shell]:
    """A person's connection to the database of `file_store`."""
    async with open_shell(file_store_url) as shell:
        yield shell
