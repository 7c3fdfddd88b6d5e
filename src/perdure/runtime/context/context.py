"""JobContext: what a handler sees. Every call is keyed by name; what is recorded is never done again."""

from __future__ import annotations

import contextvars
import functools
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, ParamSpec, TypeVar, overload
from uuid import UUID

import typing_extensions  # comes with pydantic

from perdure.model.approvals import OnDeny, OnExpiry
from perdure.model.effects import patch_state
from perdure.model.errors import Denied, Fail, InvalidInput, Retry, Snooze, StepChanged, UnknownOutcome
from perdure.model.events import NewEvent
from perdure.model.timing import Backoff, Duration
from perdure.model.waits import TIMER
from perdure.runtime import codec
from perdure.runtime.context import approvals as asking
from perdure.runtime.context.approvals import ApprovalRequest, Decision
from perdure.runtime.context.waits import wait_once
from perdure.runtime.observer import Call
from perdure.runtime.outcomes import describe
from perdure.runtime.registry import in_time, retry_after, returned_type
from perdure.runtime.run import Run
from perdure.runtime.validation import (
    check_backoff,
    check_event_type,
    check_names,
    check_retries,
    check_seconds,
    check_title,
    check_usage,
    check_word,
)

P = ParamSpec("P")
R = TypeVar("R")
T = typing_extensions.TypeVar("T", default=None)

OnChange = Literal["fail", "rerun", "keep"]
"""What happens if a recorded call comes with other arguments: the job fails, the call runs again, its record is kept."""
OnUnknown = Literal["ask", "retry", "fail"]
"""What happens to a tool whose outcome is unknown: a person is asked, it is called again, or the job fails."""

_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_TAKEN = re.compile(r"#\d+$|\[.*\]$")

_call: contextvars.ContextVar[tuple[UUID, str]] = contextvars.ContextVar("perdure_call")


def current_call() -> tuple[UUID, str]:
    """The job and the key of the step or tool call this code runs in. Raises LookupError outside."""
    return _call.get()


def idempotency_key() -> str:
    """The key of the step or tool call this code runs in: stable across retries, crashes and workers.

    Give it to the other side (an `Idempotency-Key` header) and the effect happens once. Raises LookupError outside.
    """
    try:
        return _key_of(*_call.get())
    except LookupError:
        raise LookupError("idempotency_key() is known only inside a function given to ctx.step or ctx.tool") from None


def _key_of(job_id: UUID, key: str) -> str:
    return hashlib.sha256(f"{job_id}:{key}".encode()).hexdigest()[:32]


