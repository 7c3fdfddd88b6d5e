"""Agents of the OpenAI Agents SDK inside jobs: a durable session, model calls as steps, tool calls as tools, approvals by people.
Needs `pip install "perdure[openai-agents]"`.

    agent = Agent(name="research", tools=[perdure_tool(search)])

    @app.job
    async def research(ctx: JobContext, question: str) -> str:
        return (await run(agent, question, session=PerdureSession("ann", app))).final_output

Outside of a handler, and inside the function of a step or tool, nothing is recorded; the session is stored all the same.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from agents import Agent, FunctionTool, ModelSettings, Runner, RunState, SessionABC, Tool
from agents.agent_output import AgentOutputSchemaBase
from agents.handoffs import Handoff
from agents.items import ModelResponse, ToolApprovalItem, TResponseInputItem, TResponseStreamEvent
from agents.memory.session_settings import SessionSettings, resolve_session_limit
from agents.models.interface import Model, ModelProvider, ModelTracing
from agents.models.multi_provider import MultiProvider
from agents.result import RunResult
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from agents.run_config import RunConfig
from agents.tool_context import ToolContext
from openai.types.responses import Response, ResponseCompletedEvent
from openai.types.responses.response_prompt_param import ResponsePromptParam
from pydantic import TypeAdapter

from perdure.integrations.in_handler import CallSettings, Documents, Opens, numbered, only, under
from perdure.model.documents import Document, NewDocument
from perdure.model.errors import ConfigError, Denied
from perdure.model.ids import uuid7
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.current_context import handler_context, on_handler_loop
from perdure.runtime.context.job_documents import change_in_step

COLLECTION = "openai-agents-session"

T = TypeVar("T")

_run_key: ContextVar[str | None] = ContextVar("perdure_run_key", default=None)
"""The key of the model calls of a `run`, so that runs at the same time do not get each other's answers; None for the first."""
_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


