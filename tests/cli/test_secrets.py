"""Nothing shows a database's password, wherever in the URL it is."""

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pytest

from perdure.model.urls import has_secret, masked
from tests.cli.conftest import Perdure

APP = ("--app", "agents:app")


@pytest.fixture(params=["user:password@", "?password="])
def url_and_secret(request: pytest.FixtureRequest, postgres_url: str) -> tuple[str, str]:
    """A working URL with a password in it, and the password."""
    parts = urlsplit(postgres_url)
    query = dict(parse_qsl(parts.query))
    secret = parts.password or query.pop("password", "s3cret-that-nobody-asks-for")
    user, place = parts.username or "postgres", parts.netloc.rpartition("@")[2]
    if request.param == "?password=":
        parts = parts._replace(netloc=f"{user}@{place}", query=urlencode({**query, "password": secret}))
    else:
        parts = parts._replace(netloc=f"{user}:{secret}@{place}", query=urlencode(query))
    return urlunsplit(parts), secret


def test_no_command_shows_the_password(perdure: Perdure, url_and_secret: tuple[str, str]) -> None:
    url, secret = url_and_secret
    said = [perdure("jobs", "start", kind, "--input", '"x"', *APP, "--db", url) for kind in ("greet", "asks")]
    assert "watch it: perdure jobs watch " in said[0].err
    assert "--db" not in said[0].err
    assert "no worker runs; start one: perdure worker start" in perdure("worker", "status", "--db", url).err
    id = perdure("jobs", "start", "fails", *APP, "--db", url, "-o", "id").out.strip()
    perdure("worker", "start", *APP, "--once", "--db", url)
    for command in (
        ("jobs", "ls"),
        ("jobs", "get", id),
        ("jobs", "explain", id),
        ("jobs", "events", id),
        ("jobs", "rerun", id, *APP),
        ("jobs", "ls", "--kind", "nothing"),
        ("approvals", "ls"),
        ("worker", "status"),
        ("worker", "status", "--stopped"),
        ("db", "status"),
        ("db", "migrate"),
        ("config", "ls"),
        ("config", "ls", "--origin"),
        ("config", "get", "database_url"),
        ("doctor",),
        ("doctor", *APP),
        ("fsck",),
        ("chaos", "--kills", "1"),
    ):
        for form in ((), ("--json",), ("-v",)):
            said.append(perdure(*command, *form, "--db", url, code=None))  # noqa: PERF401  a list of calls reads worse
    for done in said:
        assert secret not in done.out + done.err
    assert "***" in perdure("config", "get", "database_url", "--db", url).out


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@127.0.0.1:1/x",
        "postgresql://ann@127.0.0.1:1/x?password=hunter2",
        "postgresql://127.0.0.1:1/x?user=a@b&sslpassword=hunter2&password=a@hunter2",
        "postgresql://ann:hun/hunter2@127.0.0.1:1/x",
        "postgresql://ann:hun?hunter2@127.0.0.1:1/x",
        "postgresql://localhost:1?hunter2@127.0.0.1:1/x",
        "postgresql://localhost:1/hunter2@127.0.0.1:1/x",
        "postgresql://ann:hunter2",
        "postgres:ann:hunter2@127.0.0.1/x",
        "ann:hunter2@127.0.0.1/x",
        "sqlite:///x.db?password=hunter2",
        "sqlite:///x.db?mode=ro&Key=hunter2",
        "sqlite:ann:hunter2@x.db",
        "sqlite://ann:hunter2@host/x.db",
        "mysql://127.0.0.1/x?password=hunter2",
        "host=127.0.0.1 password=hunter2",
    ],
)
def test_no_error_shows_the_password(perdure: Perdure, url: str) -> None:
    for command in (("db", "status"), ("doctor",), ("jobs", "ls"), ("config", "ls"), ("worker", "status")):
        for form in ((), ("--json",), ("-vv",)):
            done = perdure(*command, *form, "--db", url, code=None)
            assert "hunter2" not in done.out + done.err, done


def test_a_url_without_a_secret_is_shown_whole_and_suggested(perdure: Perdure) -> None:
    for url in (
        "postgresql://ann@[::1]:5432,other:5433/x?sslmode=disable&user=a@b&passfile=/home/ann/.pgpass",
        "sqlite:////tmp/a:b@c/what?.db",
        "memory:",
    ):
        assert masked(url) == url
        assert not has_secret(url)
    done = perdure("jobs", "start", "greet", "--input", '"x"', *APP, "--db", "sqlite:///other.db")
    assert "--db sqlite:///other.db" in done.err
