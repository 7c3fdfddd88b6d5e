"""Agents of the OpenAI Agents SDK as jobs: what is recorded is not asked for again, and the conversation stays."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled
from agents.items import TResponseInputItem
from agents.memory.session_settings import SessionSettings
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from agents.usage import Usage

from perdure import App, Backoff, JobContext, Status
from perdure.integrations.openai_agents import PerdureModel, PerdureSession, perdure_tool, run
from perdure.testing import TestApp

USAGE = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)


@pytest.fixture(autouse=True)
def no_traces() -> None:
    set_tracing_disabled(disabled=True)


@pytest.fixture
async def t() -> AsyncIterator[TestApp]:
    async with TestApp() as app:
        yield app


def make_agent(world: list[str], *, searches: tuple[str, ...] = ("a", "b")) -> Agent[None]:
    """It searches twice at once, then deletes what it found, which needs approval, then says what came of it."""

    def answer(call: ModelCall) -> ModelStep:
        results = [str(item["output"]) for item in call.input if item.get("type") == "function_call_output"]
        world.append(f"model {len(results)}")
        if not results:
            calls = [function_call("search", {"what": what}, call_id=what) for what in searches]
            return ModelStep(output=calls, usage=USAGE)
        if len(results) == len(searches):
            return ModelStep(output=[function_call("delete", {"path": "a"}, call_id="c")], usage=USAGE)
        return ModelStep(output=[assistant_message(results[-1])], usage=USAGE)

    async def search(what: str) -> str:
        world.append(f"search {what}")
        return f"found {what}"

    async def delete(path: str) -> str:
        world.append(f"delete {path}")
        return f"deleted {path}"

    tools: list[Any] = [perdure_tool(function_tool(search)), perdure_tool(function_tool(delete, needs_approval=True))]
    script = ScriptedModel([ModelStep(responder=answer) for _ in range(200)])
    return Agent(name="janitor", model=PerdureModel(script), tools=tools)


def clean_by(app: TestApp, agent: Agent[None]) -> Any:
    @app.job
    async def clean(ctx: JobContext, question: str) -> str:
        del ctx
        return str((await run(agent, question, session=PerdureSession())).final_output)

    return clean


async def test_a_job_goes_on_after_an_approval_and_asks_for_nothing_again(t: TestApp) -> None:
    world: list[str] = []
    clean = clean_by(t, make_agent(world))
    await t.agents.create("janitor", kind="clean")
    job = await t.enqueue(clean, "what can go?", agent="janitor", session="s1")
    await t.run_until_idle()
    assert await job.status() is Status.WAITING_FOR_APPROVAL
    [asked] = (await t.approvals.list()).items
    assert (asked.title, asked.payload) == ("May janitor call delete?", {"path": "a"})
    await t.approve(asked.id)
    assert await job.result() == "deleted a"
    assert sorted(world[1:3]) == ["search a", "search b"]
    assert [*world[:1], *world[3:]] == ["model 0", "model 2", "delete a", "model 3"]
    assert [e.payload["tokens"] for e in await job.events() if e.type == "usage_recorded"] == [110, 110, 110]
    items = await PerdureSession("janitor/s1", t).get_items()
    kinds = [str(item.get("type", item.get("role"))) for item in items]
    called = ["function_call", "function_call", "function_call_output", "function_call_output"]
    assert kinds == ["user", *called, "function_call", "function_call_output", "message"]


async def test_it_survives_a_crash_after_each_step(t: TestApp) -> None:
    world: list[str] = []
    agent = make_agent(world, searches=("a",))  # calls at the same time may be recorded in any order
    report = await t.crash_after_each_step(clean_by(t, agent), "what can go?", effects=world)
    assert len(report.boundaries) > 8


async def test_the_model_gets_the_reason_for_a_denial(t: TestApp) -> None:
    world: list[str] = []
    job = await t.enqueue(clean_by(t, make_agent(world)), "what can go?")
    await t.run_until_idle()
    [asked] = (await t.approvals.list()).items
    await t.deny(asked.id, comment="it is needed")
    assert "it is needed" in await job.result()
    assert "delete a" not in world


async def test_the_next_job_of_a_session_knows_the_conversation(t: TestApp) -> None:
    seen: list[int] = []

    def answer(call: ModelCall) -> ModelStep:
        seen.append(len(call.input))
        return ModelStep(output=[assistant_message("yes")])

    agent = Agent(name="friend", model=PerdureModel(ScriptedModel([ModelStep(responder=answer)] * 3)))

    @t.job
    async def chat(ctx: JobContext, text: str) -> str:
        del ctx
        return str((await run(agent, text, session=PerdureSession("ann"))).final_output)

    for text in ("one", "two"):
        job = await t.enqueue(chat, text)
        assert await job.result() == "yes"
    outside = PerdureSession("ann", t)
    await Runner.run(agent, "three", session=outside)
    assert seen == [1, 3, 5]
    assert len(await outside.get_items()) == 6
    assert (await outside.get_items(2))[0] == said("three")
    assert await PerdureSession("bob", t).get_items() == []


def said(text: str) -> TResponseInputItem:
    return {"role": "user", "content": text}


async def use(session: PerdureSession) -> list[Any]:
    """Each operation of a session, and what it returned."""
    await session.add_items([said("a"), said("b")])
    await session.add_items([])
    await session.add_items([said("c")])
    first: list[Any] = [await session.get_items(), await session.get_items(2), await session.get_items(0)]
    popped = [await session.pop_item(), await session.get_items()]
    await session.clear_session()
    return [*first, *popped, await session.get_items(), await session.pop_item()]


USED = [
    [said("a"), said("b"), said("c")],
    [said("b"), said("c")],
    [],
    said("c"),
    [said("a"), said("b")],
    [],
    None,
]


async def test_a_session_in_a_job_changes_once_whatever_is_replayed(t: TestApp) -> None:
    @t.job
    async def talk(ctx: JobContext) -> list[Any]:
        return await use(PerdureSession(str(ctx.job_id)))

    job = await t.enqueue(talk)
    assert await job.result() == USED
    report = await t.crash_after_each_step(talk)
    assert len(report.boundaries) > 8


async def test_sessions_outside_of_jobs_are_those_of_other_processes(tmp_path: Path) -> None:
    async with App(f"sqlite:///{tmp_path}/p.db") as app:
        assert await use(PerdureSession("a/b", app)) == USED
        await PerdureSession("a", app).add_items([said("x"), said("y")])
    async with App(f"sqlite:///{tmp_path}/p.db") as app:
        limited = PerdureSession("a", app, session_settings=SessionSettings(limit=1))
        assert await limited.get_items() == [said("y")]
        assert await PerdureSession("a/b", app).get_items() == []


async def test_a_plain_handler_may_run_an_agent(t: TestApp) -> None:
    world: list[str] = []
    agent = make_agent(world)

    @t.job
    def clean(ctx: Any, question: str) -> str:
        session = PerdureSession("plain")
        result = asyncio.run(Runner.run(agent, question, session=session))
        return str(len(result.interruptions))

    job = await t.enqueue(clean, "what can go?")
    assert await job.result() == "1"
    keys = [e.payload["key"] for e in await job.events() if e.type in ("node_finished", "tool_returned")]
    assert {"model", "model#2", "search[a]", "search[b]", "session.add_items"} <= set(keys)


async def test_a_streamed_answer_is_recorded_as_well(t: TestApp) -> None:
    script = ScriptedModel([ModelStep(output=[assistant_message("two words")], usage=USAGE)])
    agent = Agent(name="speaker", model=PerdureModel(script))

    @t.job
    async def speak(ctx: JobContext) -> str:
        result = Runner.run_streamed(agent, "say two words")
        async for _ in result.stream_events():
            pass
        await ctx.sleep("a while", "1h")
        return str(result.final_output)

    job = await t.enqueue(speak)
    assert await job.result() == "two words"
    assert len(script.calls) == 1
    assert [e.payload["tokens"] for e in await job.events() if e.type == "usage_recorded"] == [110]


async def test_models_by_name_are_steps_of_run(t: TestApp) -> None:
    script = ScriptedModel([ModelStep(output=[assistant_message("hello")])] * 2)

    class Provider:
        def get_model(self, model_name: str | None) -> Any:
            assert model_name == "some-model"
            return script

    agent = Agent(name="named", model="some-model")
    config: Any = RunConfig(model_provider=Provider())  # type: ignore[arg-type]  # it has the one method that is called

    @t.job
    async def greet(ctx: JobContext) -> str:
        del ctx
        return str((await run(agent, "hi", run_config=config)).final_output)

    job = await t.enqueue(greet)
    assert await job.result() == "hello"
    assert [e.payload["key"] for e in await job.events() if e.type == "node_finished"] == ["model"]
    assert (await run(agent, "hi", run_config=config)).final_output == "hello"


async def test_runs_at_the_same_time_keep_their_answers_apart(t: TestApp) -> None:
    """The run that begins first is the last to ask the model again; a replay, where nothing takes time, asks in their order."""
    hold = asyncio.Event()

    def answer(call: ModelCall) -> ModelStep:
        results = [str(item["output"]) for item in call.input if item.get("type") == "function_call_output"]
        if not results:
            topic = str(call.input[0]["content"])
            return ModelStep(output=[function_call("search", {"what": topic}, call_id=topic)])
        if results == ["b"]:
            hold.set()
        return ModelStep(output=[assistant_message(f"about {results[-1]}")])

    async def search(what: str) -> str:
        if what == "a":
            await hold.wait()
        return what

    script = ScriptedModel([ModelStep(responder=answer) for _ in range(8)])
    agent: Agent[None] = Agent(name="reader", model=PerdureModel(script), tools=[perdure_tool(function_tool(search))])

    @t.job(backoff=Backoff(base=0))
    async def read(ctx: JobContext) -> list[str]:
        done = await asyncio.gather(*(run(agent, topic) for topic in ("a", "b")))
        if ctx.attempt == 1:
            raise OSError("once more")
        return [str(one.final_output) for one in done]

    job = await t.enqueue(read)
    assert await job.result() == ["about a", "about b"]
    keys = [e.payload["key"] for e in await job.events() if e.type == "node_finished"]
    assert sorted(keys) == ["model", "model#2", "model[run 2]", "model[run 2]#2"]
