"""Export and prune: what a client takes out of the database, what it writes down first, and what workers do by themselves."""

import asyncio
import errno
import gzip
import json
import os
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from perdure import App, ApprovalRequest, Handle, Job, JobContext, Status
from perdure.model.errors import ConfigError, InvalidInput, JobNotFound, JobPruned, StoreError
from perdure.model.ids import first_id_of, hash_token
from perdure.model.retention import PruneFilter
from perdure.runtime import retention
from perdure.runtime.chores import Chores
from perdure.runtime.export_file import Archive
from perdure.runtime.export_records import line_of
from perdure.runtime.retention import Pruning, Retention
from perdure.store.protocol import Store
from tests.conformance.sql_shell import open_shell
from tests.conformance.support import event, new_job, passed, started
from tests.runtime.support import NOW, PATIENCE, ended, pending, soon, until, working


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine every transaction takes long: that alone makes no batch smaller here."""
    monkeypatch.setattr(retention, "LONG", PATIENCE)


async def cancelled(app: App, number: int, **options: Any) -> list[UUID]:
    """Finished jobs, over in the past of the database."""
    handles = [await app.enqueue("echo", {"n": n}, elsewhere=True, **options) for n in range(number)]
    for handle in handles:
        await handle.cancel("not needed")
    await past(app, handles)
    return [handle.id for handle in handles]


async def past(app: App, handles: Iterable[Handle[Any]]) -> None:
    store = await app.open()
    for handle in handles:
        await passed(store, (await handle.get()).finished_at)


async def left(app: App) -> list[UUID]:
    return sorted(job.id for job in (await app.jobs.list(limit=1000)).items)


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def whole(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Jobs that a reader of the file would find complete, by id: their records in order."""
    found: dict[str, dict[str, Any]] = {}
    begun: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        assert record["v"] == 1
        if record["record"] == "job":
            begun[record["job_id"]] = []
        begun[record["job_id"]].append(record)
        if record["record"] == "end":
            parts = begun.pop(record["job_id"])
            counts = Counter(part["record"] for part in parts)
            assert record == record | {f"{what}s": counts[what] for what in ("run", "approval", "signal", "event")}
            events = [part for part in parts if part["record"] == "event"]
            assert [event["version"] for event in events] == list(range(1, parts[0]["version"] + 1))
            found[record["job_id"]] = {"job": parts[0], "events": events, "parts": parts}
    return found


# Prune ----------------------------------------------------------------------------------------------------------------


async def test_pruning_takes_what_matches_batch_by_batch(app: App) -> None:
    mail = await cancelled(app, 5, queue="mail")
    other = await cancelled(app, 2)
    live = (await app.enqueue("echo", elsewhere=True)).id
    assert await app.database.prune(older_than="1h") == 0
    assert await app.database.prune(older_than=0, dry_run=True) == 7
    assert await app.database.prune(older_than=0, status="completed") == 0
    assert await left(app) == sorted([*mail, *other, live])
    report: list[int] = []
    assert await app.database.prune(older_than=0, queue="mail", kind=["echo"], batch=2, on_batch=report.append) == 5
    assert report == [2, 4, 5]
    assert await left(app) == sorted([*other, live])
    assert await app.database.prune(older_than=0, status=["cancelled", "FAILED"]) == 2
    assert await app.database.prune(older_than=0) == 0
    assert await left(app) == [live]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"older_than": "soon"}, "not a duration"),
        ({"older_than": -1}, "older_than"),
        ({"older_than": 0, "status": "running"}, "jobs in RUNNING are not finished"),
        ({"older_than": 0, "status": ["completed", "nope"]}, "unknown status"),
        ({"older_than": 0, "batch": 0}, "batch"),
        ({"older_than": 0, "batch": True}, "batch"),
        ({"older_than": 0, "export": "."}, "cannot write"),
        ({"older_than": 0, "export": "no/such/place.jsonl"}, "cannot write"),
        ({"older_than": 0, "export": "/dev/null"}, "is no regular file"),
    ],
    ids=str,
)
async def test_bad_input_changes_nothing(app: App, options: dict[str, Any], says: str) -> None:
    ids = await cancelled(app, 2)
    with pytest.raises(InvalidInput, match=says):
        await app.database.prune(**options)
    assert await left(app) == sorted(ids)


