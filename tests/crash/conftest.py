"""The servers from which all killed processes come, and a crew for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Crew, ForkServers


@pytest.fixture(scope="session")
def servers() -> Iterator[ForkServers]:
    """One for all tests."""
    with ForkServers() as servers:
        yield servers


@pytest.fixture
def crew(servers: ForkServers, file_store_url: str, tmp_path: Path) -> Iterator[Crew]:
    """Processes over a fresh store; the test runs over SQLite and PostgreSQL."""
    with Crew(servers, file_store_url, tmp_path / "crew") as crew:
        yield crew


@pytest.fixture
def postgres_crew(servers: ForkServers, postgres_url: str, tmp_path: Path) -> Iterator[Crew]:
    """As `crew`, over PostgreSQL only."""
    with Crew(servers, postgres_url, tmp_path / "crew") as crew:
        yield crew
