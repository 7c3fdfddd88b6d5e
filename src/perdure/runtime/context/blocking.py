"""BlockingContext: what a plain (sync) handler sees, from its own thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

import typing_extensions  # comes with pydantic

from perdure.model.actions import Action
from perdure.model.approvals import OnDeny, OnExpiry
from perdure.model.batches import Batch
from perdure.model.errors import ChildError, InvalidInput, Suspended
from perdure.model.messages import DEFAULT_CHANNEL, Message
from perdure.model.signals import ReceivedSignal
from perdure.model.task_records import TaskOutcome
from perdure.model.timing import Backoff, Duration
from perdure.model.tooling import TaskSpec
from perdure.runtime.context.approvals import ApprovalRequest, Decision
from perdure.runtime.context.blocking_facts import BlockingFacts
from perdure.runtime.context.children import ChildHandle, SpawnOptions
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.job_memory import BlockingMemory
from perdure.runtime.context.lost_answers import ErrorClasses
from perdure.runtime.context.options import OnChange, OnUnknown
from perdure.runtime.context.session import BlockingSession
from perdure.runtime.context.tool_stash import BlockingStash
from perdure.runtime.context.wait_any import Awaited, First
from perdure.runtime.context.working_memory import BlockingMessages, BlockingVariables
from perdure.runtime.handle import Handle
from perdure.runtime.registry import Handler

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")
I = TypeVar("I")  # noqa: E741  the child's input
O = TypeVar("O")  # noqa: E741  the child's output
T = typing_extensions.TypeVar("T", default=None)


class BlockingContext(BlockingFacts):
    """The context of a plain (sync) handler: the same calls, blocking. Used from the handler's own thread only."""

    def __init__(self, ctx: JobContext, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(ctx)
        self._loop = loop

    def snapshot(self) -> dict[str, Any]:
        """See `JobContext.snapshot`."""
        return self._wait(self._ctx.snapshot())

    @property
    def tool_output_stash(self) -> BlockingStash:
        """See `JobContext.tool_output_stash`."""
        return BlockingStash(self._ctx.tool_output_stash, self._wait)

    @property
    def session(self) -> BlockingSession:
        """See `JobContext.session`."""
        return BlockingSession(self._ctx.session, self._wait)

    @property
    def messages(self) -> BlockingMessages:
        """See `JobContext.messages`."""
        return BlockingMessages(self._ctx.messages, self._wait)

    @property
    def vars(self) -> BlockingVariables:
        """See `JobContext.vars`."""
        return BlockingVariables(self._ctx.vars, self._wait)

    def actions(self) -> list[Action]:
        """See `JobContext.actions`."""
        return self._wait(self._ctx.actions())

    @property
    def memory(self) -> BlockingMemory:
        """See `JobContext.memory`."""
        return BlockingMemory(self._ctx.memory, self._wait)

    def for_message(self, message: Message | None) -> BlockingContext:
        """See `JobContext.for_message`."""
        return BlockingContext(self._ctx.for_message(message), self._loop)

    def send(
        self,
        to: str,
        payload: Any,
        *,
        channel: str = DEFAULT_CHANNEL,
        session: str | None = None,
        delay: Duration = 0,
        expires_in: Duration | None = None,
        idempotency_key: str | None = None,
        causation_id: str | None = None,
    ) -> UUID:
        """See `JobContext.send`."""
        return self._wait(
            self._ctx.send(
                to,
                payload,
                channel=channel,
                session=session,
                delay=delay,
                expires_in=expires_in,
                idempotency_key=idempotency_key,
                causation_id=causation_id,
            )
        )

    @overload
    def ask(
        self,
        agent: str,
        payload: Any,
        reply: type[M],
        *,
        timeout: Duration | None = None,
        channel: str = DEFAULT_CHANNEL,
        session: str | None = None,
    ) -> M: ...
    @overload
    def ask(
        self,
        agent: str,
        payload: Any,
        reply: None = None,
        *,
        timeout: Duration | None = None,
        channel: str = DEFAULT_CHANNEL,
        session: str | None = None,
    ) -> Any: ...
    def ask(
        self,
        agent: str,
        payload: Any,
        reply: Any = None,
        *,
        timeout: Duration | None = None,
        channel: str = DEFAULT_CHANNEL,
        session: str | None = None,
    ) -> Any:
        """See `JobContext.ask`."""
        return self._wait(self._ctx.ask(agent, payload, reply, timeout=timeout, channel=channel, session=session))

    def receive(self, channel: str | None = None, *, limit: int = 10, timeout: Duration | None = None) -> list[Message]:
        """See `JobContext.receive`."""
        return self._wait(self._ctx.receive(channel, limit=limit, timeout=timeout))

    def options(
        self,
        *,
        retries: int | None = None,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
        key: str | None = None,
        on_change: OnChange | None = None,
        on_unknown: OnUnknown | None = None,
        unknown_on: ErrorClasses | None = None,
        known_on: ErrorClasses | None = None,
        assignees: tuple[str, ...] | list[str] | None = None,
        tokens: int | None = None,
        cost: Decimal | float | str | None = None,
        tool_call_id: str | None = None,
    ) -> BlockingContext:
        """See `JobContext.options`."""
        other = self._ctx.options(
            retries=retries,
            backoff=backoff,
            timeout=timeout,
            key=key,
            on_change=on_change,
            on_unknown=on_unknown,
            unknown_on=unknown_on,
            known_on=known_on,
            assignees=assignees,
            tokens=tokens,
            cost=cost,
            tool_call_id=tool_call_id,
        )
        return BlockingContext(other, self._loop)

    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `JobContext.step`."""
        return self._wait(self._ctx.step(name, fn, *args, **kwargs))

    @overload
    def tool(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def tool(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def tool(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """See `JobContext.tool`."""
        return self._wait(self._ctx.tool(name, fn, *args, **kwargs))

    def sleep(self, name: str, duration: Duration) -> None:
        """See `JobContext.sleep`."""
        self._wait(self._ctx.sleep(name, duration))

    def sleep_until(self, name: str, moment: datetime) -> None:
        """See `JobContext.sleep_until`."""
        self._wait(self._ctx.sleep_until(name, moment))

    def approve(
        self,
        name: str,
        *,
        title: str,
        payload: T = None,  # type: ignore[assignment]  # as in JobContext
        expires_in: Duration | None = None,
        assignees: tuple[str, ...] | list[str] = (),
        on_expiry: OnExpiry = "fail",
        on_deny: OnDeny = "fail",
        notify: Callable[[ApprovalRequest], Awaitable[None] | None] | None = None,
    ) -> Decision[T]:
        """See `JobContext.approve`. A plain `notify` is called in the worker's event loop, not in the handler's thread."""
        return self._wait(
            self._ctx.approve(
                name,
                title=title,
                payload=payload,
                expires_in=expires_in,
                assignees=assignees,
                on_expiry=on_expiry,
                on_deny=on_deny,
                notify=notify,
            )
        )

    @overload
    def wait_signal(self, key: str, model: type[M], *, timeout: Duration | None = None) -> M: ...
    @overload
    def wait_signal(self, key: str, model: None = None, *, timeout: Duration | None = None) -> Any: ...
    def wait_signal(self, key: str, model: Any = None, *, timeout: Duration | None = None) -> Any:
        """See `JobContext.wait_signal`."""
        return self._wait(self._ctx.wait_signal(key, model, timeout=timeout))

    def receive_signals(self) -> list[ReceivedSignal]:
        """See `JobContext.receive_signals`."""
        return self._wait(self._ctx.receive_signals())

    def wait_any(self, *waits: Awaited) -> First:
        """See `JobContext.wait_any`."""
        return self._wait(self._ctx.wait_any(*waits))

    @overload
    def spawn(
        self, job: Handler[None, O], /, *, key: str | None = None, **options: Unpack[SpawnOptions]
    ) -> ChildHandle[O]: ...
    @overload
    def spawn(
        self, job: Handler[I, O], input: I, /, *, key: str | None = None, **options: Unpack[SpawnOptions]
    ) -> ChildHandle[O]: ...
    @overload
    def spawn(
        self, job: str, input: Any = None, /, *, key: str | None = None, **options: Unpack[SpawnOptions]
    ) -> ChildHandle[Any]: ...
    def spawn(
        self, job: Any, input: Any = None, /, *, key: str | None = None, **options: Unpack[SpawnOptions]
    ) -> ChildHandle[Any]:
        """See `JobContext.spawn`."""
        return self._wait(self._ctx.spawn(job, input, key=key, **options))

    @overload
    def wait_for(self, child: ChildHandle[R], /) -> R: ...
    @overload
    def wait_for(self, child: Handle[Any] | UUID, /) -> Any: ...
    def wait_for(self, child: Any, /) -> Any:
        """See `JobContext.wait_for`."""
        return self._wait(self._ctx.wait_for(child))

    @overload
    def gather(self, *of: ChildHandle[R], return_exceptions: Literal[False] = False) -> list[R]: ...
    @overload
    def gather(self, *of: ChildHandle[R], return_exceptions: Literal[True]) -> list[R | ChildError]: ...
    def gather(self, *of: ChildHandle[Any], return_exceptions: bool = False) -> list[Any]:
        """See `JobContext.gather`."""
        if return_exceptions:
            return self._wait(self._ctx.gather(*of, return_exceptions=True))
        return self._wait(self._ctx.gather(*of))

    def batch(self) -> Batch:
        """See `JobContext.batch`."""
        return self._wait(self._ctx.batch())

    def run_tool(
        self,
        task: TaskSpec,
        /,
        *,
        files: Mapping[str, bytes | Path] | None = None,
        key: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        goal: str | None = None,
    ) -> TaskOutcome:
        """See `JobContext.run_tool`."""
        return self._wait(
            self._ctx.run_tool(task, files=files, key=key, priority=priority, max_attempts=max_attempts, goal=goal)
        )

    def read_file(self, task: TaskOutcome, path: str) -> bytes:
        """See `JobContext.read_file`."""
        return self._wait(self._ctx.read_file(task, path))

    def checkpoint(self, state: Any) -> None:
        """See `JobContext.checkpoint`."""
        self._wait(self._ctx.checkpoint(state))

    def progress(self, fraction: float, text: str | None = None) -> None:
        """See `JobContext.progress`."""
        self._wait(self._ctx.progress(fraction, text))

    def emit(self, type: str, payload: Any = None) -> None:
        """See `JobContext.emit`."""
        self._wait(self._ctx.emit(type, payload))

    def usage(self, *, tokens: int = 0, cost: Decimal | float | str = 0) -> None:
        """See `JobContext.usage`."""
        self._wait(self._ctx.usage(tokens=tokens, cost=cost))

    def idempotency_key(self, name: str, *, kind: Literal["tool", "step"] = "tool") -> str:
        """See `JobContext.idempotency_key`."""
        return self._ctx.idempotency_key(name, kind=kind)

    def _wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        run = self._ctx._run
        if asyncio._get_running_loop() is self._loop:
            coroutine.close()
            raise InvalidInput(
                "a plain handler's context was called on the worker's event loop, which would never go on",
                hint="call it from the handler's own thread, not from an async function; or make the handler async",
            )

        async def call() -> R:
            task = asyncio.current_task()
            assert task is not None
            run.cancel_with_attempt(task)
            return await coroutine

        try:
            return asyncio.run_coroutine_threadsafe(call(), self._loop).result()
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            raise Suspended(run.stop_reason or "timed out") from None


def unblocked(ctx: BlockingContext) -> JobContext:
    """The same context for the worker's event loop: for handlers of perdure's own."""
    return ctx._ctx
