"""Children: spawned once, waited for without a slot, cancelled and timed out with their parent."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from perdure import (
    App,
    BlockingContext,
    ChildCancelled,
    ChildFailed,
    Fail,
    Handler,
    InvalidInput,
    JobContext,
    Status,
    StepChanged,
    WaitCircle,
)
from perdure.testing import TestApp
from tests.runtime.support import LONG, NOW, PATIENCE, chores, ended, keys, only, reached, types, until, working


@dataclass
class Part:
    number: int


@dataclass
class Answer:
    doubled: int


def with_double(app: App) -> Handler[Part, Answer]:
    @app.job
    async def double(ctx: JobContext, part: Part) -> Answer:
        if part.number < 0:
            raise Fail(f"{part.number} is below zero")
        return Answer(part.number * 2)

    return double


async def test_a_child_is_spawned_once_and_its_result_is_typed(app: App) -> None:
    double = with_double(app)
    seen: list[int] = []

    @app.job
    async def parent(ctx: JobContext) -> int:
        child = await ctx.spawn(double, Part(21))
        seen.append(ctx.attempt)
        answer = await ctx.wait_for(child)
        assert isinstance(answer, Answer)
        return answer.doubled

    async with working(app, concurrency=1):
        handle = await app.enqueue(parent)
        assert await handle.result(PATIENCE) == 42
    log = await handle.events()
    spawned = only(log, "child_spawned").payload
    assert (spawned["key"], spawned["kind"]) == ("double", "double")
    child = await app.jobs.get(UUID(spawned["child"]))
    assert (child.parent_id, child.status) == (handle.id, Status.COMPLETED)
    assert keys(log, "wait_completed") == ["double"]
    assert (await handle.get()).parent_id is None


async def test_one_slot_runs_a_tree_of_any_depth(app: App) -> None:
    @app.job
    async def level(ctx: JobContext, depth: int) -> int:
        if depth == 0:
            return 1
        children = [await ctx.spawn(level, depth - 1), await ctx.spawn(level, depth - 1)]
        return 1 + sum(await ctx.gather(*children))

    async with working(app, concurrency=1):
        handle = await app.enqueue(level, 4)
        assert await handle.result(PATIENCE) == 31


async def test_a_parent_of_many_wakes_once_for_all_of_them(app: App) -> None:
    double = with_double(app)

    @app.job
    async def parent(ctx: JobContext) -> int:
        children = await asyncio.gather(*(ctx.spawn(double, Part(n), key=str(n)) for n in range(200)))
        return sum(answer.doubled for answer in await ctx.gather(*children))

    async with working(app, concurrency=5):
        handle = await app.enqueue(parent)
        assert await handle.result(PATIENCE) == sum(2 * n for n in range(200))
    assert (await handle.get()).attempt <= 2
    assert types(await handle.events()).count("job_parked") <= 1


async def test_a_child_that_failed_fails_a_parent_that_does_not_catch_it(app: App) -> None:
    double = with_double(app)

    @app.job(max_retries=5, backoff=NOW)
    async def parent(ctx: JobContext) -> None:
        await ctx.wait_for(await ctx.spawn(double, Part(-1)))

    async with working(app):
        handle = await app.enqueue(parent)
        job = await ended(app, handle)
    assert (job.status, job.error_kind, job.retry_count) == (Status.FAILED, "child", 0)
    assert job.error_message is not None
    assert "-1 is below zero" in job.error_message


async def test_a_parent_may_go_on_from_a_child_that_failed(app: App) -> None:
    double = with_double(app)

    @app.job
    async def parent(ctx: JobContext) -> list[str]:
        child = await ctx.spawn(double, Part(-1))
        try:
            await ctx.wait_for(child)
        except ChildFailed as error:
            await ctx.sleep("a moment", 0.01)
            return [str(error.child_id == child.id), str(error.kind), str(error.error), str(error.error_kind)]
        return []

    async with working(app):
        handle = await app.enqueue(parent)
        assert await handle.result(PATIENCE) == ["True", "double", "-1 is below zero", "fatal"]


async def test_a_gather_gives_results_in_order_and_errors_in_their_places(app: App) -> None:
    double = with_double(app)

    @app.job
    async def lenient(ctx: JobContext) -> list[str]:
        children = [await ctx.spawn(double, Part(n)) for n in (3, -1, 4)]
        found = await ctx.gather(*children, return_exceptions=True)
        return [str(one.doubled) if isinstance(one, Answer) else type(one).__name__ for one in found]

    @app.job
    async def strict(ctx: JobContext) -> None:
        children = [await ctx.spawn(double, Part(n)) for n in (3, -1, -2)]
        try:
            await ctx.gather(*children)
        except ChildFailed as error:
            raise Fail(f"caught {error.error}") from None

    async with working(app):
        one, other = await app.enqueue(lenient), await app.enqueue(strict)
        assert await one.result(PATIENCE) == ["6", "ChildFailed", "8"]
        assert (await ended(app, other)).error_message == "caught -1 is below zero"


async def test_a_cancelled_child_is_an_error_of_its_own(app: App) -> None:
    @app.job
    async def forever(ctx: JobContext) -> None:
        await ctx.sleep("for ever", LONG)

    @app.job
    async def parent(ctx: JobContext) -> str:
        child = await ctx.spawn(forever)
        try:
            await ctx.wait_for(child)
        except ChildCancelled as error:
            return str(error.child_id == child.id)
        return "?"

    async with working(app):
        handle = await app.enqueue(parent)
        await reached(handle, Status.PARKED)
        child = UUID(only(await handle.events(), "child_spawned").payload["child"])
        await app.jobs.cancel(child)
        assert await handle.result(PATIENCE) == "True"


async def test_a_cancel_goes_down_the_tree(app: App) -> None:
    running = asyncio.Event()

    @app.job
    async def leaf(ctx: JobContext) -> None:
        running.set()
        await asyncio.sleep(1000)

    @app.job
    async def middle(ctx: JobContext) -> None:
        await ctx.wait_for(await ctx.spawn(leaf))

    @app.job
    async def top(ctx: JobContext) -> None:
        await ctx.wait_for(await ctx.spawn(middle))

    async with working(app):
        handle = await app.enqueue(top)
        await asyncio.wait_for(running.wait(), PATIENCE)
        await reached(handle, Status.PARKED)
        tree = await (await app.open()).children.tree(handle.id, limit=10)
        assert [node.kind for node in tree] == ["top", "middle", "leaf"]
        await reached(app.jobs.handle(tree[1].id), Status.PARKED)
        assert await handle.cancel("enough") is Status.CANCELLED

        async def all_cancelled() -> bool:
            states = await (await app.open()).children.read_children([node.id for node in tree])
            return all(state.status is Status.CANCELLED for state in states)

        await until(all_cancelled)
    child = await app.jobs.get(tree[1].id)
    assert child.note["parent"] == str(handle.id)


async def test_workers_cancel_the_children_of_a_job_that_sql_cancelled(app: App) -> None:
    @app.job
    async def forever(ctx: JobContext) -> None:
        await ctx.sleep("for ever", LONG)

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.wait_for(await ctx.spawn(forever))

    async with working(app):
        handle = await app.enqueue(parent)
        await reached(handle, Status.PARKED)
        child = app.jobs.handle(UUID(only(await handle.events(), "child_spawned").payload["child"]))
        await reached(child, Status.PARKED)
        store = await app.open()
        await store.jobs.cancel(handle.id, note="{}")  # as any program does that knows nothing of children
        assert await store.children.cancelled_parents(limit=10) == [handle.id]
        await chores(app)
        assert await child.status() is Status.CANCELLED
        assert await store.children.cancelled_parents(limit=10) == []


async def test_children_of_a_job_that_failed_go_on(app: App) -> None:
    double = with_double(app)

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.spawn(double, Part(1), delay=0.3)
        raise Fail("no more")

    async with working(app):
        handle = await app.enqueue(parent)
        assert (await ended(app, handle)).status is Status.FAILED
        child = app.jobs.handle(UUID(only(await handle.events(), "child_spawned").payload["child"]))
        assert (await ended(app, child)).status is Status.COMPLETED


async def test_the_deadline_goes_down(app: App) -> None:
    double = with_double(app)
    later = datetime.now(UTC) + timedelta(hours=2)

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.spawn(double, Part(1))
        await ctx.spawn(double, Part(2), deadline=later + timedelta(hours=1))
        await ctx.spawn(double, Part(3), deadline=later - timedelta(hours=1))

    async with working(app):
        handle = await app.enqueue(parent, deadline=later)
        await handle.result(PATIENCE)
    events = [e for e in await handle.events() if e.type == "child_spawned"]
    deadlines = [(await app.jobs.get(UUID(e.payload["child"]))).deadline for e in events]
    assert deadlines == [later, later, later - timedelta(hours=1)]


async def test_a_replay_spawns_no_child_again(app: App) -> None:
    double = with_double(app)
    failures = iter([True, True, False])

    @app.job(max_retries=3, backoff=NOW)
    async def parent(ctx: JobContext) -> int:
        children = [await ctx.spawn(double, Part(n)) for n in range(3)]
        if next(failures):
            raise ValueError("again")
        return sum(answer.doubled for answer in await ctx.gather(*children))

    async with working(app):
        handle = await app.enqueue(parent)
        assert await handle.result(PATIENCE) == 6
    assert keys(await handle.events(), "child_spawned") == ["double", "double#2", "double#3"]
    assert await app.jobs.count(by="kind", kind="double") == {"double": 3}


async def test_another_input_than_was_recorded_is_refused(app: App) -> None:
    double = with_double(app)
    numbers = iter([1, 2])

    @app.job(max_retries=3, backoff=NOW, on_change="fail")
    async def parent(ctx: JobContext) -> None:
        await ctx.spawn(double, Part(next(numbers)))
        raise ValueError("again")

    async with working(app):
        job = await ended(app, await app.enqueue(parent))
    assert job.status is Status.FAILED
    assert job.error_message is not None
    assert StepChanged.__name__ in job.error_message


async def test_a_circle_of_waits_is_refused_and_named(app: App) -> None:
    said: list[str] = []

    @app.job
    async def child(ctx: JobContext, parent: str) -> None:
        for id in (UUID(parent), ctx.job_id):
            try:
                await ctx.wait_for(id)
            except WaitCircle as error:
                said.append(error.message)

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.wait_for(await ctx.spawn(child, str(ctx.job_id)))

    async with working(app):
        handle = await app.enqueue(parent)
        await handle.result(PATIENCE)
    its = UUID(only(await handle.events(), "child_spawned").payload["child"]).hex[-8:]
    ours = handle.id.hex[-8:]
    assert said == [
        f"the wait would never end, as the jobs wait for each other in a circle: …{its} -> …{ours} -> …{its}",
        f"the wait would never end, as the jobs wait for each other in a circle: …{its} -> …{its}",
    ]


async def test_two_children_that_wait_for_each_other_do_not_wait_for_ever(app: App) -> None:
    refused: list[str] = []

    @app.job
    async def sibling(ctx: JobContext, other: str) -> str:
        while not (found := await ctx.step("other", find, other)):
            await asyncio.sleep(0.01)
        try:
            await ctx.wait_for(UUID(found))
        except WaitCircle as error:
            refused.append(error.message)
            raise
        return "waited"

    async def find(goal: str) -> str:
        while True:
            for job in (await app.jobs.list(kind="sibling")).items:
                if job.goal == goal:
                    return str(job.id)
            await asyncio.sleep(0.01)

    @app.job
    async def parent(ctx: JobContext) -> list[str]:
        children = [await ctx.spawn(sibling, "b", goal="a"), await ctx.spawn(sibling, "a", goal="b")]
        return [str(one) for one in await ctx.gather(*children, return_exceptions=True)]

    async with working(app):
        handle = await app.enqueue(parent)
        results = await handle.result(PATIENCE)
    assert refused
    assert any("circle" in one for one in results)


async def test_only_children_can_be_waited_for(app: App) -> None:
    double = with_double(app)

    @app.job
    async def waits(ctx: JobContext, other: str) -> None:
        await ctx.wait_for(UUID(other))

    async with working(app):
        other = await app.enqueue(double, Part(1), delay=LONG)
        job = await ended(app, await app.enqueue(waits, str(other.id)))
    assert job.error_message is not None
    assert "has no parent: only children can be waited for" in job.error_message


async def test_a_child_has_no_idempotency_key(app: App) -> None:
    double = with_double(app)

    @app.job
    async def parent(ctx: JobContext) -> None:
        with pytest.raises(InvalidInput, match="no idempotency key"):
            await ctx.spawn(double, Part(1), idempotency_key="k")  # type: ignore[call-overload]

    async with working(app):
        await (await app.enqueue(parent)).result(PATIENCE)


async def test_a_plain_handler_has_the_blocking_twins(app: App) -> None:
    double = with_double(app)

    @app.job
    def parent(ctx: BlockingContext) -> list[int]:
        one = ctx.spawn(double, Part(1))
        others = [ctx.spawn(double, Part(n)) for n in (2, 3)]
        return [ctx.wait_for(one).doubled, *(answer.doubled for answer in ctx.gather(*others))]

    async with working(app):
        assert await (await app.enqueue(parent)).result(PATIENCE) == [2, 4, 6]


async def test_a_child_by_name_has_a_plain_result(app: App) -> None:
    with_double(app)

    @app.job
    async def parent(ctx: JobContext) -> dict[str, int]:
        return await ctx.wait_for(await ctx.spawn("double", {"number": 5}, key="five", priority=9))

    async with working(app):
        handle = await app.enqueue(parent)
        assert await handle.result(PATIENCE) == {"doubled": 10}
    spawned = only(await handle.events(), "child_spawned").payload
    assert spawned["key"] == "double[five]"
    assert (await app.jobs.get(UUID(spawned["child"]))).priority == 9


async def test_a_fork_keeps_the_children_and_a_rerun_spawns_new_ones(app: App) -> None:
    double = with_double(app)

    @app.job
    async def parent(ctx: JobContext) -> int:
        return (await ctx.wait_for(await ctx.spawn(double, Part(4)))).doubled

    async with working(app):
        handle = await app.enqueue(parent)
        assert await handle.result(PATIENCE) == 8
        fork = await app.jobs.fork(handle.id)
        rerun = await app.jobs.rerun(handle.id)
        assert await fork.result(PATIENCE) == 8
        assert await rerun.result(PATIENCE) == 8
    [first, forked, again] = [
        only(await one.events(), "child_spawned").payload["child"] for one in (handle, fork, rerun)
    ]
    assert forked == first
    assert again != first
    assert await app.jobs.count(by="kind", kind="double") == {"double": 2}


async def test_a_parent_in_the_testing_kit_spawns_and_waits_once(timed_app: TestApp) -> None:
    double = with_double(timed_app)

    @timed_app.job
    async def parent(ctx: JobContext) -> int:
        children = [await ctx.spawn(double, Part(n)) for n in range(3)]
        return sum(answer.doubled for answer in await ctx.gather(*children))

    handle = await timed_app.enqueue(parent)
    assert await handle.result(PATIENCE) == 6
    assert await timed_app.jobs.count(by="kind", kind="double") == {"double": 3}


async def test_a_parent_that_is_parked_wakes_at_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.runtime.worker.POLL", PATIENCE)

    parked = asyncio.Event()

    @app.job
    async def slow(ctx: JobContext) -> None:
        await parked.wait()

    @app.job
    async def parent(ctx: JobContext) -> int:
        await ctx.wait_for(await ctx.spawn(slow))
        return ctx.attempt

    async with working(app):
        handle = await app.enqueue(parent)
        await reached(handle, Status.PARKED)
        parked.set()
        assert await handle.result(PATIENCE / 2) == 2


async def test_explain_names_the_children_that_have_not_ended(app: App) -> None:
    @app.job
    async def forever(ctx: JobContext) -> None:
        await ctx.sleep("for ever", LONG)

    @app.job
    async def parent(ctx: JobContext) -> None:
        await ctx.gather(*[await ctx.spawn(forever) for _ in range(5)])

    async with working(app):
        handle = await app.enqueue(parent)
        await reached(handle, Status.PARKED)
    found = await app.jobs.explain(handle.id)
    assert found.code == "children"
    assert found.sentence.startswith("It waits for children: 'gather' ends with 5 children: …")
    assert ", and 2 more." in found.sentence
    [fact] = found.details["children"]
    assert (fact["key"], fact["waiting_for"], len(fact["children"])) == ("gather", 5, 3)


async def test_the_tree_of_a_job_is_what_it_spawned(app: App) -> None:
    @app.job
    async def leaf(ctx: JobContext, n: int) -> int:
        return n

    @app.job
    async def top(ctx: JobContext) -> int:
        children = [await ctx.spawn(leaf, n) for n in range(2)]
        return sum(await ctx.gather(*children))

    async with working(app):
        handle = await app.enqueue(top)
        assert await handle.result(PATIENCE) == 1
    nodes = await app.jobs.tree(handle.id)
    assert [(node.depth, node.kind, node.status) for node in nodes] == [
        (0, "top", Status.COMPLETED),
        (1, "leaf", Status.COMPLETED),
        (1, "leaf", Status.COMPLETED),
    ]
    assert {node.parent_id for node in nodes[1:]} == {handle.id}
    assert len(await app.jobs.tree(handle.id, limit=2)) == 2
    with pytest.raises(InvalidInput, match="limit"):
        await app.jobs.tree(handle.id, limit=0)
