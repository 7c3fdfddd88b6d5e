"""The nurseries from which all killed processes come, and a crew for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Crew, Nurseries


@pytest.fixture(scope="session")
def nurseries() -> Iterator[Nurseries]:
    """One for all tests."""
    with Nurseries() as nurseries:
        yield nurseries


@pytest.fixture
def crew(nurseries: Nurseries, file_store_url: str, tmp_path: Path) -> Iterator[Crew]:
    """Processes over a fresh store; the test runs over SQLite and PostgreSQL."""
    with Crew(nurseries, file_store_url, tmp_path / "crew") as crew:
        yield crew


@pytest.fixture
def postgres_crew(nurseries: Nurseries, postgres_url: str, tmp_path: Path) -> Iterator[Crew]:
    """As `crew`, over PostgreSQL only."""
    with Crew(nurseries, postgres_url, tmp_path / "crew") as crew:
        yield crew
