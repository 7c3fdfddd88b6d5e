"""Agents of pydantic-ai inside jobs: a model request is a step, a tool call is a tool call, and a tool that needs approval asks a
person. Needs `pip install "perdure[pydantic-ai]"`.

    agent = Agent("openai:gpt-5", name="research", capabilities=[PerdureDurability()])

    @app.job
    async def research(ctx: JobContext, question: str) -> str:
        return (await agent.run(question)).output

Outside of a handler, and inside the function of a step or tool, such an agent runs as it does without perdure.
"""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Generic, Literal

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    BoundDurableOperation,
    CapabilityOperationId,
    DurabilityEngineSpec,
    DurableOperation,
    DurableOperationBackend,
    DynamicToolsetCallToolParams,
    ModelRequestId,
    ModelRequestParams,
    ToolsetCallToolParams,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    conversation_id_from_run_id,
    durable_unit_scope,
)
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.tools import (
    AgentDepsT,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolApproved,
    ToolDenied,
)
from pydantic_core import to_jsonable_python
from typing_extensions import TypeVar

from perdure.integrations.in_handler import CallSettings, numbered
from perdure.model.errors import Denied, NotJson
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.current_context import current_context, handler_context, on_handler_loop

ParamsT = TypeVar("ParamsT")
WireT = TypeVar("WireT")
ResultT = TypeVar("ResultT")

METADATA = "perdure"
"""The key of a tool's metadata whose value is its CallSettings, or False for a tool that is called without a record; in the
metadata of a run its value is the key of the run's steps."""


class PerdureDurability(BaseDurabilityCapability[AgentDepsT]):
    """A capability of an agent: `Agent(..., name=..., capabilities=[PerdureDurability()])`.

    Inside a handler, each model request and each listing of a server's tools is a step, and each tool call a `ctx.tool`: what is
    recorded is not asked for again after a crash. Tokens, and their cost where the price is known, count as `ctx.usage`. A tool
    with `requires_approval=True` asks a person by `ctx.approve`: the decider may edit the arguments, and the model gets the
    reason for a denial.

    model, tool: how model requests and tool calls behave. What a tool has in its metadata under "perdure" replaces what `tool`
    says; False there calls it without a record. models (instances other than the agent's own must be among them),
    event_stream_handler, name: as of each durability capability of pydantic-ai.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="perdure",
        durable_unit_noun="step",
        durable_container_noun="job",
        codec=JSON_CODEC,
        serialization_failure=lambda error: NotJson(f"what a call of the agent returned cannot be recorded: {error}"),
        tool_config_key=METADATA,
    )

    def __init__(
        self,
        *,
        model: CallSettings | None = None,
        tool: CallSettings | None = None,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._of_model: CallSettings = model or {}
        self._of_tool: CallSettings = tool or {}

    @property
    def in_durable_context(self) -> bool:
        """Whether this code runs in a handler, outside of the functions of its steps and tools."""
        return handler_context() is not None

    def get_durable_operation_backend(self) -> DurableOperationBackend[CallSettings]:
        """For pydantic-ai: what makes the agent's calls."""
        return _Calls(self.name, self._of_model, self._of_tool)

    def get_default_run_id(self) -> str | None:
        """The id of the agent's next run: the same in every attempt of a job."""
        ctx = handler_context()
        if ctx is None:
            return super().get_default_run_id()
        run = numbered(ctx, f"{self.name} run")
        id = str(uuid.uuid5(ctx.job_id, run))
        _runs.setdefault(ctx, {})[id] = run.removeprefix(f"{self.name} ")
        return id

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """The id of a conversation that begins: the same in every attempt of a job."""
        if handler_context() is None:
            return super().get_default_conversation_id(run_id)
        return conversation_id_from_run_id(run_id)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask a person about each call that needs approval; calls of tools outside are left to others."""
        del ctx
        job = handler_context()
        if job is None or not requests.approvals:
            return None
        decisions = await asyncio.gather(*(self._decide(job, call) for call in requests.approvals))
        return DeferredToolResults(
            approvals={
                call.tool_call_id: decision for call, decision in zip(requests.approvals, decisions, strict=True)
            }
        )

    async def _decide(self, job: JobContext, call: ToolCallPart) -> ToolApproved | ToolDenied:
        name = f"{self.name}.{call.tool_name}"
        arguments = call.args_as_dict()
        try:
            decision = await on_handler_loop(
                job.options(key=call.tool_call_id).approve(
                    name, title=f"May {self.name} call {call.tool_name}?", payload=arguments, on_deny="resume"
                )
            )
        except Denied as denied:
            return ToolDenied(f"The tool call was denied: {denied}")
        return ToolApproved(override_args=decision.payload if decision.payload != arguments else None)


_runs: weakref.WeakKeyDictionary[JobContext, dict[str, str]] = weakref.WeakKeyDictionary()
"""By the id of a run, in each attempt: which of its agent's runs it is, as `run 2`."""