class PerdureSession(SessionABC):
    """A conversation, in perdure's database: `Runner.run(agent, input, session=PerdureSession("ann", app))`.

    In a handler what it reads is recorded, and what it adds or removes commits together with a step: once, whatever is replayed.
    Outside it needs an app.

    session_id: default, in a handler, that of the job: its agent and session, or the job itself if it has no agent. app: an App
    or a client, for use outside of jobs. session_settings: as of each session; `SessionSettings(limit=100)` gives agents the
    last 100 items.
    """

    def __init__(
        self,
        session_id: str | None = None,
        app: Opens | None = None,
        *,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = _session_of_job() if session_id is None else session_id
        self.session_settings = session_settings or SessionSettings()
        self._documents = Documents(app)
        self._within = under(COLLECTION, self.session_id)
        self._last = ""

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items, oldest first; limit: the last ones alone. Raises TooLarge in a handler, if they are more than 1 MiB."""
        wanted = resolve_session_limit(limit, self.session_settings)

        async def read() -> dict[str, Any]:
            found = (
                await self._documents.read(self._within)
                if wanted is None
                else await self._documents.last(self._within, max(wanted, 0))
            )
            return {"items": [document.value for document in found], "last": found[-1].key if found else ""}

        known = await _recorded("session.get_items", read)
        self._last = max(self._last, known["last"])
        return cast("list[TResponseInputItem]", known["items"])

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the end."""
        if not items:
            return
        new = [NewDocument(COLLECTION, self._next_key(), json.dumps(item, ensure_ascii=False)) for item in items]

        async def add() -> None:
            ctx = handler_context()
            if ctx is None:
                await self._documents.change(put=new)
            else:
                self._last = await change_in_step(ctx, "session.add_items", add=new, result=self._last)

        await on_handler_loop(add())

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it; None if there is none."""

        async def pop() -> TResponseInputItem | None:
            ctx = handler_context()
            while True:
                found = await _recorded("session.pop_item", self._read_last)
                if found is None:
                    return None
                last = [only(COLLECTION, found["key"])]
                if ctx is not None:
                    await change_in_step(ctx, "session.remove", remove=last)
                elif await self._documents.change(remove=last) == 0:
                    continue  # another one has it
                return cast("TResponseInputItem", found["item"])

        return await on_handler_loop(pop())

    async def clear_session(self) -> None:
        """Remove all items."""

        async def clear() -> None:
            ctx = handler_context()
            if ctx is None:
                await self._documents.change(remove=[self._within])
            else:
                await change_in_step(ctx, "session.clear", remove=[self._within])

        await on_handler_loop(clear())

    async def _read_last(self) -> dict[str, Any] | None:
        found: list[Document] = await self._documents.last(self._within)
        return {"key": found[0].key, "item": found[0].value} if found else None

    def _next_key(self) -> str:
        """Keys are in the order of time, and after those that were read: clocks of machines may differ."""
        now = uuid7().hex
        if self._last:
            now = f"{max(int(now, 16), int(self._last.removeprefix(self._within.first), 16) + 1):032x}"
        self._last = self._within.first + now
        return self._last


class PerdureModel(Model):
    """A model whose calls in a handler are steps: what it answered is recorded and not asked for again. Tokens count as
    `ctx.usage`. A streamed answer is one step as well: it arrives as a whole.

    model: the model. name: of its steps; models that are called at the same time need different ones. settings: of its steps.
    """

    def __init__(self, model: Model, *, name: str = "model", settings: CallSettings | None = None) -> None:
        self._model = model
        self._name = name
        self._settings: CallSettings = settings or {}

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> ModelResponse:
        """See `Model.get_response`."""

        async def ask() -> ModelResponse:
            return await self._model.get_response(
                system_instructions,
                input,
                model_settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            )

        ctx = handler_context()
        if ctx is None:
            return await ask()

        async def call() -> Any:
            return _RESPONSE.dump_python(await ask(), mode="json", exclude_unset=True)

        return _RESPONSE.validate_python(await on_handler_loop(self._step(ctx, call, _run_key.get())))

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """See `Model.stream_response`. In a handler there is one event: the complete answer."""

        def events() -> AsyncIterator[TResponseStreamEvent]:
            return self._model.stream_response(
                system_instructions,
                input,
                model_settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            )

        ctx = handler_context()
        if ctx is None:
            async for event in events():
                yield event
            return

        async def call() -> Any:
            async for event in events():
                if isinstance(event, ResponseCompletedEvent):
                    return event.response.model_dump(mode="json", exclude_unset=True)
            raise ConnectionError("the stream of the model ended without an answer")

        response = Response.model_validate(await on_handler_loop(self._step(ctx, call, _run_key.get())))
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")

    async def _step(self, ctx: JobContext, call: Callable[[], Coroutine[Any, Any, Any]], key: str | None) -> Any:
        keyed = ctx.options(**self._settings) if key is None else ctx.options(**self._settings, key=key)
        number = numbered(ctx, self._name if key is None else f"{self._name} {key}")
        answer = await keyed.step(self._name, call)
        tokens = (answer.get("usage") or {}).get("total_tokens") or 0
        if tokens:
            await ctx.options(key=number).usage(tokens=tokens)
        return answer

    async def close(self) -> None:
        """See `Model.close`."""
        await self._model.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """See `Model.get_retry_advice`."""
        return self._model.get_retry_advice(request)


class PerdureModelProvider(ModelProvider):
    """A provider whose models are `PerdureModel`s: `RunConfig(model_provider=PerdureModelProvider())`.

    provider: default that of the SDK. name, settings: of its models.
    """

    def __init__(
        self, provider: ModelProvider | None = None, *, name: str = "model", settings: CallSettings | None = None
    ) -> None:
        self._provider = MultiProvider() if provider is None else provider
        self._name = name
        self._settings = settings

    def get_model(self, model_name: str | None) -> Model:
        """See `ModelProvider.get_model`."""
        return PerdureModel(self._provider.get_model(model_name), name=self._name, settings=self._settings)

    async def aclose(self) -> None:
        """See `ModelProvider.aclose`."""
        await self._provider.aclose()


def perdure_tool(tool: FunctionTool, **settings: Any) -> FunctionTool:
    """A copy of a function tool whose calls in a handler are `ctx.tool`: one whose outcome is unknown after a crash is not
    repeated silently.

    settings: as in `CallSettings`. What the tool returns must be JSON.
    """

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        ctx = handler_context()
        if ctx is None:
            return await tool.on_invoke_tool(context, arguments)

        async def call(**_: Any) -> Any:  # the arguments are recorded, and shown to people
            return await tool.on_invoke_tool(context, arguments)

        keyed = ctx.options(**settings, key=context.tool_call_id)
        return await on_handler_loop(keyed.tool(tool.name, call, **_arguments(arguments)))

    return dataclasses.replace(tool, on_invoke_tool=invoke)


async def run(
    agent: Agent[Any], input: str | list[TResponseInputItem], *, run_config: RunConfig | None = None, **options: Any
) -> RunResult:
    """`Runner.run` inside a job: models that are given by name are `PerdureModel`s, and tools that need approval ask a person by
    `ctx.approve`; the model gets the reason for a denial. options: as of `Runner.run`. Outside of a handler it is `Runner.run`.
    """
    config = run_config or RunConfig()
    ctx = handler_context()
    if ctx is None:
        return await Runner.run(agent, input, run_config=config, **options)
    if not isinstance(config.model_provider, PerdureModelProvider):
        config = dataclasses.replace(config, model_provider=PerdureModelProvider(config.model_provider))
    number = numbered(ctx, "run")
    before = _run_key.set(None if number == "run 1" else number)
    try:
        result = await Runner.run(agent, input, run_config=config, **options)
        while result.interruptions:
            state = result.to_state()
            await _decide(ctx, state, result.interruptions)
            result = await Runner.run(agent, state, run_config=config, **options)
    finally:
        _run_key.reset(before)
    return result


async def _decide(ctx: JobContext, state: RunState[Any, Any], asked: Sequence[ToolApprovalItem]) -> None:
    for item in asked:
        tool = item.tool_name or "tool"
        options = ctx.options(key=item.call_id)
        title = f"May {item.agent.name} call {tool}?"
        try:
            approval = options.approve(tool, title=title, payload=_arguments(item.arguments), on_deny="resume")
            await on_handler_loop(approval)
        except Denied as denied:
            state.reject(item, rejection_message=f"The tool call was denied: {denied}")
        else:
            state.approve(item)


def _arguments(text: str | None) -> dict[str, Any]:
    """The arguments of a tool call; under `input` where they are no JSON object."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"input": value}


async def _recorded(name: str, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """A read as a step in a handler, and directly elsewhere."""
    ctx = handler_context()
    return await on_handler_loop(read() if ctx is None else ctx.step(name, read))


def _session_of_job() -> str:
    ctx = handler_context()
    if ctx is None:
        raise ConfigError("outside of a handler a session needs an id")
    if ctx.agent_id is None:
        return str(ctx.job_id)
    return f"{ctx.agent_id}/{ctx.session_id or ''}"
