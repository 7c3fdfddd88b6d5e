"""perdure.sync.Client with tx=: the caller's connection is used in the caller's thread and in no other."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from perdure import App, Budget, JobContext, Request
from perdure.model.errors import IdempotencyConflict, InvalidPriority, JobNotFound, UnsupportedTransaction
from perdure.sync import Client
from tests.postgres_server import run_apart
from tests.runtime.support import PATIENCE
from tests.tx_callers import ASYNC, BLOCKING, EVERY, make_orders, names, path


@pytest.fixture
def url(request: pytest.FixtureRequest, fresh_store_url: Callable[[str], str]) -> str:
    """A fresh store of the dialect of the test's kind of connection, with a table of orders."""
    kind = request.node.callspec.params["kind"]
    url = fresh_store_url(EVERY[kind][0])
    run_apart(_prepared(url))
    return url


async def _prepared(url: str) -> None:
    async with App(url, migrate=True):
        await make_orders(url)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """A client that has not done anything yet."""
    app = App(url)

    @app.job
    async def ship(ctx: JobContext, name: str) -> str:
        return name

    with Client(app) as client:
        yield client


@pytest.mark.parametrize("kind", BLOCKING)
async def test_commit_and_rollback(kind: str, url: str, client: Client) -> None:
    async with EVERY[kind][1](url) as caller:
        await caller.order("tea")  # the client opens its store while this transaction holds SQLite's only lock
        first = client.enqueue("ship", "tea", tx=caller.tx, idempotency_key="k", priority=9)
        many = client.enqueue_many(
            [Request("ship", "a"), Request("ship", "tea", {"idempotency_key": "k"})], tx=caller.tx
        )
        assert (first.created, many[0].created, many[1].created) == (True, True, False)
        assert many[1].id == first.id
        with pytest.raises(JobNotFound):
            first.get()
        with pytest.raises(IdempotencyConflict):
            client.enqueue("ship", "coffee", tx=caller.tx, idempotency_key="k")
        with pytest.raises(InvalidPriority):
            client.enqueue("ship", "tea", tx=caller.tx, priority=0)
        bounded = client.enqueue("ship", "bounded", tx=caller.tx, budget=Budget(tokens=5), user_id="ann")
        await caller.commit()
    assert run_apart(names(url)) == ["tea"]
    assert first.get().priority == 9
    assert {j.id for j in client.jobs.list().items} == {first.id, many[0].id, bounded.id}
    assert [event.type for event in client.jobs.events(bounded.id)] == ["job_created", "fields_set", "budget_set"]
    async with EVERY[kind][1](url) as caller:
        await caller.order("milk")
        dropped = client.enqueue("ship", "milk", tx=caller.tx)
        await caller.rollback()
    with pytest.raises(JobNotFound):
        dropped.get()


@pytest.mark.parametrize("kind", ASYNC)
async def test_an_async_connection_is_for_the_app(kind: str, url: str, client: Client) -> None:
    async with EVERY[kind][1](url) as caller:
        await caller.order("tea")
        with pytest.raises(UnsupportedTransaction, match="async"):
            client.enqueue("ship", "tea", tx=caller.tx)
        await caller.commit()
    assert client.jobs.count() == {}
    assert run_apart(names(url)) == ["tea"]


@pytest.mark.parametrize("kind", ["psycopg", "sqlite3"])
def test_many_threads_each_with_a_transaction(kind: str, url: str, client: Client) -> None:
    """sqlite3 refuses a connection in any thread but its own: so none of this is done elsewhere."""
    met = threading.Barrier(4)

    def work(thread: int) -> None:
        met.wait(PATIENCE)
        opened = closing(sqlite3.connect(path(url), timeout=60)) if kind == "sqlite3" else psycopg.connect(url)
        with opened as c:
            for n in range(10):
                client.enqueue("ship", f"{thread}.{n}", tx=c)
                c.execute(f"insert into orders values ('{thread}.{n}')")
                if n % 2:
                    c.commit()
                else:
                    c.rollback()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    odd = sorted(f"{thread}.{n}" for thread in range(4) for n in range(1, 10, 2))
    assert run_apart(names(url)) == odd
    assert sorted(j.payload for j in client.jobs.list(limit=100).items) == odd


def test_a_pipeline_is_joined_too(postgres_url: str) -> None:
    with Client(postgres_url) as client, psycopg.connect(postgres_url) as c:
        with c.pipeline():
            c.execute("create table orders (name text)")
            handle = client.enqueue("ship", "tea", tx=c, elsewhere=True)
            client.enqueue_many([Request("ship", "a"), Request("ship", "b")], tx=c)
            c.execute("insert into orders values ('tea')")
        c.commit()
        assert handle.get().payload == "tea"
        assert client.jobs.count() == {"PENDING": 3}


def test_opening_does_not_wait_for_writers(tmp_path: Path) -> None:
    """The first call of a program may be made inside a transaction: opening the store needs no lock that it holds."""
    url = f"sqlite:///{tmp_path}/perdure.db"
    run_apart(_prepared(url))
    with closing(sqlite3.connect(path(url))) as c:
        c.execute("insert into orders values ('tea')")
        with Client(url) as client:
            client.enqueue("ship", "tea", tx=c)
            c.commit()
            assert client.jobs.count() == {"PENDING": 1}


def test_a_transaction_that_others_outran_before_it_looked(tmp_path: Path) -> None:
    """The enqueue writes before it reads: a deferred transaction that has seen nothing yet cannot be too late."""
    url = f"sqlite:///{tmp_path}/perdure.db"
    run_apart(_prepared(url))
    with Client(url) as client, closing(sqlite3.connect(path(url), isolation_level=None)) as c:
        for n in range(3):
            c.execute("begin")
            client.enqueue("ship", f"theirs {n}", elsewhere=True)
            client.enqueue("ship", f"mine {n}", tx=c, idempotency_key=f"{n}")
            c.execute("commit")
        assert client.jobs.count() == {"PENDING": 6}


def test_a_trigger_may_enqueue(postgres_url: str) -> None:
    """The function of SQL inside the caller's own trigger: every order has its job, however it came in."""
    with Client(postgres_url) as client, psycopg.connect(postgres_url, autocommit=True) as c:
        c.execute("create table orders (name text)")
        c.execute(
            "create function ship() returns trigger language plpgsql as "
            "$$ begin perform perdure.enqueue('ship', to_json(new.name)); return new; end $$"
        )
        c.execute("create trigger ship after insert on orders for each row execute function ship()")
        c.execute("insert into orders values ('tea'), ('milk')")
        with c.transaction(force_rollback=True):
            c.execute("insert into orders values ('never')")
        assert {job.payload for job in client.jobs.list().items} == {"tea", "milk"}
