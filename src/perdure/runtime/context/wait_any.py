"""`ctx.wait_any`: the first of several waits. What ends them is one write, so a replay finds the same one."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from perdure.model.approvals import Approval, OnDeny, OnExpiry
from perdure.model.errors import InvalidInput, StepChanged, Suspended
from perdure.model.events import NewEvent
from perdure.model.jobs import Wait
from perdure.model.messages import message_from, wanted_text
from perdure.model.timing import Duration
from perdure.model.waits import APPROVAL, CHILD, MESSAGE, SIGNAL, TIMER, WaitKind
from perdure.runtime import codec
from perdure.runtime.context import approvals, children, messages, signals
from perdure.runtime.context.approvals import ApprovalRequest, Question
from perdure.runtime.context.calls import Caller
from perdure.runtime.context.changed_code import refuse
from perdure.runtime.context.children import ChildHandle
from perdure.runtime.context.options import CallOptions
from perdure.runtime.context.waits import opened, recorded_answer
from perdure.runtime.message_checks import check_channel
from perdure.runtime.run import Run
from perdure.runtime.validation import check_key, check_names, check_seconds, check_title, check_word
from perdure.store.protocol import Store

MOST = 100
"""Waits of one call."""


@dataclass(frozen=True, slots=True)
class First:
    """What came first. name: that of the wait. value: what it gives: the payload of a signal, a Decision, a list of messages,
    None for a time."""

    name: str
    value: Any


class Awaited(ABC):
    """A wait that `wait_any` begins: `OnSignal`, `OnTime`, `OnApproval`, `OnChild`, `OnMessage`."""

    kind: ClassVar[WaitKind[Store, Any]]
    name: str

    @abstractmethod
    def check(self) -> None:
        """Raise InvalidInput for a bad argument."""

    async def enter(self, caller: Caller, options: CallOptions) -> str:
        """Its key. Raises as `Caller.enter`."""
        return await caller.enter(self.kind.name, self.name, options)

    @abstractmethod
    async def begin(self, run: Run, key: str, options: CallOptions) -> Wait:
        """Open the wait, or find the one that an earlier attempt opened. Raises StepChanged."""

    async def answer(self, run: Run, wait: Wait) -> Any:
        """Wait for its answer."""
        return await run.waits.answer(self.kind, wait)

    @abstractmethod
    async def value(self, run: Run, key: str, done: Mapping[str, Any], options: CallOptions) -> Any:
        """What the handler gets. done: the payload of `wait_completed`."""


@dataclass(frozen=True, slots=True)
class OnSignal(Awaited):
    """For `wait_any`: a signal of this key; its value is the payload, as plain JSON or as `model`."""

    kind = SIGNAL
    name: str
    model: Any = None

    def check(self) -> None:
        """See `Awaited.check`."""
        check_key(self.name, "key")
        codec.check_type(self.model, f"the payload of signal '{self.name}'")

    async def begin(self, run: Run, key: str, options: CallOptions) -> Wait:
        """See `Awaited.begin`."""
        del options
        return await opened(run, SIGNAL, key, None, self.name, signals.beginning(run))

    async def answer(self, run: Run, wait: Wait) -> Any:
        """See `Awaited.answer`."""
        return await signals.fitting(run, wait, self.model)

    async def value(self, run: Run, key: str, done: Mapping[str, Any], options: CallOptions) -> Any:
        """See `Awaited.value`."""
        del run, key, options
        return signals.payload_of(done, self.name, self.model)


@dataclass(frozen=True, slots=True)
class OnTime(Awaited):
    """For `wait_any`: a time; its value is None. duration: seconds or text such as "3d"."""

    kind = TIMER
    name: str
    duration: Duration

    def check(self) -> None:
        """See `Awaited.check`."""
        check_seconds(self.duration, "duration")

    async def begin(self, run: Run, key: str, options: CallOptions) -> Wait:
        """See `Awaited.begin`."""
        del options
        return await opened(run, TIMER, key, self.duration, None)

    async def value(self, run: Run, key: str, done: Mapping[str, Any], options: CallOptions) -> Any:
        """See `Awaited.value`."""
        del run, key, done, options


@dataclass(frozen=True, slots=True)
class OnApproval(Awaited):
    """For `wait_any`: an approval, with the arguments of `JobContext.approve`; its value is the Decision. If another wait comes
    first, the approval is closed as CANCELLED."""

    kind = APPROVAL
    name: str
    title: str
    payload: Any = None
    expires_in: Duration | None = None
    assignees: tuple[str, ...] | list[str] = ()
    on_expiry: OnExpiry = "fail"
    on_deny: OnDeny = "fail"
    notify: Callable[[ApprovalRequest], Awaitable[None] | None] | None = None

    def check(self) -> None:
        """See `Awaited.check`."""
        check_word(self.on_expiry, "on_expiry", OnExpiry)
        check_word(self.on_deny, "on_deny", OnDeny)
        codec.encode(self.payload, f"the payload of approval '{self.name}'")
        self.question("x", None)

    def question(self, key: str, options: CallOptions | None) -> Question:
        """What is asked, checked."""
        return Question(
            key=key,
            title=check_title(self.title),
            payload=self.payload,
            expires_in=None if self.expires_in is None else check_seconds(self.expires_in, "expires_in"),
            assignees=check_names(self.assignees, "assignees") or (() if options is None else options.assignees),
            on_expiry=self.on_expiry,
            on_deny=self.on_deny,
        )

    async def begin(self, run: Run, key: str, options: CallOptions) -> Wait:
        """See `Awaited.begin`."""
        keep = options.on_change in ("rerun", "keep")
        approval = await approvals.asked(run, self.question(key, options), self.notify, keep_changed=keep)
        return approvals.wait_for(approval)

    async def value(self, run: Run, key: str, done: Mapping[str, Any], options: CallOptions) -> Any:
        """See `Awaited.value`."""
        keep, question = options.on_change in ("rerun", "keep"), self.question(key, options)
        approval = await approvals.recorded_approval(run, question, done, keep_changed=keep)
        return approvals.verdict(run, approval, question)


@dataclass(frozen=True, slots=True)
class OnChild(Awaited):
    """For `wait_any`: the end of a child; its value is what the child returned. name: if it is not given, the key of its call of
    `spawn`. If another wait comes first, the child goes on."""

    kind = CHILD
    child: ChildHandle[Any]
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.child.key)

    def check(self) -> None:
        """See `Awaited.check`."""
        children.id_of(self.child)

    async def enter(self, caller: Caller, options: CallOptions) -> str:
        """See `Awaited.enter`."""
        del options
        return await caller.enter_wait(self.name)

    async def begin(self, run: Run, key: str, options: CallOptions) -> Wait:
        """See `Awaited.begin`."""
        del options
        return await children.begin_wait(run, key, self.child.id)

    async def value(self, run: Run, key: str, done: Mapping[str, Any], options: CallOptions) -> Any:
        """See `Awaited.value`."""
        del key, done, options
        return children.result_of(await children.ended(run, self.child.id), self.child.output_type)


@dataclass(frozen=True, slots=True)
class OnMessage(Awaited):
    """For `wait_any`: messages to the job's agent, as `JobContext.receive` takes them; its value is the list of them.

    channel: of this channel, or None for any. limit: at most so many, 1 to 100. name: if it is not given, the channel, or
    "receive". If another wait comes first, no message is taken."""

    kind = MESSAGE
    channel: str | None = None
    limit: int = 10
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", "receive" if self.channel is None else self.channel)

    def check(self) -> None:
        """See `Awaited.check`."""
        messages.check_limit(self.limit)
        if self.channel is not None:
            check_channel(self.channel)
        check_key(self.name, "name")

    async def begin(self, run: Run, key: str, options: CallOptions) -> Wait:
        """See `Awaited.begin`."""
        del options
        return await opened(run, MESSAGE, key, None, wanted_text(self.channel, self.limit))

    async def answer(self, run: Run, wait: Wait) -> Any:
        """See `Awaited.answer`."""
        return await messages.received(run, wait)

    async def value(self, run: Run, key: str, done: Mapping[str, Any], options: CallOptions) -> Any:
        """See `Awaited.value`."""
        del run, key, options
        return [message_from(record) for record in done["messages"]]


async def wait_any(run: Run, caller: Caller, options: CallOptions, awaited: Sequence[Awaited]) -> First:
    """See `JobContext.wait_any`."""
    if not 1 <= len(awaited) <= MOST or not all(isinstance(one, Awaited) for one in awaited):
        raise InvalidInput(
            f"wait_any takes 1 to {MOST} of OnSignal, OnTime, OnApproval, OnChild and OnMessage",
            hint='OnSignal("paid")',
        )
    for one in awaited:
        one.check()
    if any(one.kind is MESSAGE for one in awaited):
        messages.check_receives(run)
    keys = [await one.enter(caller, options) for one in awaited]
    for one, key in zip(awaited, keys, strict=True):
        done = recorded_answer(run, one.kind, key)
        if done is not None and "closed" not in done:
            return First(one.name, await _value(run, one, key, done, options))
    waits = [await _begun(run, one, key, options) for one, key in zip(awaited, keys, strict=True)]
    tasks = [asyncio.create_task(one.answer(run, wait)) for one, wait in zip(awaited, waits, strict=True)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    place, answer = await _first(run, awaited, waits, tasks)
    done = await _end(run, awaited, waits, place, answer)
    return First(awaited[place].name, await _value(run, awaited[place], keys[place], done, options))


async def _first(
    run: Run, awaited: Sequence[Awaited], waits: Sequence[Wait], tasks: Sequence[asyncio.Task[Any]]
) -> tuple[int, Any]:
    """The place of the first that has ended, and its answer; a time counts last. One whose task was cancelled is read again."""
    for n in sorted(range(len(awaited)), key=lambda n: not awaited[n].kind.answerable):
        if not tasks[n].cancelled():
            return n, tasks[n].result()
        if awaited[n].kind.answerable:
            answer = await awaited[n].answer(run, replace(waits[n], until=run.database_now()))
            if answer is not None:
                return n, answer
    raise Suspended(run.stop_reason)


async def _begun(run: Run, one: Awaited, key: str, options: CallOptions) -> Wait:
    try:
        return await one.begin(run, key, options)
    except StepChanged as changed:
        await refuse(run, options.on_change, one.kind.name, key, changed)


async def _value(run: Run, one: Awaited, key: str, done: Mapping[str, Any], options: CallOptions) -> Any:
    try:
        return await one.value(run, key, done, options)
    except StepChanged as changed:
        await refuse(run, options.on_change, one.kind.name, key, changed)


async def _end(run: Run, awaited: Sequence[Awaited], waits: Sequence[Wait], first: int, answer: Any) -> dict[str, Any]:
    """Record which one came first, and close the others. Returns what is recorded of that one."""
    kind, wait = awaited[first].kind, waits[first]
    done = {"key": wait.key, "kind": wait.kind} | kind.recorded(answer)
    payloads = [done]
    effects = [*kind.closes(wait, answered=True)]
    for one, other in zip(awaited, waits, strict=True):
        if other is not wait:
            subject = {} if other.subject_id is None else {one.kind.subject_field: other.subject_id}
            payloads.append({"key": other.key, "kind": other.kind} | subject | {"closed": True})
            effects += one.kind.closes(other, answered=False)
    await run.record([NewEvent("wait_completed", json.dumps(payload)) for payload in payloads], *effects)
    if run.observer is not None and isinstance(answer, Approval):
        run.observer.approval_decided(run.claimed, answer)
    for other in waits:
        run.history.rows.pop((other.kind, other.key), None)
    return done
