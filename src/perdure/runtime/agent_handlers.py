"""The handlers of agents: functions that are called with the messages of a job, and whose return value is the reply."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from perdure.model.agents import NewAgent
from perdure.model.errors import Fail, InvalidInput
from perdure.model.messages import MAX_MESSAGE_BYTES, Message
from perdure.model.timing import Backoff, Duration
from perdure.runtime import codec
from perdure.runtime.context.blocking import BlockingContext, unblocked
from perdure.runtime.context.context import JobContext, run_of
from perdure.runtime.context.messages import reply_to
from perdure.runtime.registry import Handler, Policy, Registry, is_async
from perdure.runtime.validation import check_backoff, check_retries, check_seconds

F = TypeVar("F", bound=Callable[..., Any])


class AgentHandler:
    """What `app.agent(...)` gives: use it, or its `on_message`, as a decorator."""

    def __init__(self, registry: Registry, agent: NewAgent, policy: Policy) -> None:
        self._registry = registry
        self._policy = policy
        self.agent = agent
        """The agent that workers create at their start, if it is not there."""

    @property
    def id(self) -> str:
        """The agent's id."""
        return self.agent.id

    def __call__(self, fn: F) -> F:
        """Register `fn(ctx, message)` for its messages: it gets each as a `Message`, and replies by `ctx.send` where it wants to.
        Raises DuplicateHandler, InvalidInput."""
        self._register(fn, Message, replies=False)
        return fn

    def on_message(self, model: Any = Any) -> Callable[[F], F]:
        """Register `fn(ctx, payload)` for its messages: it gets each payload as this type, and what it returns is the reply, sent
        in the transaction that completes the job; None: no reply. A message that does not fit fails its job. `ctx.message` is the
        message itself. Raises DuplicateHandler, InvalidInput."""
        if model is not Any:
            codec.check_type_early(model, f"the messages of agent '{self.id}'")

        def register(fn: F) -> F:
            self._register(fn, model, replies=True)
            return fn

        return register

    def _register(self, fn: Callable[..., Any], model: Any, *, replies: bool) -> None:
        calls = _Calls(self.id, fn, model, replies=replies)
        handle = calls.handle if is_async(fn) else calls.handle_plainly
        self._registry.add(Handler(handle, self.agent.kind, self._policy))
        self._registry.add_agent(self.agent)


def agent_policy(agent: NewAgent, max_retries: int, backoff: Backoff | None, timeout: Duration | None) -> Policy:
    """The policy of the handler of an agent. Raises InvalidInput."""
    return Policy(
        queue=agent.queue,
        max_retries=check_retries(max_retries),
        backoff=check_backoff(backoff),
        timeout=None if timeout is None else check_seconds(timeout, "timeout"),
    )


class _Calls:
    """Calls a function for each message of a job."""

    def __init__(self, agent_id: str, fn: Callable[..., Any], model: Any, *, replies: bool) -> None:
        self._agent_id = agent_id
        self._fn = fn
        self._model = model
        self._replies = replies

    async def handle(self, ctx: JobContext, payload: Any) -> Any:
        """The handler, for an async function."""
        results = []
        for message in ctx.agent_messages or (None,):
            result = await self._fn(ctx.for_message(message), self._argument(message, payload))
            results.append(self._answered(ctx, message, result))
        return self._result(ctx, results)

    def handle_plainly(self, ctx: BlockingContext, payload: Any) -> Any:
        """The handler, for a plain function."""
        results = []
        for message in ctx.agent_messages or (None,):
            result = self._fn(ctx.for_message(message), self._argument(message, payload))
            results.append(self._answered(unblocked(ctx), message, result))
        return self._result(unblocked(ctx), results)

    def _argument(self, message: Message | None, payload: Any) -> Any:
        """message: None for a job that was enqueued without one, whose input counts as the payload."""
        if self._model is Message:
            if message is None:
                raise Fail(f"a job of agent '{self._agent_id}' needs a message")
            return message
        value = payload if message is None else message.payload
        try:
            return codec.decode(json.dumps(value), self._model, f"a message to agent '{self._agent_id}'")
        except InvalidInput as error:
            raise Fail(error.message) from None

    def _answered(self, ctx: JobContext, message: Message | None, result: Any) -> Any:
        if message is not None and self._replies and result is not None:
            text = codec.encode(result, f"the reply of agent '{self._agent_id}'", most=MAX_MESSAGE_BYTES)
            reply_to(
                run_of(ctx),
                message.from_agent_id,
                answers=message.id,
                channel=message.reply_channel or message.channel,
                session_id=message.session_id,
                text=text,
            )
        return result

    def _result(self, ctx: JobContext, results: list[Any]) -> Any:
        return results if len(ctx.agent_messages) > 1 else results[0]
