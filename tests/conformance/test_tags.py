"""Tags: stored with the job, found by an index, gone with the job; a job without tags has nothing of them."""

import json
from typing import Any
from uuid import UUID

import pytest

from perdure import App, JobContext, Request
from perdure.model.errors import InvalidInput
from perdure.model.jobs import JobFilter
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import S, claim, enqueue, new_job, outcome


def tags(*names: str) -> str:
    return json.dumps(names, ensure_ascii=False)


async def listed(store: Store, *names: str, **filter: Any) -> list[UUID]:
    return [job.id for job in (await store.jobs.list_jobs(JobFilter(tags=names, **filter))).items]


async def test_jobs_are_found_by_their_tags(store: Store) -> None:
    one = await enqueue(store, tags=tags("nightly", "客户 7"))
    other = await enqueue(store, tags=tags("nightly"), kind="other")
    none = await enqueue(store)
    [many, plain] = await store.jobs.enqueue_many([new_job(tags=tags("bulk")), new_job()])
    assert (await store.jobs.get_job(one)).tags == ("nightly", "客户 7")
    assert (await store.jobs.get_job(none)).tags == (await store.jobs.get_job(plain.id)).tags == ()
    assert await listed(store, "nightly") == [other, one]
    assert await listed(store, "客户 7", "bulk") == [many.id, one], "any of several, newest first"
    assert await listed(store, "nightly", kinds=("other",)) == [other]
    assert await listed(store, "night") == []
    assert await store.jobs.count_jobs(JobFilter(tags=("nightly",)), by="kind") == {"echo": 1, "other": 1}
    assert await store.jobs.count_jobs(JobFilter(tags=("nightly", "bulk")), by="status") == {"PENDING": 3}


async def test_pages_of_a_tag_have_no_gaps(store: Store) -> None:
    wanted = [done.id for done in await store.jobs.enqueue_many([new_job(tags=tags("a", "b")) for _ in range(20)])]
    for names in (("a",), ("a", "b")):
        seen: list[UUID] = []
        cursor: str | None = None
        while True:
            page = await store.jobs.list_jobs(JobFilter(tags=names), limit=7, cursor=cursor)
            seen += [job.id for job in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == wanted[::-1], names


async def test_statuses_narrow_a_tag(store: Store) -> None:
    pending = await enqueue(store, tags=tags("x"))
    running = await enqueue(store, tags=tags("x"))
    done = await enqueue(store, tags=tags("x"))
    await claim(store, running)
    await store.leases.finish((await claim(store, done)).lease, outcome(S.COMPLETED))
    await claim(store, await enqueue(store))
    found = {status: await listed(store, "x", statuses=(status,)) for status in (S.PENDING, S.RUNNING, S.COMPLETED)}
    assert found == {S.PENDING: [pending], S.RUNNING: [running], S.COMPLETED: [done]}
    for status in found:
        counted = await store.jobs.count_jobs(JobFilter(tags=("x",), statuses=(status,)), by="status")
        assert counted == {str(status): 1}


async def test_a_tenant_sees_its_own(store: Store) -> None:
    mine = await enqueue(store, tags=tags("shared"))
    other = store.tenant("acme")
    theirs = (await other.jobs.enqueue(new_job(tags=tags("shared")))).id
    assert await listed(store, "shared") == [mine]
    assert await listed(other, "shared") == [theirs]


async def test_only_tagged_jobs_have_rows(file_store: Store, shell: Shell) -> None:
    """And they go with the job; tags that SQL changes are those that are found."""
    store = file_store
    await enqueue(store)
    kept = await enqueue(store, tags=tags("a", "b"))
    doomed = await enqueue(store, tags=tags("a"))
    await store.jobs.cancel(doomed, note="{}")
    rows = {(row["tag"], str(row["job_id"])) for row in await shell.run("select tag, job_id from job_tags")}
    assert rows == {("a", str(kept)), ("b", str(kept)), ("a", str(doomed))}
    await shell.run(f"update jobs set tags = '[\"c\",\"b\"]' where id = '{kept}'")
    assert (await listed(store, "c"), await listed(store, "a")) == ([kept], [doomed])
    assert (await store.jobs.get_job(kept)).tags == ("c", "b")
    assert await store.retention.prune([doomed]) == 1
    assert [row["tag"] for row in await shell.run("select tag from job_tags order by tag")] == ["b", "c"]


async def test_from_the_handler_and_the_caller(store_url: str) -> None:
    async with App(store_url, migrate=True) as app:

        @app.job(tags=["mail", "slow"])
        async def send(ctx: JobContext, to: str) -> str:
            return to

        plain = await app.enqueue(send, "ann")
        more = await app.enqueue(send, "ann", tags=["customer:7", "mail"])
        [bulk] = await app.enqueue_many([Request(send, "ann", {"tags": ["bulk"]})])
        assert (await plain.get()).tags == ("mail", "slow")
        assert (await more.get()).tags == ("mail", "slow", "customer:7")
        assert [job.id for job in (await app.jobs.list(tags="mail")).items] == [bulk.id, more.id, plain.id]
        assert await app.jobs.count(tags=["customer:7", "bulk"]) == {"PENDING": 2}
        again = await app.jobs.rerun(more.id)
        assert (await again.get()).tags == ("mail", "slow", "customer:7")
        for wrong in ("mail", ["a,b"], [""], ["x" * 101], [f"{n}" for n in range(49)], ["\n"], [7]):
            with pytest.raises(InvalidInput, match="tag"):
                await app.enqueue(send, "ann", tags=wrong)  # type: ignore[arg-type]  # what callers without a checker may pass
        assert await app.jobs.count() == {"PENDING": 4}
