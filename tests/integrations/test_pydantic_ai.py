"""Agents of pydantic-ai as jobs: what is recorded is not asked for again, and what needs approval asks a person."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from perdure import Backoff, JobContext, JobFailed, Status, current_context
from perdure.integrations.pydantic_ai import PerdureDurability
from perdure.testing import TestApp


class World:
    """What a model and its tools do, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def do(self, what: str) -> str:
        self.done.append(what)
        return what


def parts_of(message: ModelMessage) -> list[Any]:
    return [getattr(part, "content", None) for part in message.parts]


def make_agent(world: World, *, searches: Sequence[str] = ("a", "b"), **settings: Any) -> Agent[None, str]:
    """It searches, twice at once, then deletes what it found, which needs approval, then says what came of it."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del info
        world.do(f"model {len(messages)}")
        usage = RequestUsage(input_tokens=100, output_tokens=10)
        if len(messages) == 1:
            calls = [ToolCallPart("search", {"what": what}, tool_call_id=what) for what in searches]
            return ModelResponse(parts=calls, usage=usage)
        if len(messages) == 3:
            return ModelResponse(parts=[ToolCallPart("delete", {"path": "a"}, tool_call_id="c")], usage=usage)
        return ModelResponse(parts=[TextPart(f"{parts_of(messages[-1])[0]}")], usage=usage)

    agent = Agent(FunctionModel(model), name="janitor", capabilities=[PerdureDurability(**settings)])

    @agent.tool_plain
    async def search(what: str) -> str:
        return world.do(f"search {what}")

    @agent.tool_plain(requires_approval=True)
    async def delete(path: str) -> str:
        return world.do(f"delete {path}")

    return agent


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def t() -> AsyncIterator[TestApp]:
    async with TestApp() as app:
        yield app


def clean_by(app: TestApp, agent: Agent[None, str]) -> Any:
    @app.job
    async def clean(ctx: JobContext, question: str) -> str:
        del ctx
        return (await agent.run(question)).output

    return clean


async def test_a_job_goes_on_after_an_approval_and_asks_for_nothing_again(t: TestApp, world: World) -> None:
    job = await t.enqueue(clean_by(t, make_agent(world)), "what can go?")
    await t.run_until_idle()
    assert await job.status() is Status.WAITING_FOR_APPROVAL
    [asked] = (await t.approvals.list()).items
    assert (asked.title, asked.payload) == ("May janitor call delete?", {"path": "a"})
    await t.approve(asked.id)
    assert await job.result() == "delete a"
    assert sorted(world.done[1:3]) == ["search a", "search b"]
    assert [*world.done[:1], *world.done[3:]] == ["model 1", "model 3", "delete a", "model 5"]
    assert [e.payload["tokens"] for e in await job.events() if e.type == "usage_recorded"] == [110, 110, 110]
    keys = [e.payload["key"] for e in await job.events() if e.type in ("node_finished", "tool_returned")]
    assert sorted(keys) == [
        "janitor.delete[c]",
        "janitor.model",
        "janitor.model#2",
        "janitor.model#3",
        "janitor.search[a]",
        "janitor.search[b]",
    ]


async def test_it_survives_a_crash_after_each_step(t: TestApp, world: World) -> None:
    clean = clean_by(t, make_agent(world, searches=["a"]))  # calls at the same time have no one order
    report = await t.crash_after_each_step(clean, "what can go?", effects=world.done)
    assert len(report.boundaries) > 8


@pytest.mark.parametrize("named", [False, True], ids=["by their order", "by their names"])
async def test_runs_at_the_same_time_keep_their_answers_apart(t: TestApp, named: bool) -> None:
    """The run that begins first is the last to ask the model again; a replay, where nothing takes time, asks in their order."""
    hold = asyncio.Event()

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del info
        topic = str(parts_of(messages[0])[0])
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("search", {"what": topic}, tool_call_id=topic)])
        if topic == "b":
            hold.set()
        return ModelResponse(parts=[TextPart(f"about {topic}")])

    agent = Agent(FunctionModel(model), name="reader", capabilities=[PerdureDurability()])

    @agent.tool_plain
    async def search(what: str) -> str:
        if what == "a":
            await hold.wait()
        return what

    @t.job(backoff=Backoff(base=0))
    async def read(ctx: JobContext) -> list[str]:
        async def about(topic: str) -> str:
            if named and ctx.attempt == 2 and topic == "a":
                await asyncio.sleep(0.01)  # begins later than in the first attempt
            return (await agent.run(topic, metadata={"perdure": topic} if named else None)).output

        answers = await asyncio.gather(*(about(topic) for topic in ("a", "b")))
        if ctx.attempt == 1:
            raise OSError("once more")
        return list(answers)

    job = await t.enqueue(read)
    assert await job.result() == ["about a", "about b"]
    keys = [e.payload["key"] for e in await job.events() if e.type == "node_finished"]
    second = ["reader.model[b]", "reader.model[b]#2"] if named else ["reader.model[run 2]", "reader.model[run 2]#2"]
    assert sorted(key for key in keys if "model" in key)[2:] == second


async def test_edited_arguments_are_those_of_the_call(t: TestApp, world: World) -> None:
    job = await t.enqueue(clean_by(t, make_agent(world)), "what can go?")
    await t.run_until_idle()
    [asked] = (await t.approvals.list()).items
    await t.approve(asked.id, edited={"path": "b"})
    assert await job.result() == "delete b"


async def test_the_model_gets_the_reason_for_a_denial(t: TestApp, world: World) -> None:
    job = await t.enqueue(clean_by(t, make_agent(world)), "what can go?")
    await t.run_until_idle()
    [asked] = (await t.approvals.list()).items
    await t.deny(asked.id, comment="it is needed")
    assert "it is needed" in await job.result()
    assert "delete a" not in world.done


async def test_settings_of_tools(t: TestApp, world: World) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        names = [tool.name for tool in info.function_tools] if len(messages) == 1 else []
        return ModelResponse(parts=[ToolCallPart(name, {}, tool_call_id=name) for name in names] or [TextPart("end")])

    durability: Any = PerdureDurability(tool={"on_unknown": "retry", "retries": 3, "backoff": Backoff(base=0.01)})
    agent = Agent(FunctionModel(model), name="settings", capabilities=[durability])

    @agent.tool_plain(metadata={"perdure": {"retries": 1}})
    async def twice() -> str:
        world.do("twice")
        raise ZeroDivisionError

    @agent.tool_plain(metadata={"perdure": False})
    async def free() -> str:
        return world.do("free")

    @t.job(max_retries=0)
    async def use(ctx: JobContext) -> str:
        del ctx
        return (await agent.run("go")).output

    job = await t.enqueue(use)
    with pytest.raises(JobFailed, match="ZeroDivisionError"):
        await job.result()
    assert world.done.count("twice") == 2
    assert world.done.count("free") == 1
    assert {e.payload["key"] for e in await job.events() if e.type == "tool_called"} == {"settings.twice[twice]"}


async def test_runs_have_the_same_id_in_every_attempt(t: TestApp, world: World) -> None:
    ids: list[str] = []

    @t.job
    async def twice(ctx: JobContext) -> None:
        for _ in range(2):
            result = await make_agent(world).run("what can go?")
            ids.append(result.run_id)
        await ctx.sleep("a while", "1h")

    await t.enqueue(twice)
    for _ in range(3):
        await t.run_until_idle()
        for asked in (await t.approvals.list()).items:
            await t.approve(asked.id)
    assert len(ids) > 2
    assert len(set(ids)) == 2


async def test_outside_of_a_handler_and_in_a_step_it_is_a_plain_agent(t: TestApp, world: World) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del messages, info
        return ModelResponse(parts=[TextPart(world.do("said"))])

    agent = Agent(FunctionModel(model), name="plain", capabilities=[PerdureDurability()])
    assert (await agent.run("hello")).output == "said"
    with pytest.raises(LookupError, match="only inside a handler"):
        current_context()

    async def ask() -> str:
        return (await agent.run("hello")).output

    @t.job
    async def one_step(ctx: JobContext) -> str:
        assert current_context() is ctx
        return await ctx.step("ask", ask)

    job = await t.enqueue(one_step)
    assert await job.result() == "said"
    assert [e.payload["key"] for e in await job.events() if e.type == "node_finished"] == ["ask"]


async def test_a_streamed_answer_is_recorded_as_well(t: TestApp, world: World) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        del messages, info
        world.do("streamed")
        yield "two "
        yield "words"

    seen: list[str] = []

    async def show(ctx: Any, events: AsyncIterable[Any]) -> None:
        del ctx
        seen.extend([type(event).__name__ async for event in events])

    durability: Any = PerdureDurability(event_stream_handler=show)
    agent = Agent(FunctionModel(stream_function=stream), name="speaker", capabilities=[durability])

    @t.job
    async def speak(ctx: JobContext) -> str:
        said = (await agent.run("say two words")).output
        await ctx.sleep("a while", "1h")
        return said

    job = await t.enqueue(speak)
    assert await job.result() == "two words"
    assert world.done == ["streamed"]
    assert "PartStartEvent" in seen


async def test_what_cannot_be_recorded_is_an_error_that_says_so(t: TestApp) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del messages, info
        return ModelResponse(parts=[ToolCallPart("look", {}, tool_call_id="x")])

    durability: Any = PerdureDurability()
    agent = Agent(FunctionModel(model), name="looker", capabilities=[durability])

    @agent.tool_plain
    async def look() -> Any:
        return object()

    job = await t.enqueue(clean_by(t, agent), "look")
    with pytest.raises(JobFailed, match="cannot be recorded"):
        await job.result()


async def test_a_plain_handler_may_run_an_agent(t: TestApp, world: World) -> None:
    agent = make_agent(world)

    @t.job
    def clean(ctx: Any, question: str) -> str:
        return asyncio.run(agent.run(question)).output

    job = await t.enqueue(clean, "what can go?")
    await t.run_until_idle()
    [asked] = (await t.approvals.list()).items
    await t.approve(asked.id)
    assert await job.result() == "delete a"
    assert [*world.done[:1], *world.done[3:]] == ["model 1", "model 3", "delete a", "model 5"]
