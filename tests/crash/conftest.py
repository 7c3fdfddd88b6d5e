"""The nursery from which all killed processes come, and a crew for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Crew, Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """One for all tests."""
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def crew(nursery: Nursery, file_store_url: str, tmp_path: Path) -> Iterator[Crew]:
    """Processes over a fresh store; the test runs over SQLite and PostgreSQL."""
    with Crew(nursery, file_store_url, tmp_path / "crew") as crew:
        yield crew


@pytest.fixture
def postgres_crew(nursery: Nursery, postgres_url: str, tmp_path: Path) -> Iterator[Crew]:
    """As `crew`, over PostgreSQL only."""
    with Crew(nursery, postgres_url, tmp_path / "crew") as crew:
        yield crew