@functools.lru_cache(maxsize=1024)
def _check_name(name: str) -> None:
    if not name or len(name) > 200 or _UNSTORABLE.search(name):
        raise InvalidInput(f"a step name is 1 to 200 whole characters without NUL, got {name!r}")
    if _TAKEN.search(name):
        raise InvalidInput(f"step name {name!r} ends like a repeat ('#2') or a key ('[...]'): choose another")


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How one keyed call behaves; see `JobContext.options`."""

    retries: int = 0
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float | None = None
    key: str | None = None
    on_change: OnChange = "fail"
    on_unknown: OnUnknown = "ask"


DEFAULTS = CallOptions()


class JobContext:
    """The handle of one attempt, given to the handler as its first argument.

    Once the attempt is over (parked, cancelled, handed back, lease lost) every call raises `Suspended`.
    """

    def __init__(self, run: Run, options: CallOptions | None = None, counts: dict[str, int] | None = None) -> None:
        self._run = run
        self._options = options or DEFAULTS
        self._counts = {} if counts is None else counts

    # -- who am I ------------------------------------------------------------------------------------------------------

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
    def worker_id(self) -> str:
        """The worker that runs this attempt."""
        return self._run.lease.worker_id

    @property
    def last_checkpoint(self) -> Any:
        """What the last `checkpoint` of an earlier attempt saved, as plain JSON; None in a first attempt."""
        return self._run.last_checkpoint

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
    ) -> JobContext:
        """The same context with other options for the calls made through it.

        retries: further tries of a step inside this attempt, after `backoff`. timeout: seconds per try. key: tells parallel
        calls of one name apart. on_change: what to do when a recorded call comes with other arguments: "fail" naming it,
        "keep" the recorded result, "rerun" the step. on_unknown: for tools, see `tool`. Raises InvalidInput.
        """
        if key is not None and (len(str(key)) > 400 or _UNSTORABLE.search(str(key))):
            raise InvalidInput(f"a key is text of at most 400 whole characters without NUL, got {key!r:.120}")
        given: dict[str, Any] = {"key": key, "on_change": on_change, "on_unknown": on_unknown}
        given["retries"] = None if retries is None else check_retries(retries, "retries", most=1000)
        given["backoff"] = None if backoff is None else check_backoff(backoff)
        given["timeout"] = None if timeout is None else check_seconds(timeout, "timeout")
        changed = replace(self._options, **{k: v for k, v in given.items() if v is not None})
        check_word(changed.on_change, "on_change", OnChange)
        check_word(changed.on_unknown, "on_unknown", OnUnknown)
        return JobContext(self._run, changed, self._counts)

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
        run = self._run
        if run.hindered:
            await run.enter()
        key = self._key(name)
        told = codec.digest(args, kwargs)
        returns = returned_type(fn)
        found = run.history.finished.get(key)
        if found is not None and not self._changed("step", key, found["digest"], told):
            self._replayed("step", key)
            return codec.decode(json.dumps(found["result"]), returns, f"the recorded result of step '{key}'")
        what = f"the result of step '{key}'"
        codec.check_type(returns, what)
        working = run.begin_work()  # as `with run.busy()`, which takes longer
        try:
            started = run.steps[key] = time.monotonic()
            try:
                if run.observer is None and self._options.retries == 0:
                    value, tries = await self._call(key, fn, args, kwargs), 1
                else:
                    value, tries = await self._observed("step", key, self._tries(key, fn, args, kwargs))
            finally:
                run.steps.pop(key, None)
            result = codec.encode(value, what)
            ms = int((time.monotonic() - started) * 1000)
            payload = f'{{"key":{codec.quoted(key)},"digest":"{told}","ms":{ms},"tries":{tries},"result":{result}}}'
            await run.record_busy([NewEvent("node_finished", payload)])
        finally:
            run.end_work(working)
        return codec.round_trip(value, result, returns, what)

    async def _tries(
        self, key: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, int]:
        options = self._options
        for tried in range(options.retries + 1):
            try:
                return await self._call(key, fn, args, kwargs), tried + 1
            except Exception as error:
                payload = json.dumps({"key": key, "try": tried + 1, "error": describe(error)})
                if tried == options.retries or isinstance(error, Fail | Snooze | Denied):
                    raise
                await self._run.record([NewEvent("step_failed", payload)])
                asked = error.after if isinstance(error, Retry) else retry_after(error)
                await self._run.clock.sleep(options.backoff.delay(tried) if asked is None else asked)
        raise AssertionError("unreachable")

    async def _call(self, key: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        token = _call.set((self._run.lease.job_id, key))
        try:
            work = self._run.call(fn, args, kwargs, self._run.threads)
            if self._options.timeout is None:
                return await work
            return await in_time(work, self._run.clock, self._options.timeout, f"'{key}'")
        finally:
            _call.reset(token)

    def _observed(self, what: Call, key: str, work: Awaitable[R]) -> Awaitable[R]:
        observer = self._run.observer
        return work if observer is None else observer.call(self._run.claimed, what, key, work)

    def _replayed(self, what: Call, key: str) -> None:
        if self._run.observer is not None:
            self._run.observer.replayed(self._run.claimed, what, key)

    @overload
    async def tool(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def tool(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def tool(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Like `step`, for side effects: `tool_called` is durable before the call, `tool_returned` after it.

        A call that was cut off (crash, cancellation, timeout) leaves its outcome unknown, and is never silently repeated.
        options(on_unknown=): "ask" a person (default; the job waits for approval), "retry" (the effect is idempotent, or
        honours `idempotency_key()`), or "fail" (UnknownOutcome). A tool that raises has a known outcome: it may be called
        again. Raises what `fn` raises, StepChanged, UnknownOutcome, NotJson, TooLarge.
        """
        await self._run.enter()
        key = self._key(name)
        told = codec.digest(args, kwargs)
        returns = returned_type(fn)
        found = self._run.history.finished.get(key)
        if found is not None and not self._changed("tool", key, found["digest"], told):
            self._replayed("tool", key)
            return codec.decode(json.dumps(found["result"]), returns, f"the recorded result of tool '{key}'")
        calls = self._run.history.tools.get(key)
        if calls is not None and calls.open:
            answer = await self._resolve_unknown(key, calls.count, args, returns)
            if answer is not None:
                await self._tool_event("tool_returned", key, told, f'"result":{answer[0]},"answered":true')
                return answer[1]
        codec.check_type(returns, f"the result of tool '{key}'")
        with self._run.busy():
            value = await self._observed("tool", key, self._try_tool(key, told, fn, args, kwargs))
            result = codec.encode(value, f"the result of tool '{key}'")
            await self._tool_event("tool_returned", key, told, f'"result":{result}')
        return codec.round_trip(value, result, returns, f"the result of tool '{key}'")

    async def _try_tool(
        self, key: str, told: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        for tried in range(self._options.retries + 1):
            await self._tool_event("tool_called", key, told, f'"idempotency_key":"{self._idempotency_key(key)}"')
            try:
                return await self._call(key, fn, args, kwargs)
            except TimeoutError:
                raise  # cut off by us or by the other side: the outcome is unknown
            except Exception as error:
                await self._tool_event("tool_failed", key, told, f'"error":{json.dumps(describe(error))}')
                if tried == self._options.retries or isinstance(error, Fail | Snooze | Denied):
                    raise
                asked = error.after if isinstance(error, Retry) else retry_after(error)
                await self._run.clock.sleep(self._options.backoff.delay(tried) if asked is None else asked)
        raise AssertionError("unreachable")

    async def _tool_event(self, type: str, key: str, told: str, rest: str) -> None:
        await self._run.record([NewEvent(type, f'{{"key":{json.dumps(key)},"digest":"{told}",{rest}}}')])

    async def _resolve_unknown(
        self, key: str, calls: int, args: tuple[Any, ...], returns: Any
    ) -> tuple[str, Any] | None:
        """What a person says it returned, as JSON and decoded, or None for "run it again"."""
        if self._options.on_unknown == "retry":
            return None
        if self._options.on_unknown == "fail":
            raise UnknownOutcome(f"tool '{key}' was cut off: whether it happened is unknown, and on_unknown is 'fail'")
        return await asking.ask_what_happened(self._run, key, calls, args, returns)

    # -- waits ---------------------------------------------------------------------------------------------------------

    async def sleep(self, name: str, duration: Duration) -> None:
        """Wait `duration` (seconds or text such as "1h") of database time. Longer than a moment, it parks the job and frees
        the worker; a restart does not begin it anew. Raises InvalidInput for a bad duration, StepChanged."""
        await self._run.enter()
        await wait_once(self._run, TIMER, self._key(name), duration=duration)

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
        await self._run.enter()
        who = check_names(assignees, "assignees")
        check_word(on_expiry, "on_expiry", OnExpiry)
        check_word(on_deny, "on_deny", OnDeny)
        key = self._key(name)
        return await asking.approve(
            self._run,
            asking.Question(
                key=key,
                title=check_title(title),
                payload=payload,
                expires_in=None if expires_in is None else check_seconds(expires_in, "expires_in"),
                assignees=who,
                on_expiry=on_expiry,
                on_deny=on_deny,
            ),
            notify,
            keep_changed=self._options.on_change != "fail",
        )

    # -- state ---------------------------------------------------------------------------------------------------------

    async def checkpoint(self, state: Any) -> None:
        """Save JSON state durably; a later attempt finds it in `last_checkpoint`. Raises NotJson, TooLarge."""
        await self._run.enter()
        text = codec.encode(state, "the checkpoint")
        event = NewEvent("checkpoint_saved", f'{{"state":{text}}}')
        await self._run.record([event], patch_state(checkpoint=text))
        self._run.last_checkpoint = json.loads(text)

    async def progress(self, fraction: float, text: str | None = None) -> None:
        """Say how far the job is: 0.0 to 1.0 and a short text. Cheap: the latest figure is written a few times a second.
        Raises InvalidInput for a fraction outside 0..1."""
        await self._run.enter()
        if not 0 <= fraction <= 1:
            raise InvalidInput(f"progress is a fraction between 0 and 1, got {fraction!r}")
        self._run.progress.note(
            patch_state(progress=float(fraction), progress_text=None if text is None else text[:500])
        )

    async def emit(self, type: str, payload: Any = None) -> None:
        """Write an event of your own into the job's log. Raises InvalidInput for a type perdure reserves; NotJson; TooLarge."""
        await self._run.enter()
        check_event_type(type)
        await self._run.record([NewEvent(type, codec.encode({} if payload is None else payload, f"event '{type}'"))])

    async def usage(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        """Add tokens (whole) and cost (in your currency) to the job's account, durably: 0 to 10^15 each, else InvalidInput."""
        await self._run.enter()
        check_usage(tokens, cost)
        event = NewEvent("usage_recorded", json.dumps({"tokens": tokens, "cost": cost}))
        await self._run.record([event], patch_state(tokens=tokens, cost=cost))
        if self._run.observer is not None:
            self._run.observer.usage(self._run.claimed, tokens, cost)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def idempotency_key(self, name: str) -> str:
        """The key that a step or tool of this exact key hands out: hash of job and call, the same in every attempt."""
        return self._idempotency_key(name)

    def _idempotency_key(self, key: str) -> str:
        return _key_of(self.job_id, key)

    def _key(self, name: str) -> str:
        _check_name(name)
        if self._options.key is not None:
            name = f"{name}[{self._options.key}]"
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def _changed(self, what: str, key: str, recorded: str, told: str) -> bool:
        """True where the recorded call is to be run anew."""
        if recorded == told or self._options.on_change == "keep":
            return False
        if self._options.on_change == "rerun":
            return True
        raise StepChanged(
            f"{what} '{key}' was recorded with other arguments than it is called with now",
            hint='rename it, or call it with options(on_change="rerun") or options(on_change="keep")',
        )
