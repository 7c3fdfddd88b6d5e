"""Stores to be held to the protocol: over every dialect, over those that can be shared, and their second instances."""

from collections.abc import AsyncIterator

import pytest

from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.shell import Shell, open_shell


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """A fresh store; the test runs over memory, SQLite and PostgreSQL."""
    store = await open_store(store_url)
    await store.migrate()
    yield store
    await store.close()


@pytest.fixture
async def file_store(file_store_url: str) -> AsyncIterator[Store]:
    """A fresh store that other processes can share: SQLite and PostgreSQL."""
    store = await open_store(file_store_url)
    await store.migrate()
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