def _key_of(ctx: JobContext, params: object) -> str | None:
    """The key of the calls of a run, so that runs at the same time do not get each other's answers: what its metadata say, else
    which of the agent's runs it is. None for the first."""
    run = getattr(params, "run_context", None) or getattr(params, "ctx", None)
    if not isinstance(run, RunContext):
        return None
    own = (run.metadata or {}).get(METADATA)
    key = str(own) if own is not None else _runs.get(ctx, {}).get(run.run_id or "")
    return None if key == "run 1" else key


class _Calls(DurableOperationBackend[CallSettings]):
    """Makes each operation of an agent a call of the job's context."""

    def __init__(self, agent: str, of_model: CallSettings, of_tool: CallSettings) -> None:
        self._agent = agent
        self._of_model = of_model
        self._of_tool = of_tool

    def bind(
        self, operation: DurableOperation[ParamsT, WireT, ResultT]
    ) -> BoundDurableOperation[ParamsT, WireT, ResultT]:
        return _BoundCall(operation, self._agent, self._settings(operation.config_role))

    def config_for_tool(
        self, operation: DurableOperation[ParamsT, WireT, ResultT], *, tool: object | None, tool_name: str
    ) -> CallSettings | Literal[False]:
        del operation, tool_name
        of_tool = getattr(getattr(tool, "tool_def", tool), "metadata", None) or {}
        own: CallSettings | Literal[False] = of_tool.get(METADATA, {})
        return False if own is False else {**self._of_tool, **own}

    def registrations(self) -> Sequence[Callable[..., object]]:
        return ()

    def _settings(self, role: str) -> CallSettings:
        return self._of_tool if role == "tool" else self._of_model


class _BoundCall(BoundDurableOperation[ParamsT, WireT, ResultT], Generic[ParamsT, WireT, ResultT]):
    """One operation of an agent."""

    def __init__(
        self, operation: DurableOperation[ParamsT, WireT, ResultT], agent: str, settings: CallSettings
    ) -> None:
        self._operation = operation
        self._agent = agent
        self._settings = settings

    @property
    def operation(self) -> DurableOperation[ParamsT, WireT, ResultT]:
        return self._operation

    async def __call__(self, params: ParamsT, *, config: object | None = None) -> ResultT:
        ctx = current_context()
        settings: Any = self._settings if config is None else config
        codec = self._operation.result_codec

        async def call(**_: Any) -> Any:  # the arguments are recorded, and shown to people
            with durable_unit_scope():
                return codec.dump(await self._operation.handler(params))

        if isinstance(params, ToolsetCallToolParams | DynamicToolsetCallToolParams):
            keyed = ctx.options(**settings, key=params.ctx.tool_call_id)
            arguments = {str(name): value for name, value in to_jsonable_python(params.tool_args).items()}
            called = keyed.tool(f"{self._agent}.{params.name}", call, **arguments)
            return codec.load(await on_handler_loop(called))
        name, key = self._name(), _key_of(ctx, params)
        keyed = ctx.options(**settings) if key is None else ctx.options(**settings, key=key)
        number = numbered(ctx, name if key is None else f"{name} {key}")
        result = codec.load(await on_handler_loop(keyed.step(name, call)))
        if isinstance(params, ModelRequestParams):
            await on_handler_loop(_report_usage(ctx.options(key=number), getattr(result, "response", result)))
        return result

    def _name(self) -> str:
        """The name of the step; it is recorded, so it stays as it is."""
        id = self._operation.operation_id
        match id:
            case ModelRequestId(model_id=None):
                what = "model"
            case ModelRequestId(model_id=model):
                what = f"model.{model}"
            case ToolsetGetToolsId(toolset_id=toolset) | ToolsetGetInstructionsId(toolset_id=toolset):
                what = f"{toolset}.{'tools' if isinstance(id, ToolsetGetToolsId) else 'instructions'}"
            case CapabilityOperationId(capability_id=capability, operation=operation):
                what = f"{capability}.{operation}"
            case _:
                what = type(id).__name__.removesuffix("Id")
        return f"{self._agent}.{what}"


async def _report_usage(ctx: JobContext, response: object) -> None:
    """Count what a recorded response used."""
    assert isinstance(response, ModelResponse)
    try:
        cost = response.cost().total_price
    except (AssertionError, LookupError, ValueError):  # no price is known
        cost = Decimal(0)
    if response.usage.total_tokens or cost:
        await ctx.usage(tokens=response.usage.total_tokens, cost=cost)
