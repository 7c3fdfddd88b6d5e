"""Graphs of LangGraph: the checkpointer passes the library's own suite, and a graph in a job goes on where it was."""

import asyncio
import operator
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import GetOp, PutOp
from langgraph.types import interrupt

from perdure import App, InvalidInput, JobContext, NotJson, Status
from perdure.integrations.langgraph import PerdureSaver, PerdureStore, run
from perdure.testing import TestApp


class State(TypedDict):
    done: Annotated[list[str], operator.add]


@pytest.fixture
async def t() -> AsyncIterator[TestApp]:
    async with TestApp() as app:
        yield app


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, fresh_store_url: Callable[[str], str]) -> AsyncIterator[App]:
    async with App(fresh_store_url(request.param), migrate=True) as app:
        yield app


async def test_the_checkpointer_passes_the_suite_of_langgraph(app: App) -> None:
    @checkpointer_test(name="perdure")
    async def saver() -> AsyncIterator[PerdureSaver]:
        yield PerdureSaver(app)

    report = await validate(saver)
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert failures == {}
    assert {name for name, result in report.results.items() if result.passed} == set(report.results)
    assert sum(result.tests_passed for result in report.results.values()) > 50


async def test_a_store_keeps_finds_and_lists_items(app: App) -> None:
    store = PerdureStore(app)
    await store.aput(("users", "ann"), "tea", {"text": "she likes green tea", "rank": 2})
    await store.aput(("users", "ann"), "car", {"text": "她开一辆红色的车", "rank": 1, "more": {"year": 2020}})
    await store.aput(("users", "bob/x"), "tea", {"text": "he hates tea", "rank": 5})
    await store.aput(("docs", "v1"), "a", {"text": "manual"})
    found = await store.aget(("users", "ann"), "tea")
    assert found is not None
    assert (found.namespace, found.key, found.value["rank"]) == (("users", "ann"), "tea", 2)
    assert await store.aget(("users", "ann"), "none") is None
    assert [item.key for item in await store.asearch(("users", "ann"), query="which tea?")] == ["tea", "car"]
    [best] = await store.asearch(("users", "ann"), query="红色的车", limit=1)
    assert (best.key, best.score is not None) == ("car", True)
    assert {item.namespace for item in await store.asearch(("users",))} == {("users", "ann"), ("users", "bob/x")}
    assert await store.asearch(("user",)) == []

    async def fitting(filter: dict[str, Any]) -> list[int]:
        return sorted(item.value["rank"] for item in await store.asearch(("users",), filter=filter))

    assert await fitting({"rank": {"$gte": 2, "$ne": 5}}) == [2]
    assert await fitting({"rank": {"$lt": 2}}) == [1]
    assert await fitting({"more": {"year": 2020}}) == [1]
    assert await fitting({"text": {"$gt": 1}}) == []
    with pytest.raises(InvalidInput, match=r"no operator '\$in'"):
        await fitting({"rank": {"$in": [1]}})
    namespaces = [("docs", "v1"), ("users", "ann"), ("users", "bob/x")]
    assert await store.alist_namespaces() == namespaces
    assert await store.alist_namespaces(prefix=("users",), limit=1, offset=1) == [("users", "bob/x")]
    assert await store.alist_namespaces(suffix=("*",), max_depth=1) == [("docs",), ("users",)]
    assert await store.alist_namespaces(prefix=("*", "v1")) == [("docs", "v1")]
    await store.adelete(("users", "ann"), "tea")
    assert [item.key for item in await store.asearch(("users", "ann"))] == ["car"]


async def test_puts_of_a_batch_are_one_change_after_its_reads(app: App) -> None:
    store = PerdureStore(app)
    ops: list[Any] = [
        PutOp(("n",), "a", {"x": 1}),
        GetOp(("n",), "a"),
        PutOp(("n",), "a", {"x": 2}),
        PutOp(("n",), "b", {"x": 3}),
    ]
    assert await store.abatch(ops) == [None, None, None, None]
    assert [item.value for item in sorted(await store.asearch(("n",)), key=lambda item: item.key)] == [
        {"x": 2},
        {"x": 3},
    ]
    with pytest.raises(NotJson):
        await store.abatch([PutOp(("n",), "c", {"x": 1}), PutOp(("n",), "d", {"x": object()})])
    assert await store.aget(("n",), "c") is None


def build(world: list[str], saver: PerdureSaver, *, asks: int = 0) -> Any:
    """Two nodes; the second one asks as often as that."""

    def first(state: State) -> State:
        world.append("first")
        return {"done": ["first"]}

    def second(state: State) -> State:
        world.append("second")
        answers = [interrupt("May it?") for _ in range(asks)]
        return {"done": [f"second {answers}" if asks else "second"]}

    builder = StateGraph(State)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder.compile(checkpointer=saver, store=PerdureStore())


def job_of(app: TestApp, graph: Any, **options: Any) -> Any:
    @app.job
    async def walk(ctx: JobContext) -> list[str]:
        done: list[str] = (await run(graph, {"done": ["begin"]}, **options))["done"]
        await ctx.sleep("a while", "1h")
        return done

    return walk


async def test_a_graph_runs_once_whatever_is_replayed(t: TestApp) -> None:
    world: list[str] = []
    job = await t.enqueue(job_of(t, build(world, PerdureSaver())))
    assert await job.result() == ["begin", "first", "second"]
    assert world == ["first", "second"]