async def test_a_job_with_many_events_is_a_batch_of_its_own(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MOST_EVENTS", 5)
    handle = await app.enqueue("echo", elsewhere=True)
    for version in range(1, 10):
        await app.jobs.append(handle.id, version, "note")
    await handle.cancel()
    await cancelled(app, 3)
    report: list[int] = []
    assert await app.database.prune(older_than=0, on_batch=report.append) == 4
    assert report == [1, 3, 4]


async def test_batches_shrink_and_grow_with_what_they_cost(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FIRST_BATCH", 4)
    monkeypatch.setattr(retention, "LONG", 0.0)
    await cancelled(app, 8)
    report: list[int] = []
    await app.database.prune(older_than=0, on_batch=report.append)
    assert report == [4, 6, 7, 8], "all of them are too long: half as many, down to one"
    monkeypatch.setattr(retention, "LONG", PATIENCE)
    monkeypatch.setattr(retention, "SHORT", PATIENCE)
    await cancelled(app, 17)
    report.clear()
    await app.database.prune(older_than=0, batch=7, on_batch=report.append)
    assert report == [4, 11, 17], "all of them are short: twice as many, up to what is allowed"


async def test_stopping_in_the_middle_leaves_whole_jobs(app: App, tmp_path: Path) -> None:
    ids = await cancelled(app, 30)
    file = tmp_path / "old.jsonl"
    task: asyncio.Task[int] | None = None

    def stop(number: int) -> None:
        assert task is not None
        if number == 10:
            task.cancel()

    task = asyncio.create_task(app.database.prune(older_than=0, batch=5, export=file, on_batch=stop))
    with pytest.raises(asyncio.CancelledError):
        await task
    gone = sorted(set(ids) - set(await left(app)))
    assert 10 <= len(gone) < 30
    assert set(whole(read(file))) >= {str(id) for id in gone}
    assert await app.database.prune(older_than=0, batch=5, export=file) == 30 - len(gone)
    assert set(whole(read(file))) == {str(id) for id in ids}


async def test_a_stop_waits_for_the_batch_in_hand(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction that is under way is committed and counted before the caller hears of the end."""
    await cancelled(app, 6)
    store = await app.open()
    reached, go, prune = asyncio.Event(), asyncio.Event(), store.retention.prune

    async def slow(*args: Any, **more: Any) -> int:
        reached.set()
        await go.wait()
        return await prune(*args, **more)

    monkeypatch.setattr(store.retention, "prune", slow)
    report: list[int] = []
    task = asyncio.create_task(app.database.prune(older_than=0, batch=3, on_batch=report.append))
    await soon(reached.wait())
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert report == [3]
    assert len(await left(app)) == 3


async def test_logs_may_be_kept(app: App) -> None:
    @app.job
    async def greet(ctx: JobContext, name: str) -> str:
        return await ctx.step("greet", lambda: f"hello {name}")

    async with working(app):
        handle = await app.enqueue(greet, "ann")
        assert await handle.result(PATIENCE) == "hello ann"
    await past(app, [handle])
    log = await handle.events()
    assert await app.database.prune(older_than=0, keep_logs=True, dry_run=True) == 1
    assert await app.database.prune(older_than=0, keep_logs=True) == 1
    assert await app.database.prune(older_than=0, keep_logs=True) == 0
    assert await handle.events() == log
    assert len(await app.jobs.runs(handle.id)) == 1
    for call in (handle.result(), app.jobs.rerun(handle.id)):
        with pytest.raises(JobPruned, match="were pruned at"):
            await call
    assert await app.database.prune(older_than=0) == 1


async def test_what_came_of_a_job_does_not_need_it(app: App) -> None:
    [origin] = await cancelled(app, 1)
    again = await app.jobs.rerun(origin)
    assert await app.database.prune(older_than=0) == 1
    job = await again.get()
    assert (job.origin_id, job.payload, job.status) == (origin, {"n": 0}, Status.PENDING)
    with pytest.raises(JobNotFound):
        await app.jobs.get(origin)


# The file -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["old.jsonl", "old.jsonl.gz"])
async def test_everything_is_in_the_file_and_no_token(app: App, tmp_path: Path, name: str) -> None:
    tokens: list[str] = []

    def tell(request: ApprovalRequest) -> None:
        tokens.append(request.token)

    @app.job(max_retries=1, backoff=NOW)
    async def publish(ctx: JobContext, draft: str) -> str:
        if ctx.attempt == 1:
            raise RuntimeError("not yet")
        await ctx.step("write", lambda: {"text": draft})
        decision = await ctx.approve("ok", title="Publish?", payload=draft, notify=tell)
        return f"published by {decision.by}"

    async with working(app):
        handle = await app.enqueue(publish, "你好 \x00 \u2028", goal="news")
        asked = await pending(app, handle)
        await until(lambda: tokens, what="the token")
        await app.approve(token=tokens[-1], by="ann", comment="fine")
        job = await ended(app, handle)
    await past(app, [handle])
    log, runs = await handle.events(), await app.jobs.runs(handle.id)
    file = tmp_path / name
    assert await app.database.prune(older_than=0, export=file) == 1
    assert await left(app) == []
    assert file.stat().st_mode & 0o077 == 0, "no other user may read payloads"
    [(id, story)] = whole(read(file)).items()
    assert id == str(handle.id)
    report = story["job"]
    assert (report["payload"], report["result"], report["goal"]) == (job.payload, "published by ann", "news")
    assert (report["status"], report["attempt"], report["tenant_id"]) == ("COMPLETED", job.attempt, job.tenant_id)
    assert report["finished_at"] == (job.finished_at or job.created_at).isoformat(timespec="microseconds").replace(
        "+00:00", "Z"
    )
    assert [(e["type"], e["payload"], e["attempt"]) for e in story["events"]] == [
        (e.type, e.payload, e.attempt) for e in log
    ]
    [approval] = [part for part in story["parts"] if part["record"] == "approval"]
    assert (approval["id"], approval["decided_by"], approval["comment"]) == (str(asked.id), "ann", "fine")
    assert [p["outcome"] for p in story["parts"] if p["record"] == "run"] == [r.outcome for r in runs]
    raw = json.dumps(read(file))
    for token in tokens:
        assert token not in raw
        assert hash_token(token) not in raw
    assert "token" not in {key for part in story["parts"] for key in part}


@pytest.mark.parametrize("name", ["old.jsonl", "old.jsonl.gz"])
async def test_a_torn_end_is_cut_away_and_the_rest_stays(app: App, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    first = await cancelled(app, 3)
    assert await app.database.prune(older_than=0, export=file) == 3
    good = file.read_bytes()
    torn = tmp_path / f"torn.{name}"
    second = await cancelled(app, 2)
    assert await app.database.prune(older_than=0, export=torn) == 2
    third = await cancelled(app, 1)
    for length in (1, 9, len(torn.read_bytes()) // 2, len(torn.read_bytes()) - 1):
        file.write_bytes(good + torn.read_bytes()[:length])
        with Archive(file) as archive:
            archive.save()
        assert set(whole(read(file))) >= {str(id) for id in first}
    assert await app.database.prune(older_than=0, export=file) == 1
    found = set(whole(read(file)))
    assert found >= {str(id) for id in (*first, *third)}
    assert found <= {str(id) for id in (*first, *second, *third)}


@pytest.mark.parametrize("name", ["old.jsonl", "old.jsonl.gz"])
def test_a_file_is_continued_whatever_was_saved_before(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    for number in range(4):
        with Archive(file) as archive:
            archive.save()
            for _ in range(number):
                archive.add(line_of({"v": 1, "record": "event", "n": number, "text": " " * 3_000_000}))
            archive.save()
            archive.save()
    assert [record["n"] for record in read(file)] == [1, 2, 2, 3, 3, 3]
    size = file.stat().st_size
    with Archive(file):
        pass
    assert file.stat().st_size == size, "nothing is cut from a whole file"


@pytest.mark.parametrize("name", ["letter.jsonl", "letter.jsonl.gz"])
async def test_a_file_of_something_else_is_left_as_it_is(app: App, tmp_path: Path, name: str) -> None:
    ids = await cancelled(app, 1)
    file = tmp_path / name
    for content in (
        b"Dear Ann,\n",
        b"no line end",
        b'{"version": 1}\n',
        gzip.compress(b"Dear Ann,\n"),
        b"\x1f\x8b",
    ):
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match="does not hold exported jobs"):
            await app.database.prune(older_than=0, export=file)
        assert file.read_bytes() == content
    assert await left(app) == ids
    file.write_bytes(b"")
    assert await app.database.prune(older_than=0, export=file) == 1


async def test_a_file_in_use_is_refused(app: App, tmp_path: Path) -> None:
    await cancelled(app, 1)
    file = tmp_path / "old.jsonl"
    with Archive(file), pytest.raises(InvalidInput, match="another prune"):
        await app.database.prune(older_than=0, export=file)
    assert await app.database.prune(older_than=0, export=file) == 1


async def test_nothing_to_prune_makes_no_file(app: App, tmp_path: Path) -> None:
    assert await app.database.prune(older_than=0, export=tmp_path / "old.jsonl") == 0
    assert list(tmp_path.glob("old*")) == []


async def test_a_full_disk_costs_no_job(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await cancelled(app, 6)
    file = tmp_path / "old.jsonl"
    fsync, calls = os.fsync, 0

    def full(fd: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 2:  # the directory, the first batch
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(fd)

    with monkeypatch.context() as patch:
        patch.setattr("perdure.runtime.export_file.os.fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            await app.database.prune(older_than=0, batch=2, export=file)
    assert await left(app) == sorted(ids)[2:], "the first batch was safe and is gone, the second stays"
    assert set(whole(read(file))) >= {str(id) for id in sorted(ids)[:2]}
    assert await app.database.prune(older_than=0, export=file) == 4
    assert set(whole(read(file))) == {str(id) for id in ids}


async def test_a_job_is_synced_before_it_goes(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await cancelled(app, 4)
    file, order = tmp_path / "old.jsonl", []
    store = await app.open()
    prune, save = store.retention.prune, Archive.save

    def saving(archive: Archive) -> None:
        save(archive)
        order.append(("saved", set(whole(read(file)))))

    async def pruning(ids: list[UUID], **more: Any) -> int:
        order.append(("pruned", {str(id) for id in ids}))
        return await prune(ids, **more)

    monkeypatch.setattr(Archive, "save", saving)
    monkeypatch.setattr(store.retention, "prune", pruning)
    assert await app.database.prune(older_than=0, batch=2, export=file) == 4
    assert [what for what, _ in order] == ["saved", "pruned"] * 2
    assert all(gone <= safe for (_, safe), (_, gone) in zip(order[::2], order[1::2], strict=True))


async def test_what_another_pruned_meanwhile_is_passed_over(
    file_app: App, file_store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = sorted(await cancelled(file_app, 3))
    store = await file_app.open()
    list_runs = store.jobs.list_runs
    async with App(file_store_url) as other:

        async def late(job_id: UUID) -> Any:
            if job_id == ids[1]:
                await (await other.open()).retention.prune([job_id])
            return await list_runs(job_id)

        monkeypatch.setattr(store.jobs, "list_runs", late)
        file = tmp_path / "old.jsonl"
        assert await file_app.database.prune(older_than=0, export=file) == 2
    assert set(whole(read(file))) == {str(ids[0]), str(ids[2])}
    assert await left(file_app) == []


# Export ---------------------------------------------------------------------------------------------------------------


async def test_export_by_ids_by_filters_and_of_all(app: App) -> None:
    a, b = await cancelled(app, 2, queue="a")
    c = (await app.enqueue("report", [1, 2], elsewhere=True, delay="1h")).id

    async def exported(*ids: Any, **options: Any) -> list[str]:
        return list(whole([record async for record in app.jobs.export(*ids, **options)]))

    assert await exported(b, str(a)) == [str(b), str(a)]
    assert await exported() == [str(id) for id in (c, b, a)]
    assert await exported(queue="a", status="cancelled") == [str(b), str(a)]
    assert await exported(kind="nothing") == []
    [story] = whole([record async for record in app.jobs.export(c.hex[-8:])]).values()
    assert (story["job"]["status"], story["job"]["payload"]) == ("PENDING", [1, 2])
    assert story["job"]["due_at"] is not None
    with pytest.raises(JobNotFound):
        await exported(a, uuid4())
    with pytest.raises(InvalidInput, match="ids or filters"):
        await exported(a, kind="x")
    with pytest.raises(InvalidInput, match="unknown status"):
        await exported(status="nope")


async def test_a_running_job_is_exported_as_of_one_version(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = await app.enqueue("echo", elsewhere=True, delay="1h")
    store = await app.open()
    list_runs = store.jobs.list_runs

    async def busy(job_id: UUID) -> Any:
        await app.jobs.append(job_id, 1, "note")
        return await list_runs(job_id)

    monkeypatch.setattr(store.jobs, "list_runs", busy)
    [story] = whole([record async for record in app.jobs.export(handle.id)]).values()
    assert [e["type"] for e in story["events"]] == ["job_created"]
    assert (await handle.get()).version == 2


async def test_large_logs_are_read_in_small_pages(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await app.open()
    lease = await started(store)
    for _ in range(12):
        await store.leases.record(lease, [event("note", json.dumps("x" * 300_000)) for _ in range(5)])
    list_events, sizes = store.jobs.list_events, []

    async def watched(*args: Any, **more: Any) -> Any:
        page = await list_events(*args, **more)
        sizes.append(sum(len(line_of({"p": e.payload})) for e in page))
        return page

    monkeypatch.setattr(store.jobs, "list_events", watched)
    [story] = whole([record async for record in app.jobs.export(lease.job_id)]).values()
    assert len(story["events"]) == 62
    assert sum(sizes) > 18_000_000
    assert max(sizes) < 5_000_000
    assert sorted(sizes)[len(sizes) // 2] < 2_500_000


async def test_long_logs_are_read_in_few_pages(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await app.open()
    lease = await started(store)
    await store.leases.record(lease, [event() for _ in range(598)])
    list_events, pages = store.jobs.list_events, []

    async def watched(*args: Any, **more: Any) -> Any:
        pages.append(more["limit"])
        return await list_events(*args, **more)

    monkeypatch.setattr(store.jobs, "list_events", watched)
    [story] = whole([record async for record in app.jobs.export(lease.job_id)]).values()
    assert len(story["events"]) == 600
    assert len(pages) <= 5


SECRETS = ("ann@example.org", "4111-1111", "sesame", "17 Elm Street", "the-secret-plan", "mallory", "order-77", "4242")


async def test_redacted_is_the_shape_without_the_words(app: App) -> None:
    @app.job(max_retries=0)
    async def buy(ctx: JobContext, order: dict[str, Any]) -> dict[str, Any]:
        await ctx.step("look up", lambda: {"address": "17 Elm Street", "rooms": [1, None, True]})
        await ctx.checkpoint({"plan": "the-secret-plan"})
        await ctx.progress(0.5, "sesame")
        await ctx.emit("audit", {"key": "sesame", "kind": "mallory", "n": 4242})
        decision = await ctx.approve("pay", title="Pay 4111-1111?", payload=order, assignees=["mallory"])
        if decision.by == "nobody":
            return {}
        raise RuntimeError("no such card: 4111-1111")

    async with working(app):
        order = {"mail": "ann@example.org", "card": {"number": "4111-1111", "cvc": 4242}, "gift": False, "note": None}
        handle = await app.enqueue(buy, order, goal="for ann@example.org", idempotency_key="order-77")
        asked = await pending(app, handle)
        await app.approve(asked.id, by="mallory", comment="sesame", edited={**order, "gift": True})
        assert (await ended(app, handle)).status is Status.DEADLETTER
    plain = [record async for record in app.jobs.export(handle.id)]
    redacted = [record async for record in app.jobs.export(handle.id, redact=True)]
    text = "".join(map(line_of, redacted))
    assert [secret for secret in SECRETS if secret not in "".join(map(line_of, plain))] == []
    assert [secret for secret in SECRETS if secret in text] == []
    assert asked.payload_digest not in text
    [story] = whole(redacted).values()
    hidden = "[redacted]"
    assert story["job"]["payload"] == {
        "mail": hidden,
        "card": {"number": hidden, "cvc": 0},
        "gift": False,
        "note": None,
    }
    assert story["job"]["redacted"] is True
    assert story["job"]["error_kind"] == (await handle.get()).error_kind
    assert [(r["record"], sorted(r)) for r in redacted] == [(r["record"], sorted([*r, "redacted"])) for r in plain], (
        "the same records with the same keys"
    )
    steps = [e["payload"]["key"] for e in story["events"] if e["type"] == "node_finished"]
    assert steps == ["look up"], "how it went is still to be read"
    audit, *_ = [e["payload"] for e in story["events"] if e["type"] == "audit"]
    assert audit == {"key": hidden, "kind": hidden, "n": 0}, "a user's own event keeps its keys alone"


def test_a_line_is_always_utf8() -> None:
    for text in ("plain", "你好", "\ud800", "\u2028", "\x00"):
        line = line_of({"v": 1, "text": text})
        assert len(line.splitlines()) == 1
        assert json.loads(line.encode().decode()) == {"v": 1, "text": text}


# Retention by workers ---------------------------------------------------------------------------------------------------


async def old_jobs(store: Store, url: str, number: int, *, hours: float, strange: bool = False) -> list[UUID]:
    """Jobs that were made and ended that many hours ago; strange ones have ids that do not tell."""
    began = await store.now() - timedelta(hours=hours)
    ids = [uuid4() if strange else UUID(int=first_id_of(began).int + n) for n in range(number)]
    await store.jobs.enqueue_many([new_job(id=id) for id in ids])
    async with open_shell(url) as shell:
        for id in ids:
            await store.jobs.cancel(id, note="{}")
            await shell.run(f"update jobs set finished_at = {shell.ago(hours * 3600)} where id = {shell.id(id)}")
    return ids


def chores(store: Store, worker_id: str, **kept: Any) -> Chores:
    return Chores(store, worker_id, retention=Retention(**{"older_than": 3600.0, **kept}))


async def test_workers_prune_what_is_old(file_app: App, file_store_url: str) -> None:
    store = await file_app.open()
    old = await old_jobs(store, file_store_url, 3, hours=2)
    strange = await old_jobs(store, file_store_url, 3, hours=2, strange=True)
    young = await old_jobs(store, file_store_url, 3, hours=0.5)
    live = (await file_app.enqueue("echo", elsewhere=True)).id
    assert await left(file_app) == sorted([*old, *strange, *young, live])
    await chores(store, "w-1").run_once()
    assert await left(file_app) == sorted([*young, live])
    assert await file_app.database.prune(older_than=0) == 3, "their ends were set by hand: no log adds up to that"


async def test_one_worker_at_a_time_and_not_too_often(file_app: App, file_store_url: str) -> None:
    store = await file_app.open()
    first, second = (chores(store, name) for name in ("w-1", "w-2"))
    await first.run_once()
    late = await old_jobs(store, file_store_url, 1, hours=2)
    for worker in (second, first, chores(store, "w-3")):
        await worker.run_once()
    assert await left(file_app) == late, "its next turn comes in a few minutes"
    async with open_shell(file_store_url) as shell:
        await shell.run(f"update leaders set expires_at = {shell.ago(1)}")
    await chores(store, "w-4").run_once()
    assert await left(file_app) == []


async def test_a_long_pass_is_done_in_portions(
    file_app: App, file_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BUDGET", 0.0)
    monkeypatch.setattr(retention, "FIRST_BATCH", 2)
    monkeypatch.setattr(retention, "SHORT", 0.0)
    store = await file_app.open()
    await old_jobs(store, file_store_url, 5, hours=2)
    worker, other = chores(store, "w-1"), chores(store, "w-2")
    numbers = []
    for _ in range(3):
        await worker.run_once()
        await other.run_once()
        numbers.append(len(await left(file_app)))
    assert numbers == [3, 1, 0]


async def test_retention_of_some_ends_and_of_logs(file_app: App, file_store_url: str) -> None:
    store = await file_app.open()
    [old] = await old_jobs(store, file_store_url, 1, hours=2)
    await chores(store, "w-1", statuses=(Status.COMPLETED,)).run_once()
    assert await left(file_app) == [old]
    await chores(store, "w-1", keep_logs=True).run_once()
    job: Job = await file_app.jobs.get(old)
    assert (job.payload, job.pruned_at is not None) == (None, True)
    assert await file_app.database.prune(older_than=0) == 1, "its end was set by hand"


async def expired_signal(app: App) -> None:
    """One to ann that expired in the past of the database."""
    await app.agents.signal("ann", "form", expires_in=0.001)
    store = await app.open()
    await passed(store, await store.now() + timedelta(milliseconds=5))


async def test_signals_that_expired_are_forgotten_by_a_prune_without_filters_and_by_workers(app: App) -> None:
    await app.agents.create("ann", kind="echo")
    await app.agents.signal("ann", "pending")
    await expired_signal(app)
    await app.database.prune(older_than=0, kind="echo")
    await app.database.prune(older_than=0, dry_run=True)
    assert len((await app.agents.signals("ann")).items) == 2
    await app.database.prune(older_than=0)
    assert [s.key for s in (await app.agents.signals("ann")).items] == ["pending"]
    await expired_signal(app)
    await chores(await app.open(), "w-1", older_than=0.0).run_once()
    assert [s.key for s in (await app.agents.signals("ann")).items] == ["pending"]


async def test_a_worker_of_an_app_with_retention(file_app: App, file_store_url: str) -> None:
    store = await file_app.open()
    await old_jobs(store, file_store_url, 2, hours=2)
    await (await file_app.worker(retention="off")).run(once=True)
    await (await file_app.worker(retention="1h", retention_status="failed")).run(once=True)
    assert len(await left(file_app)) == 2
    async with open_shell(file_store_url) as shell:
        await shell.run("delete from leaders")
    await (await file_app.worker(retention="1h")).run(once=True)
    assert await left(file_app) == []


@pytest.mark.parametrize(
    "options",
    [{"retention": "30s"}, {"retention": "soon"}, {"retention_status": "running"}, {"retention_keep_logs": "perhaps"}],
    ids=str,
)
async def test_an_invalid_retention(app: App, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="retention"):
        await app.worker(**options)


async def test_a_chore_whose_database_is_away_goes_on_later(
    file_app: App, file_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await file_app.open()
    await old_jobs(store, file_store_url, 1, hours=2)
    worker, prune = chores(store, "w-1"), store.retention.prune

    async def away(*args: Any, **more: Any) -> int:
        raise StoreError("away")

    monkeypatch.setattr(store.retention, "prune", away)
    await worker.run_once()
    monkeypatch.setattr(store.retention, "prune", prune)
    assert len(await left(file_app)) == 1
    await worker.run_once()
    assert await left(file_app) == []


async def test_a_pass_that_is_over_stays_over(app: App) -> None:
    await cancelled(app, 1)
    with Pruning(await app.open(), PruneFilter(0)) as pruning:
        assert not await pruning.step()
        assert pruning.pruned == 1
        await cancelled(app, 1)
        assert not await pruning.step()
        assert pruning.pruned == 1
