"""Keyed calls of functions: one body for steps and tools.

A call that is recorded returns its record. Any other is made, as often as its options allow, and what it returned is recorded. A
tool also records that it is about to be called: only so can a later attempt know that it may have happened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, NamedTuple

from perdure.model.effects import Effect
from perdure.model.errors import (
    Denied,
    Fail,
    InvalidInput,
    Retry,
    Snooze,
    StepChanged,
    ToolNotAllowed,
    UnknownOutcome,
)
from perdure.model.events import NewEvent
from perdure.model.jobs import MAX_JSON_BYTES
from perdure.model.tool_approvals import ApprovalContext
from perdure.model.waits import APPROVAL, CHILD, kind_of
from perdure.runtime import codec
from perdure.runtime.context.approvals import ask_what_happened
from perdure.runtime.context.budget import Hold, ledger_of
from perdure.runtime.context.call_kinds import STEP, TOOL, Call, CallKind, tool_event
from perdure.runtime.context.changed_code import refuse
from perdure.runtime.context.current_call import RunningCall, idempotency_key_of, running_call
from perdure.runtime.context.lost_answers import outcome_known
from perdure.runtime.context.messages import Mail
from perdure.runtime.context.names import Keys
from perdure.runtime.context.options import CallOptions
from perdure.runtime.context.reports import Reports
from perdure.runtime.context.session import Session
from perdure.runtime.context.tool_gate import Asked, admit, context_of_run
from perdure.runtime.context.tool_stash import MOST_OUTPUT, OpenCall, Stored, ToolOutputStash
from perdure.runtime.context.working_memory import WorkingMemory
from perdure.runtime.history import NO_HISTORY
from perdure.runtime.raised import rebuilt
from perdure.runtime.registry import in_time, retry_after, returned_type
from perdure.runtime.run import Run
from perdure.runtime.shown_arguments import shown_arguments, shown_text


class Caller:
    """Makes the keyed calls of one attempt."""

    __slots__ = ("__dict__", "_keys", "_mail", "_reports", "_run", "_session", "_stash", "_working", "budget")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._keys = Keys()
        self._reports: Reports | None = None
        self._mail: Mail | None = None
        self._session: Session | None = None
        self._working: WorkingMemory | None = None
        self._stash: ToolOutputStash | None = None
        self.budget = ledger_of(run)
        """What the job may use and has used, if it has a budget."""

    @property
    def reports(self) -> Reports:
        """What the handler reports, with keys that are counted together with these calls."""
        if self._reports is None:
            self._reports = Reports(self._run, self._keys, self.budget)
        return self._reports

    @property
    def session(self) -> Session:
        """The state of the job's session. Raises InvalidInput."""
        if self._session is None:
            self._session = Session(self._run, self._keys)
        return self._session

    @cached_property
    def tool_stack(self) -> list[OpenCall]:
        """The calls of tools that run now."""
        return []

    @property
    def stash(self) -> ToolOutputStash:
        """What the tools of the job have returned and share."""
        if self._stash is None:
            self._stash = ToolOutputStash(self._run)
        return self._stash

    @cached_property
    def approval_context(self) -> ApprovalContext | None:
        """Which tools the job may call; None if nothing was said of it."""
        return context_of_run(self._run)

    @property
    def working(self) -> WorkingMemory:
        """The conversation and the variables of the job."""
        if self._working is None:
            self._working = WorkingMemory(self._run, self._keys)
        return self._working

    @property
    def mail(self) -> Mail:
        """The messages that the handler sends and receives."""
        if self._mail is None:
            self._mail = Mail(self._run, self._keys)
        return self._mail

    async def enter(self, kind: str, name: str, options: CallOptions) -> str:
        """Begin a keyed call of this kind; returns its key. Raises Suspended if the attempt may not go on, InvalidInput for a bad
        name, StepChanged for a key that is recorded as another kind alone."""
        run = self._run
        if run.must_enter:
            await run.enter()
        key = self._keys.next(kind, name, options.key)
        if run.history.unmet:
            other = run.history.meet(kind, key)
            if other is not None and options.on_change not in ("rerun", "keep"):
                await refuse(run, options.on_change, kind, key, _another_kind(key, other, kind))
        return key

    async def enter_wait(self, name: str) -> str:
        """Begin a wait for children: its key is `name`, or with `#wait2`, `#wait3`, ... from its second use."""
        run = self._run
        if run.must_enter:
            await run.enter()
        key = self._keys.again(CHILD.name, name)
        if run.history.unmet:
            run.history.meet(CHILD.name, key)
        return key

    async def call(
        self,
        kind: CallKind,
        options: CallOptions,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """See `JobContext.step` and `JobContext.tool`."""
        run = self._run
        key = await self.enter(kind.noun, name, options)
        call = Call(key, codec.digest(args, kwargs), fn, args, kwargs)
        returns = returned_type(fn)
        if run.history is not NO_HISTORY:
            for asked in run.history.asked_tools.get(key, ()) if kind.has_side_effect else ():
                run.history.meet(APPROVAL.name, asked)
            try:
                answer = await self._recorded(kind, call, options, returns)
            except StepChanged as changed:
                await refuse(run, options.on_change, kind.noun, key, changed)
            if answer is not None:
                return answer.value
        what = f"the result of {kind.noun} '{key}'"
        codec.check_type(returns, what)
        if kind.has_side_effect and (self.approval_context is not None or key in run.history.asked_tools):
            call = call._replace(granted=await self._admitted(kind, call, name, options))
        hold = None if self.budget is None else await self.budget.admit(kind.noun, key, options.estimate)
        branch = run.begin_work()  # as `with run.busy()`, which takes longer
        try:
            started = time.monotonic() if kind.has_side_effect else run.steps.began(key)
            try:
                if run.observer is None:
                    value, count = await self._with_retries(kind, call, options, hold)
                else:
                    work = self._with_retries(kind, call, options, hold)
                    value, count = await run.observer.call(run.claimed, kind.noun, key, work)
            finally:
                if not kind.has_side_effect:
                    run.steps.ended(key)
            stashed, call_id = None, options.tool_call_id if kind.has_side_effect else None
            try:
                result = codec.encode(value, what, most=MAX_JSON_BYTES if call_id is None else MOST_OUTPUT)
                if call_id is not None:
                    stashed = await self.stash.keep(call_id, result)
            except InvalidInput as error:
                self._add_failure(kind, call, error)
                if hold is not None:
                    await run.record(hold.after_call(), *hold.effects_after())
                raise
            kept = result if stashed is None else stashed[0]
            event = kind.returned(call, kept, count, int((time.monotonic() - started) * 1000))
            if self._stash is not None:
                self._stash.recorded(event, (kind.noun, key), {} if stashed is None else stashed[1])
            if (around := _around(run)) is not None:  # a replay does not come to it: the other one is answered
                event.payload = f'{event.payload[:-1]},"inside":{codec.quoted(around[1])}}}'
            events = [event] if self._working is None else [event, *self._working.of_call(kind.noun, key, count)]
            if hold is None:
                await run.record_busy(events)
            else:
                await run.record_busy([*events, *hold.after_call()], *hold.effects_after())
            if self._working is not None:
                self._working.committed(kind.noun, key)
        finally:
            if hold is not None:
                hold.end()
            run.end_work(branch)
        return codec.round_trip(value, result, returns, what)

    async def call_tool(
        self, options: CallOptions, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """See `JobContext.tool`."""
        if self._stash is not None and self._stash.ids:
            args, kwargs = await self._stash.resolved(args, kwargs)
        opened = OpenCall(name, options.tool_call_id, fn, args, kwargs)
        self.tool_stack.append(opened)
        try:
            return await self.call(TOOL, options, name, fn, args, kwargs)
        finally:
            self.tool_stack.remove(opened)

    async def commit(
        self,
        options: CallOptions,
        name: str,
        args: tuple[Any, ...],
        make: Callable[[], Awaitable[tuple[Any, Sequence[Effect]]]],
    ) -> Any:
        """A step that does nothing but write: what `make` returns is its result (JSON), and effects that commit together with
        its record. args: what its digest is made of."""
        run = self._run
        key = await self.enter(STEP.noun, name, options)
        call = Call(key, codec.digest(args, {}), make, args, {})
        if run.history is not NO_HISTORY:
            try:
                answer = await self._recorded(STEP, call, options, None)
            except StepChanged as changed:
                await refuse(run, options.on_change, STEP.noun, key, changed)
            if answer is not None:
                return answer.value
        with run.busy():
            started = time.monotonic()
            value, effects = await make()
            result = codec.encode(value, f"the result of step '{key}'")
            ms = int((time.monotonic() - started) * 1000)
            await run.record_busy([STEP.returned(call, result, 1, ms)], *effects)
        return value

    async def _recorded(self, kind: CallKind, call: Call, options: CallOptions, returns: Any) -> _Answer | None:
        """What an earlier attempt recorded of this call; None if it is to be made. Raises the failure that was recorded,
        StepChanged."""
        run, of = self._run, (kind.noun, call.key)
        failure = run.history.failures.get(of)
        if failure is not None and not _runs_again(kind, call, failure["digest"], options):
            if run.observer is not None:
                run.observer.replayed(run.claimed, *of)
            error = rebuilt(failure["raised"])
            run.failures.add_replayed(*of, error, inside=_around(run))
            raise error
        recorded = run.history.finished.get(of)
        if recorded is None and options.on_change == "keep":
            recorded = run.history.finished.get(("tool" if kind is STEP else "step", call.key))
        if recorded is not None and not _runs_again(kind, call, recorded["digest"], options):
            if run.observer is not None:
                run.observer.replayed(run.claimed, *of)
            if run.history.noted:
                self.working.replayed(*of)
            text = None
            if run.history.stashed:
                self.stash.replayed(recorded)
                text = await self.stash.read(Stored(**recorded["stored"])) if "stored" in recorded else None
            text = json.dumps(recorded["result"]) if text is None else text
            return _Answer(codec.decode(text, returns, f"the recorded result of {kind.noun} '{call.key}'"))
        if kind.has_side_effect and (earlier := run.history.tools.get(call.key)) is not None and earlier.open:
            return await self._resolve_unknown(call, earlier.count, options, returns)
        return None

    async def _admitted(self, kind: CallKind, call: Call, name: str, options: CallOptions) -> str:
        """Wait until this call of a tool may be made. Raises ToolNotAllowed, Denied, Suspended."""
        asked = Asked(name, call.key, call.digest, call.fn, call.args, call.kwargs)
        try:
            return await admit(self._run, self.approval_context, asked, options.assignees)
        except ToolNotAllowed as error:
            self._add_failure(kind, call, error)
            raise

    async def admit_task(self, noun: str, call: Asked, options: CallOptions) -> str:
        """As `_admitted`, for a coding CLI that is to be run as a child; a recorded refusal is raised again."""
        run, of = self._run, (noun, call.key)
        failure = run.history.failures.get(of)
        if failure is not None and failure["digest"] == call.digest:
            error = rebuilt(failure["raised"])
            run.failures.add_replayed(*of, error, inside=_around(run))
            raise error
        if self.approval_context is None and call.key not in run.history.asked_tools:
            return ""
        try:
            return await admit(run, self.approval_context, call, options.assignees)
        except ToolNotAllowed as error:
            run.failures.add(*of, call.digest, error, inside=_around(run))
            raise

    def _add_failure(self, kind: CallKind, call: Call, error: Exception) -> None:
        self._run.failures.add(kind.noun, call.key, call.digest, error, inside=_around(self._run))

    async def _with_retries(
        self, kind: CallKind, call: Call, options: CallOptions, hold: Hold | None
    ) -> tuple[Any, int]:
        """What the function returned, and how often it was called."""
        run = self._run
        for earlier in range(options.retries + 1):
            first: list[NewEvent] = [] if hold is None else hold.before_call(earlier + 1)
            if kind.has_side_effect:
                own_key = idempotency_key_of(run.lease.job_id, kind.noun, call.key)
                shown = shown_text(call.fn, call.args, call.kwargs)
                first.append(
                    tool_event("tool_called", call, call.granted + f'"idempotency_key":"{own_key}","input":{shown}')
                )
            if first:
                await run.record(first, *(() if hold is None else hold.effects_before(earlier + 1)))
            try:
                return await self._once(kind, call, options, earlier + 1), earlier + 1
            except Exception as error:
                last = earlier == options.retries or isinstance(error, Fail | Snooze | Denied)
                known = not kind.has_side_effect or outcome_known(error, options.unknown_on, options.known_on)
                event = kind.failed(call, error, earlier + 1, last=last) if known else None
                events: list[NewEvent] = [] if event is None else [event]
                if hold is not None and known:
                    events += hold.after_call()
                    last = last or not hold.again()
                freed = hold.effects_after() if hold is not None and known and last else ()
                if events or freed:
                    await run.record(events, *freed)
                if last or not known:
                    self._add_failure(kind, call, error)
                    raise
                asked = error.after if isinstance(error, Retry) else retry_after(error)
                with nullcontext() if run.stuck is None else run.stuck.sleeping():
                    await run.clock.sleep(options.backoff.delay(earlier) if asked is None else asked)
        raise AssertionError("unreachable")

    async def _once(self, kind: CallKind, call: Call, options: CallOptions, number: int) -> Any:
        run = self._run
        run.check_lease()
        running = RunningCall(run.lease, kind.noun, call.key, number, None, running_call.get(None))
        token = running_call.set(running)
        try:
            work = run.call(call.fn, call.args, call.kwargs, run.threads)
            if options.timeout is not None:
                work = in_time(work, run.clock, options.timeout, f"'{call.key}'")
            value = await work
            if running.state is not None:
                self.stash.was_set(kind.noun, call.key, running.state)
            return value
        finally:
            running_call.reset(token)

    async def _resolve_unknown(self, call: Call, count: int, options: CallOptions, returns: Any) -> _Answer | None:
        """What a person says that the tool returned; None for "run it again"."""
        if options.on_unknown == "retry":
            return None
        if options.on_unknown == "fail":
            raise UnknownOutcome(
                f"tool '{call.key}' was cut off: whether it happened is unknown, and on_unknown is 'fail'"
            )
        shown = {
            "arguments": shown_arguments(call.fn, call.args, call.kwargs),
            "idempotency_key": idempotency_key_of(self._run.lease.job_id, TOOL.noun, call.key),
        }
        answer = await ask_what_happened(self._run, call.key, count, shown, returns, options.assignees)
        if answer is None:
            return None
        result, value = answer
        event = tool_event("tool_returned", call, f'"result":{result},"answered":true')
        if options.tool_call_id is not None:
            self.stash.recorded(event, (TOOL.noun, call.key), {"call_id": options.tool_call_id})
        await self._run.record([event])
        return _Answer(value)


class _Answer(NamedTuple):
    value: Any


_NOUNS = {"step": "a step", "tool": "a tool", "spawn": "a child", "signals": "signals that were taken"}


def _another_kind(key: str, recorded: str, called: str) -> StepChanged:
    was, now = (_NOUNS.get(kind) or kind_of(kind).noun for kind in (recorded, called))
    return StepChanged(
        f"'{key}' was recorded as {was} and is called as {now} now",
        hint='give it another name, or call it with options(on_change="rerun")',
    )


def _around(run: Run) -> tuple[str, str] | None:
    """The call of this attempt whose function makes a call."""
    outer = running_call.get(None)
    return None if outer is None or outer.lease != run.lease else (outer.kind, outer.key)


def _runs_again(kind: CallKind, call: Call, recorded: str, options: CallOptions) -> bool:
    """Whether a call that is recorded is made again, as its arguments changed. recorded: their digest. Raises StepChanged."""
    if recorded == call.digest or options.on_change == "keep":
        return False
    if options.on_change == "rerun":
        return True
    raise StepChanged(
        f"{kind.noun} '{call.key}' was recorded with other arguments than it is called with now",
        hint='rename it, or call it with options(on_change="rerun") or options(on_change="keep")',
    )
