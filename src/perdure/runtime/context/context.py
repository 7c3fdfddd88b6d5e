"""JobContext: what a handler sees. Every call is keyed by name; what is recorded is never done again."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, ParamSpec, TypeVar, overload
from uuid import UUID

import typing_extensions  # comes with pydantic

from perdure.model.actions import ACTION_TYPES, Action, actions_of
from perdure.model.approvals import OnDeny, OnExpiry
from perdure.model.effects import patch_state
from perdure.model.errors import InvalidInput, StepChanged
from perdure.model.events import LIFECYCLE_TYPES, NewEvent
from perdure.model.job_fields import JobFields, snapshot
from perdure.model.messages import Message
from perdure.model.schedules import ScheduledFor, scheduled_for
from perdure.model.timing import Backoff, Duration
from perdure.model.tool_approvals import ApprovalContext
from perdure.model.waits import APPROVAL, SIGNAL, TIMER
from perdure.runtime import codec
from perdure.runtime.context import approvals, signals
from perdure.runtime.context.agent_calls import AgentCalls
from perdure.runtime.context.approvals import ApprovalRequest, Decision
from perdure.runtime.context.call_kinds import STEP
from perdure.runtime.context.calls import Caller
from perdure.runtime.context.changed_code import refuse
from perdure.runtime.context.current_call import idempotency_key_of
from perdure.runtime.context.job_memory import JobMemory
from perdure.runtime.context.lost_answers import ErrorClasses
from perdure.runtime.context.options import DEFAULTS, CallOptions, OnChange, OnUnknown
from perdure.runtime.context.tool_stash import ToolCall, ToolOutputStash
from perdure.runtime.context.wait_any import Awaited, First, wait_any
from perdure.runtime.context.waits import wait_once
from perdure.runtime.context.working_memory import Messages, Variables
from perdure.runtime.job_log import events_of
from perdure.runtime.run import Run
from perdure.runtime.validation import (
    check_key,
    check_names,
    check_seconds,
    check_title,
    check_word,
)

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")
I = TypeVar("I")  # noqa: E741  the child's input
O = TypeVar("O")  # noqa: E741  the child's output
T = typing_extensions.TypeVar("T", default=None)


class JobContext(AgentCalls):
    """The handle of one attempt, given to the handler as its first argument.

    Once the attempt is over (parked, cancelled, handed back, lease lost) every call raises `Suspended`.
    """

    _options: CallOptions = DEFAULTS

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def _caller(self) -> Caller:
        return Caller(self._run)

    # -- the job -------------------------------------------------------------------------------------------------------

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self._run.claimed.id

    @property
    def kind(self) -> str:
        """The handler's name."""
        return self._run.claimed.kind

    @property
    def goal(self) -> str | None:
        """The job's message or title, as given at enqueue."""
        return self._run.claimed.goal

    @property
    def attempt(self) -> int:
        """Counts every claim of the job, from 1."""
        return self._run.lease.attempt

    @property
    def retry_count(self) -> int:
        """Failures and crashes so far; bounded by max_retries."""
        return self._run.claimed.retry_count

    @property
    def scheduled_for(self) -> ScheduledFor | None:
        """The schedule that started the job, and the time that it was for (UTC); None for a job of none, or started by hand."""
        return scheduled_for(self._run.claimed.idempotency_key)

    @property
    def worker_id(self) -> str:
        """The worker that runs this attempt."""
        return self._run.lease.worker_id

    @property
    def last_checkpoint(self) -> Any:
        """What the last `checkpoint` of an earlier attempt saved, as plain JSON; None in a first attempt."""
        return self._run.last_checkpoint

    @property
    def fields(self) -> JobFields:
        """What the caller said of the job: user, title, metadata, time zone, ..."""
        return self._run.history.fields

    async def snapshot(self) -> dict[str, Any]:
        """The job as it is now, as JSON values with the keys of the design document: job_id, state, user_id, title, budget,
        actual_cost, transitions, metadata, ..."""
        run = self._run
        with run.busy():
            job = await run.store.jobs.get_job(run.claimed.id)
            moves = await run.store.jobs.list_events(run.claimed.id, types=sorted(LIFECYCLE_TYPES), limit=1000)
        limits = {} if self._caller.budget is None else self._caller.budget.budget.limits
        return snapshot(job, self.fields, limits, moves)

    @property
    def budget_left(self) -> Mapping[str, Any] | None:
        """What is left of each thing that the job's budget limits (tokens, cost, tool_calls, wall_time, children); None without a
        budget."""
        ledger = self._caller.budget
        return ledger.left if ledger is not None and ledger.has_own else None

    @property
    def approval_context(self) -> ApprovalContext | None:
        """Which tools the job may call by itself, of what the App, the handler and the caller say the strictest; None where
        none of them says anything."""
        return self._caller.approval_context

    @property
    def nudges(self) -> int:
        """How often the job made no progress and was nudged, in all attempts so far; see `Stuck`. A handler may look at it
        between two calls, and try another way."""
        return 0 if self._run.stuck is None else self._run.stuck.nudges

    @property
    def tool_stack(self) -> tuple[ToolCall, ...]:
        """The calls of tools that run now, or wait for a person, the oldest first."""
        return tuple(call.shown() for call in self._caller.tool_stack)

    @property
    def tool_output_stash(self) -> ToolOutputStash:
        """The complete outputs of tools by their tool_call_id, and the state that tools share."""
        return self._caller.stash

    def for_message(self, message: Message | None) -> JobContext:
        """The same context, whose `message` is this one."""
        other = self.options()
        other._message = message
        return other

    # -- options -------------------------------------------------------------------------------------------------------

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
    ) -> JobContext:
        """The same context with other options for the calls made through it.

        retries: how often a function that raised is called again in this attempt, after `backoff`. timeout: seconds of one call.
        key: distinguishes parallel calls of one name. on_change: what to do when a recorded call comes with other arguments or
        as another kind: "wait" for code that fits, "fail", "keep" the recorded result, "rerun" the step; by default what the
        handler's policy says. on_unknown: for tools, see `tool`. unknown_on, known_on:
        classes of errors after which a tool may have had its effect, or had not, in addition to those of the usual clients.
        assignees: who may answer the question about a tool whose outcome is unknown, and decide approvals that name no
        assignees of their own; by default every person. tokens, cost: what one call may use at most; a job with a budget sets
        it aside before the call. tool_call_id: the model's id of a call of a tool, under which `tool_output_stash` keeps the
        complete output. Raises InvalidInput.
        """
        other = JobContext(self._run)
        other._caller = self._caller  # it counts how often a name was used
        other._message = self._message
        other._options = self._options.changed(
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
        return other

    def _keyed(self, key: str | None) -> CallOptions:
        return self._options if key is None else self.options(key=key)._options

    # -- steps and tools -----------------------------------------------------------------------------------------------

    @overload
    async def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run `fn(*args, **kwargs)` once and record what it returned; a later attempt gets the record instead.

        Guarantee: at least once until it returns, recorded exactly once, never again after that. Plain functions run in a
        thread. The result must be JSON (or dataclass, pydantic model, TypedDict: annotate the return type). A name used
        again is `name#2`; give parallel calls `options(key=...)`.
        Raises what `fn` raises, StepChanged, NotJson, TooLarge.
        """
        return await self._caller.call(STEP, self._options, name, fn, args, kwargs)

    @overload
    async def tool(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def tool(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def tool(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Like `step`, for side effects: `tool_called` is durable before the call, `tool_returned` after it.

        A call that was cut off (crash, cancellation, timeout) leaves its outcome unknown, and is never silently repeated.
        options(on_unknown=): "ask" a person (default; the job waits for approval), "retry" (the effect is idempotent, or
        honours `idempotency_key()`), or "fail" (UnknownOutcome). A tool that raises has a known outcome and may be called
        again, unless the error is one of lost answers: of connections, timeouts or the protocol. Where the job has an
        `ApprovalContext`, a person may be asked before the call. Raises what `fn` raises, ToolNotAllowed, Denied, StepChanged,
        UnknownOutcome, NotJson, TooLarge.
        """
        return await self._caller.call_tool(self._options, name, fn, args, kwargs)

    # -- waits ---------------------------------------------------------------------------------------------------------

    async def sleep(self, name: str, duration: Duration) -> None:
        """Wait `duration` (seconds or text such as "1h") of database time. Longer than a moment, it parks the job and frees
        the worker; a restart does not begin it again. Raises InvalidInput for a bad duration, StepChanged."""
        key = await self._caller.enter(TIMER.name, name, self._options)
        await wait_once(self._run, TIMER, key, duration=duration)

    async def sleep_until(self, name: str, moment: datetime) -> None:
        """As `sleep`, until a moment (timezone-aware). A moment that has passed is fine. Raises InvalidInput."""
        if moment.tzinfo is None:
            raise InvalidInput("sleep_until needs a timezone-aware datetime", hint="datetime(..., tzinfo=UTC)")
        await self.sleep(name, max(0.0, self._run.seconds_until(moment.astimezone(UTC))))

    async def approve(
        self,
        name: str,
        *,
        title: str,
        payload: T = None,  # type: ignore[assignment]  # None is the payload of an approval that shows nothing
        expires_in: Duration | None = None,
        assignees: tuple[str, ...] | list[str] = (),
        on_expiry: OnExpiry = "fail",
        on_deny: OnDeny = "fail",
        notify: Callable[[ApprovalRequest], Awaitable[None] | None] | None = None,
    ) -> Decision[T]:
        """Ask a person, and wait for the answer without holding a worker. Survives restarts; decided once, first commit wins.

        payload: what is to be approved (JSON, dataclass or model); the decider may edit it, so go on with `decision.payload`.
        expires_in: after that, by itself: on_expiry "fail" the job, "deny", or "continue" with approved=False.
        on_deny: "fail" the job (default) or "resume": `Denied` is raised here.
        assignees: who may decide by id; the holder of the link may always. notify: called with the request and its token, at
        least once and usually exactly once; the token exists nowhere else.
        Raises Denied, StepChanged (another payload than was asked for), InvalidInput, NotJson, TooLarge.
        """
        who = check_names(assignees, "assignees") or self._options.assignees
        check_word(on_expiry, "on_expiry", OnExpiry)
        check_word(on_deny, "on_deny", OnDeny)
        question = approvals.Question(
            key=await self._caller.enter(APPROVAL.name, name, self._options),
            title=check_title(title),
            payload=payload,
            expires_in=None if expires_in is None else check_seconds(expires_in, "expires_in"),
            assignees=who,
            on_expiry=on_expiry,
            on_deny=on_deny,
        )
        keep_changed = self._options.on_change in ("rerun", "keep")
        try:
            return await approvals.approve(self._run, question, notify, keep_changed=keep_changed)
        except StepChanged as changed:
            await refuse(self._run, self._options.on_change, APPROVAL.name, question.key, changed)

    @overload
    async def wait_signal(self, key: str, model: type[M], *, timeout: Duration | None = None) -> M: ...
    @overload
    async def wait_signal(self, key: str, model: None = None, *, timeout: Duration | None = None) -> Any: ...
    async def wait_signal(self, key: str, model: Any = None, *, timeout: Duration | None = None) -> Any:
        """Wait for a signal of this key (see `Jobs.signal`) and return its payload, as plain JSON or as `model`.

        Survives restarts. A signal is taken once; of several the oldest comes first; one that came before the wait is taken at
        once. The second wait for a key is `key#2`; parallel ones need options(key=...). One whose payload does not fit the model
        is set aside (`signal_refused` in the log says why), and the wait goes on. Raises SignalTimeout if none came within
        `timeout`, also in a replay; InvalidInput, StepChanged.
        """
        wait_key = await self._caller.enter(SIGNAL.name, check_key(key, "key"), self._options)
        limit = None if timeout is None else check_seconds(timeout, "timeout")
        return await signals.wait_signal(self._run, wait_key, key, model, limit)

    async def wait_any(self, *waits: Awaited) -> First:
        """Begin several waits, and return the first that ends, with its name and value; the others are closed. A replay gets the
        same one.

        waits: `OnSignal(key, model)`, `OnTime(name, duration)`, `OnApproval(name, title=...)`, `OnChild(child)`,
        `OnMessage(channel)`. Of several that have come the one given first counts, and a time last. What a closed wait was for is
        not used up: a signal or message that came for it stays pending; an approval is closed as CANCELLED; a child goes on.
        Raises what the wait raises that came first, such as Denied; InvalidInput, StepChanged.
        """
        return await wait_any(self._run, self._caller, self._options, waits)

    # -- working memory ------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> Messages:
        """The conversation of the job with a model. Durable, and the same at each line in a replay."""
        return Messages(self._caller.working, self._options.key)

    @property
    def vars(self) -> Variables:
        """The variables of the job. Durable, and the same at each line in a replay."""
        return Variables(self._caller.working, self._options.key)

    async def actions(self) -> list[Action]:
        """What the job did so far: the calls of its tools in all attempts, in order. Read from the log; no step."""
        await self._run.enter()
        with self._run.busy():
            return actions_of(await events_of(self._run.store, self._run.claimed.id, ACTION_TYPES))

    # -- memory --------------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> JobMemory:
        """Long-term memory: what the job writes there, other jobs find. Each call is a step."""
        return JobMemory(self._run, self._caller, self._options)

    # -- state ---------------------------------------------------------------------------------------------------------

    async def checkpoint(self, state: Any) -> None:
        """Save JSON state durably; a later attempt finds it in `last_checkpoint`. Raises NotJson, TooLarge."""
        await self._run.enter()
        text = codec.encode(state, "the checkpoint")
        event = NewEvent("checkpoint_saved", f'{{"state":{text}}}')
        await self._run.record([event], patch_state(checkpoint=text))
        self._run.last_checkpoint = json.loads(text)

    async def progress(self, fraction: float, text: str | None = None) -> None:
        """Say how far the job is: 0.0 to 1.0 and a short text. Cheap: the latest figure is written a few times a second. While an
        attempt replays, the figure does not go back. Raises InvalidInput for a fraction outside 0..1."""
        await self._caller.reports.progress(fraction, text)

    async def emit(self, type: str, payload: Any = None) -> None:
        """Write an event of your own into the job's log, once: the second event of a type has the key `type#2`, and what is
        written under a key is not written again by a replay; parallel branches give options(key=...). Inside the function of a
        step or tool every call counts. Raises InvalidInput for a type perdure reserves; NotJson; TooLarge."""
        await self._caller.reports.emit(self._options.key, type, payload)

    async def usage(self, *, tokens: int = 0, cost: Decimal | float | str = 0) -> None:
        """Add tokens (whole) and cost (in your currency; exact, a float counts as it is printed) to the job's account, durably
        and once: calls have the keys `usage`, `usage#2`, ..., parallel branches give options(key=...), and what is counted under
        a key is not counted again by a replay. Inside the function of a step or tool every call counts. Raises InvalidInput
        unless each is 0 to 10^15, the cost with at most 30 digits after the point."""
        await self._caller.reports.usage(self._options.key, tokens, cost)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def idempotency_key(self, name: str, *, kind: Literal["tool", "step"] = "tool") -> str:
        """The key that a tool (or step) of this exact key hands out: hash of job and call, the same in every attempt."""
        check_word(kind, "kind", Literal["tool", "step"])
        return idempotency_key_of(self.job_id, kind, name)


def run_of(ctx: JobContext) -> Run:
    """The attempt behind a context: for handlers of perdure's own, which write records that a context has no call for."""
    return ctx._run