async def test_each_question_of_a_graph_asks_a_person(t: TestApp) -> None:
    world: list[str] = []
    job = await t.enqueue(job_of(t, build(world, PerdureSaver(), asks=2)))
    await t.run_until_idle()
    assert await job.status() is Status.WAITING_FOR_APPROVAL
    [asked] = (await t.approvals.list()).items
    assert (asked.title, asked.payload) == ("The graph asks", "May it?")
    await t.approve(asked.id, edited="yes")
    await t.run_until_idle()
    [again] = [one for one in (await t.approvals.list()).items if one.id != asked.id]
    await t.deny(again.id, comment="too late")
    done = await job.result()
    assert "'payload': 'yes'" in done[-1]
    assert "too late" in done[-1]
    assert world == ["first", "second", "second", "second"], "a node runs again from its beginning for each answer"


async def test_other_answers_come_from_a_function(t: TestApp) -> None:
    async def answer(asked: Any) -> str:
        return f"re: {asked.value}"

    job = await t.enqueue(job_of(t, build([], PerdureSaver(), asks=1), answer=answer))
    assert (await job.result())[-1] == "second ['re: May it?']"


async def test_it_survives_a_crash_after_each_record(t: TestApp) -> None:
    world: list[str] = []
    report = await t.crash_after_each_step(job_of(t, build(world, PerdureSaver())))
    assert report.boundaries


async def test_jobs_of_one_thread_go_on_with_its_state(t: TestApp) -> None:
    graph = build([], PerdureSaver())
    config: Any = {"configurable": {"thread_id": "ann"}}
    walk = job_of(t, graph, config=config)
    for rounds in (1, 2):
        job = await t.enqueue(walk)
        assert await job.result() == ["begin", "first", "second"] * rounds
    outside = PerdureSaver(t)
    assert len([one async for one in outside.alist(config)]) == 8
    found = await outside.aget_tuple(config)
    assert found is not None
    assert found.checkpoint["channel_values"]["done"][-1] == "second"


async def test_a_node_that_fails_is_run_again_and_those_before_it_are_not(t: TestApp) -> None:
    world: list[str] = []

    async def first(state: State) -> State:
        world.append("first")
        return {"done": ["first"]}

    async def second(state: State) -> State:
        world.append("second")
        if world.count("second") < 3:
            raise ConnectionError("down")
        return {"done": ["second"]}

    builder = StateGraph(State)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    graph = builder.compile(checkpointer=PerdureSaver())

    @t.job(max_retries=3)
    async def walk(ctx: JobContext) -> list[str]:
        done: list[str] = (await run(graph, {"done": []}))["done"]
        return done

    job = await t.enqueue(walk)
    assert await job.result() == ["first", "second"]
    assert world == ["first", "second", "second", "second"]


async def test_what_run_refuses(t: TestApp) -> None:
    with pytest.raises(InvalidInput, match="inside a handler"):
        await run(build([], PerdureSaver()), {"done": []})
    builder = StateGraph(State)
    builder.add_node("only", lambda state: {"done": []})
    builder.add_edge(START, "only")
    without = builder.compile()

    @t.job
    async def walk(ctx: JobContext) -> str:
        with pytest.raises(InvalidInput, match="no checkpointer"):
            await run(without, {"done": []})
        graph = build([], PerdureSaver())
        with pytest.raises(InvalidInput, match="would block the worker"):
            graph.invoke({"done": []}, {"configurable": {"thread_id": "x"}})
        return "refused"

    job = await t.enqueue(walk)
    assert await job.result() == "refused"


async def test_a_plain_handler_runs_a_graph_with_blocking_calls(t: TestApp) -> None:
    world: list[str] = []
    graph = build(world, PerdureSaver())

    @t.job
    def walk(ctx: Any) -> list[str]:
        done: list[str] = graph.invoke({"done": []}, {"configurable": {"thread_id": "x"}})["done"]
        PerdureStore().put(("a",), "b", {"c": done})
        return done

    job = await t.enqueue(walk)
    assert await job.result() == ["first", "second"]
    item = await PerdureStore(t).aget(("a",), "b")
    assert item is not None
    assert item.value == {"c": ["first", "second"]}


def test_a_program_without_an_event_loop_uses_blocking_calls(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/p.db")
    config: Any = {"configurable": {"thread_id": "x"}}
    with PerdureSaver(app) as saver, PerdureStore(app) as store:
        graph = build([], saver)
        assert graph.invoke({"done": []}, config)["done"] == ["first", "second"]
        saver.copy_thread("x", "y")
        saver.delete_thread("x")
        assert saver.get_tuple(config) is None
        assert len(list(saver.list({"configurable": {"thread_id": "y"}}))) == 4
        saver.prune(["y"])
        [kept] = saver.list({"configurable": {"thread_id": "y"}}, filter={"step": 2}, limit=3)
        assert kept.checkpoint["channel_values"]["done"] == ["first", "second"]
        store.put(("n",), "a", {"x": 1})
        assert [item.value for item in store.search(("n",))] == [{"x": 1}]

    async def read() -> int:
        async with App(f"sqlite:///{tmp_path}/p.db") as other:
            return len([one async for one in PerdureSaver(other).alist(None)])

    assert asyncio.run(read()) == 1
