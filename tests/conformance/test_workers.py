"""The rows of workers, by which people see and control them, and hints that wake waiting callers."""

from typing import Any

import pytest

from perdure.model.errors import AmbiguousId, WorkerNotFound
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState
from perdure.store.protocol import Store, Topic
from tests.conformance.sql_shell import Shell
from tests.conformance.support import claim, enqueue, event, near, passed, run_out, started


async def registered(store: Store, name: str, **changes: Any) -> str:
    """A new worker; its id, which is unique in the whole database, ends in this name."""
    id, now = f"{store.tenant_id}-{name}", await store.now()
    fields: dict[str, Any] = {
        "host": "larch",
        "pid": 7,
        "queues": ("default", "deep"),
        "kinds": ("echo",),
        "concurrency": 4,
        "state": WorkerState.RUNNING,
        "started_at": now,
        "heartbeat_at": now,
        "alive": True,
    }
    await store.workers.register_worker(WorkerInfo(id=id, **{**fields, **changes}))
    return id


async def shown(store: Store, *, include_stopped: bool = False) -> list[str]:
    return [w.id for w in await store.workers.list_workers(include_stopped=include_stopped)]


async def test_a_worker_is_shown_with_what_it_is_and_holds(store: Store) -> None:
    larch = await registered(store, "larch-0001")
    job = await claim(store, await enqueue(store), worker_id=larch)
    await claim(store, await enqueue(store), worker_id=larch)
    await run_out(store, job.lease)
    [worker] = await store.workers.list_workers()
    assert (worker.id, worker.host, worker.pid, worker.concurrency) == (larch, "larch", 7, 4)
    assert (worker.queues, worker.kinds) == (("default", "deep"), ("echo",))
    assert (worker.state, worker.alive, worker.command) == (WorkerState.RUNNING, True, None)
    assert worker.held == 1, "only live leases count"
    assert near(worker.heartbeat_at, await store.now())
    assert near(worker.started_at, await store.now())


async def test_newest_first_and_the_stopped_only_when_asked_for(store: Store) -> None:
    ids: list[str] = []
    for n in range(3):
        ids.insert(0, await registered(store, f"larch-000{n}"))
        await passed(store, await store.now())  # started_at orders them
    newest, stopped, oldest = ids
    assert await store.workers.beat_worker(stopped, state=WorkerState.STOPPED) is None
    assert await shown(store) == [newest, oldest]
    assert await shown(store, include_stopped=True) == ids
    states = {w.id: (w.state, w.alive) for w in await store.workers.list_workers(include_stopped=True)}
    assert states[stopped] == (WorkerState.STOPPED, False)


async def test_a_silent_worker_is_not_alive(file_store: Store, shell: Shell) -> None:
    silent, late = await registered(file_store, "larch-0001"), await registered(file_store, "larch-0002")
    await shell.run(f"update workers set heartbeat_at = {shell.ago(16)} where id = '{silent}'")
    await shell.run(f"update workers set heartbeat_at = {shell.ago(10)} where id = '{late}'")
    assert {w.id: w.alive for w in await file_store.workers.list_workers()} == {silent: False, late: True}
    await file_store.workers.beat_worker(silent, state=WorkerState.DRAINING)
    states = {w.id: (w.alive, w.state) for w in await file_store.workers.list_workers()}
    assert states[silent] == (True, WorkerState.DRAINING)


async def test_a_command_reaches_the_worker_with_its_next_beat(store: Store) -> None:
    larch, birch = await registered(store, "larch-0001"), await registered(store, "birch-0002")
    await store.workers.command_worker("h-0001", WorkerCommand.DRAIN)
    assert await store.workers.beat_worker(larch, state=WorkerState.RUNNING) is WorkerCommand.DRAIN
    assert await store.workers.beat_worker(birch, state=WorkerState.RUNNING) is None
    await store.workers.command_worker(larch, WorkerCommand.STOP_NOW)
    assert await store.workers.beat_worker(larch, state=WorkerState.DRAINING) is WorkerCommand.STOP_NOW


async def test_a_worker_is_named_by_its_end(store: Store) -> None:
    await registered(store, "larch-0001")
    await registered(store, "birch-0001")
    with pytest.raises(AmbiguousId):
        await store.workers.command_worker("h-0001", WorkerCommand.STOP)
    for unknown in ("nobody", "oak-0001"):
        with pytest.raises(WorkerNotFound):
            await store.workers.command_worker(unknown, WorkerCommand.STOP)


async def test_a_missing_row_is_no_error(store: Store) -> None:
    assert await store.workers.beat_worker("never seen", state=WorkerState.RUNNING) is None


# Hints -----------------------------------------------------------------------------------------------------------------


async def cause(store: Store, topic: Topic) -> None:
    if topic == "work":
        await enqueue(store)
    else:
        await store.leases.record(await started(store), [event()])


async def is_hinted(listening: Store, acting: Store, topic: Topic) -> bool:
    """One hint may be lost; of several, one comes long before a poll would find the news."""
    async with listening.hints.listen(topic) as listener:
        for _ in range(10):
            await cause(acting, topic)
            if await listener.wait(0.5):
                return True
    return False


@pytest.mark.parametrize("topic", ["work", "news"])
async def test_a_hint_reaches_the_same_instance(store: Store, topic: Topic) -> None:
    assert await is_hinted(store, store, topic)


@pytest.mark.parametrize("topic", ["work", "news"])
async def test_a_hint_reaches_another_instance(file_store: Store, twin: Store, topic: Topic) -> None:
    assert await is_hinted(twin, file_store, topic)


async def test_silence_is_no_hint_and_hints_are_merged(store: Store) -> None:
    async with store.hints.listen("work") as listener:
        for _ in range(3):
            await enqueue(store)
        while await listener.wait(0.2):
            pass
        assert not await listener.wait(0)
        assert not await listener.wait(0.01)
