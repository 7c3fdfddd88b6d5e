"""The stores every promise is tested over: `memory`, `sqlite` (a file) and `postgres`."""

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import structlog

from perdure.store.open import open_store
from tests.pgbouncer_server import PgBouncer, PgBouncerUnavailableError
from tests.postgres_server import PostgresServer, run_apart
from tests.tools import clis

NO_PGBOUNCER = "no PgBouncer"
numbers = itertools.count(1)


async def migrate(url: str) -> None:
    store = await open_store(url)
    try:
        await store.schema.migrate()
    finally:
        await store.close()


@pytest.fixture(scope="session", autouse=True)
def _user_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Large files of tests are not put into the home of the user."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _log_settings() -> Iterator[None]:
    """No test sees what another one has set for logs."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The PostgreSQL server of this session; it starts when the first test asks for it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def make_pgbouncer(postgres: PostgresServer, pytestconfig: pytest.Config) -> Callable[..., PgBouncer]:
    """Make a PgBouncer with other settings; without the program the test is skipped, and the summary says so."""
    make = partial(PgBouncer, postgres.url(), pytestconfig.cache.mkdir("pgbouncer"))
    try:
        make()
    except PgBouncerUnavailableError as error:
        pytest.skip(f"{NO_PGBOUNCER}: {error}")
    return make


@pytest.fixture(scope="session")
def pgbouncer(make_pgbouncer: Callable[..., PgBouncer]) -> Iterator[PgBouncer]:
    """The PgBouncer of this session, in transaction mode."""
    with make_pgbouncer() as pooler:
        yield pooler


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> Iterator[str]:
    """The name of a database that was migrated once, for the others to be copied from."""
    name = f"perdure_test_{os.getpid()}_template"
    run_apart(migrate(postgres.create_database(name)))
    yield name
    postgres.drop_database(name)


@pytest.fixture
def postgres_url(postgres: PostgresServer, postgres_template: str) -> Iterator[str]:
    """A fresh, migrated PostgreSQL database, dropped after the test."""
    name = f"perdure_test_{os.getpid()}_{next(numbers)}"
    yield postgres.create_database(name, template=postgres_template)
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file that was migrated once, for the others to be copied from."""
    file = tmp_path_factory.mktemp("template") / "perdure.db"
    run_apart(migrate(f"sqlite:///{file}"))
    return file.read_bytes()


@pytest.fixture
def fresh_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Make the URL of a fresh store of a kind. Files and PostgreSQL's come migrated; migrate() is due for all of them."""

    def make(kind: str) -> str:
        if kind == "memory":
            return "memory:"
        if kind == "sqlite":
            file = tmp_path / "perdure.db"
            file.write_bytes(request.getfixturevalue("sqlite_template"))
            file.chmod(0o600)  # as perdure makes it
            return f"sqlite:///{file}"
        url: str = request.getfixturevalue("postgres_url")
        return url

    return make


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, fresh_store_url: Callable[[str], str]) -> str:
    """The URL of a fresh store; the test runs once over each kind."""
    return fresh_store_url(request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def file_store_url(request: pytest.FixtureRequest, fresh_store_url: Callable[[str], str]) -> str:
    """As store_url, but only the kinds that several processes can share."""
    return fresh_store_url(request.param)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what could not be tested on this machine."""
    if clis.npm() is None:
        terminalreporter.write_line(clis.NO_NPM, red=True, bold=True)
    if skipped := [r for r in terminalreporter.getreports("skipped") if NO_PGBOUNCER in str(r.longrepr)]:
        why = f"NOT TESTED: {len(skipped)} tests need PgBouncer: {skipped[0].longrepr[-1]}"
        terminalreporter.write_line(why, red=True, bold=True)
