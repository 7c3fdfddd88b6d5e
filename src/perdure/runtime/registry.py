"""Handlers and their policies: what a worker knows how to run."""

from __future__ import annotations

import asyncio
import contextvars
import difflib
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import FunctionType
from typing import Any, Generic, Literal, Never, NoReturn, TypeVar, get_args, get_origin
from weakref import WeakKeyDictionary

from perdure.model.account_choice import TaskKind
from perdure.model.agents import NewAgent
from perdure.model.budgets import Budget
from perdure.model.errors import DuplicateHandler, InvalidInput, UnknownHandler
from perdure.model.jobs import DEFAULT_MAX_RETRIES, DEFAULT_PRIORITY, DEFAULT_QUEUE
from perdure.model.stuck import Stuck, StuckJob
from perdure.model.timing import MAX_DURATION, Backoff, Clock
from perdure.model.tool_approvals import ApprovalContext
from perdure.model.tooling import TaskSpec
from perdure.runtime import codec
from perdure.runtime.chores import Chore
from perdure.runtime.embedders import HASH, Embedder
from perdure.store.protocol.leases import KindLimit

I_contra = TypeVar("I_contra", contravariant=True)  # the handler's input: one that may be left out is none too
O = TypeVar("O")  # noqa: E741  the handler's output


@dataclass(frozen=True, slots=True)
class Policy:
    """How jobs of one kind are queued, timed and retried.

    timeout: seconds per attempt, None = no limit. retry_on: exception classes that use a retry. fatal_on: classes that
    fail the job at once, even where retry_on would match. on_change: whether a job whose code does not fit what it recorded waits
    for code that does, or fails. concurrency_key: jobs with the same one run at most max_concurrent at a time; a function makes
    it of the input; None: the kind, where max_concurrent or max_per_minute is given. max_per_minute: so many of them start in any
    minute. task: where its jobs run a coding CLI.
    tags: of all its jobs. budget, stuck: of jobs that were enqueued without one. on_stuck: is called with a job that fails
    because it is stuck. approval_context: which of their tools need approval.
    """

    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_retries: int = DEFAULT_MAX_RETRIES
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float | None = None
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    fatal_on: tuple[type[BaseException], ...] = ()
    on_change: Literal["wait", "fail"] = "wait"
    concurrency_key: str | Callable[[Any], str | None] | None = None
    max_concurrent: int | None = None
    max_per_minute: int | None = None
    task: TaskKind | None = None
    tags: tuple[str, ...] = ()
    budget: Budget | None = None
    approval_context: ApprovalContext | None = None
    stuck: Stuck | None = None
    on_stuck: Callable[[StuckJob], Awaitable[None] | None] | None = None

    def limit(self, kind: str) -> KindLimit | None:
        """What a claim needs to know of its limit; None where it has none."""
        if self.task is not None:
            return KindLimit(task=self.task)
        if self.concurrency_key is None and self.max_concurrent is None and self.max_per_minute is None:
            return None
        key = kind if self.concurrency_key is None else self.concurrency_key
        return KindLimit(key if isinstance(key, str) else None, self.max_concurrent)

    def retries(self, error: BaseException) -> bool:
        """True where the error uses a retry."""
        return isinstance(error, self.retry_on) and not isinstance(error, self.fatal_on)


class Handler(Generic[I_contra, O]):
    """A registered function: its name (the job's kind), its policy, and the types of its input and output.

    Calling it calls the function, so a handler can be tested without any store.
    """

    def __init__(
        self, fn: Callable[..., Any], name: str, policy: Policy, *, local_names: dict[str, Any] | None = None
    ) -> None:
        self.fn = fn
        self.name = name
        self._result_name = f"the result of handler '{name}'"
        self.policy = policy
        self.is_async = is_async(fn)
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise InvalidInput(
                f"handler '{name}' is a generator: it holds a yield, so calling it would run none of its code",
                hint="return the result, in a list if there are several",
            )
        parameters = [
            p
            for p in inspect.signature(fn).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if not 1 <= len(parameters) <= 2:
            raise InvalidInput(
                f"handler '{name}' must take (ctx) or (ctx, input), it takes {len(parameters)} positional arguments",
                hint="put several inputs into one dataclass or pydantic model",
            )
        hints = type_hints(fn, local_names)
        self.takes_input = len(parameters) == 2
        self.input_type: Any = hints.get(parameters[1].name) if self.takes_input else None
        if self.input_type is not None and self.input_type is not Any:
            codec.check_type_early(self.input_type, f"the input '{parameters[1].name}' of handler '{name}'")
        self._decode_input = codec.Decoder(self.input_type)
        self.input_optional = self.takes_input and parameters[1].default is not inspect.Parameter.empty
        self.output_type: Any = hints.get("return")
        self.__doc__ = fn.__doc__

    def arguments(self, payload: str, what: object) -> tuple[Any, ...]:
        """What the function is called with after its context. Raises InvalidInput, naming `what`, if that does not fit."""
        if not self.takes_input or (self.input_optional and payload == "null"):
            return ()
        return (self._decode_input(payload, what),)

    def encode_result(self, result: Any) -> str:
        """What the function returned, as JSON text. Raises NotJson, TooLarge."""
        return codec.encode(result, self._result_name)

    def __call__(self, *args: Any) -> Any:
        """Call the function itself."""
        return self.fn(*args)

    def __repr__(self) -> str:
        return f"<Handler {self.name}>"


class Registry:
    """The handlers of one app, by name."""

    def __init__(self) -> None:
        self.check_task: Callable[[TaskSpec], None] | None = None
        """Refuses a task that no adapter can run; None where adapters are not known."""
        self.approval_context: ApprovalContext | None = None
        """Which tools of all these handlers need approval."""
        self.choose_embedder: Callable[[], Embedder] = lambda: HASH
        """What makes the vectors of long-term memory."""
        self._handlers: dict[str, Handler[Any, Any]] = {}
        self._kinds: dict[str, int] = {}
        self._limits: dict[str, KindLimit] = {}
        self._chores: dict[str, Chore] = {}
        self._agents: dict[str, NewAgent] = {}

    @property
    def chores(self) -> tuple[Chore, ...]:
        """What workers with these handlers do from time to time, besides the chores of all workers."""
        return tuple(self._chores.values())

    def add_chore(self, chore: Chore) -> None:
        """Let workers with these handlers do this too; one of the same name is replaced."""
        self._chores[chore.name] = chore

    def add(self, handler: Handler[Any, Any]) -> None:
        """Raises DuplicateHandler if the name is taken."""
        other = self.find(handler.name)
        if other is not None:
            raise DuplicateHandler(
                f"two handlers are named '{handler.name}': {_where(other.fn)} and {_where(handler.fn)}",
                hint='give one of them another name: @app.job(name="...")',
            )
        self._handlers[handler.name] = handler
        self._kinds = {name: self._handlers[name].policy.max_retries for name in sorted(self._handlers)}
        limits = {name: handler.policy.limit(name) for name, handler in self._handlers.items()}
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}

    def get(self, name: str) -> Handler[Any, Any]:
        """Raises UnknownHandler, with the nearest name."""
        handler = self.find(name)
        if handler is None:
            names = [*self.kinds]
            near = difflib.get_close_matches(name, names, 1)
            raise UnknownHandler(
                f"no handler is named '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""),
                hint=f"known handlers: {', '.join(names) or 'none'}. "
                "For one that lives in another process: enqueue(..., elsewhere=True)",
            )
        return handler

    def find(self, name: str) -> Handler[Any, Any] | None:
        """The handler, or None."""
        return self._handlers.get(name)

    @property
    def kinds(self) -> dict[str, int]:
        """The names of all handlers, sorted, with their `max_retries`."""
        return self._kinds

    @property
    def limits(self) -> dict[str, KindLimit]:
        """What claims need to know of the kinds that have limits."""
        return self._limits

    def add_agent(self, agent: NewAgent) -> None:
        """Let workers create this agent at their start."""
        self._agents[agent.id] = agent

    @property
    def agents(self) -> dict[str, NewAgent]:
        """The agents that a worker creates at its start, by id."""
        return self._agents

    def __iter__(self) -> Iterator[Handler[Any, Any]]:
        return iter(self._handlers.values())

    def __len__(self) -> int:
        return len(self._handlers)


def error_classes(value: type[BaseException] | Sequence[type[BaseException]]) -> tuple[type[BaseException], ...]:
    """One class or several, as a tuple."""
    return (value,) if isinstance(value, type) else tuple(value)


def is_async(fn: Callable[..., Any]) -> bool:
    """True for functions and callables that return an awaitable by declaration."""
    if isinstance(fn, FunctionType):
        return fn.__code__.co_flags & inspect.CO_COROUTINE != 0 or inspect.iscoroutinefunction(fn)
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004  its own async-ness is asked


def type_hints(fn: Callable[..., Any], local_names: dict[str, Any] | None = None) -> dict[str, Any]:
    """The annotations of a callable, resolved one by one; those that cannot be resolved are absent.

    `local_names` helps with types defined inside the function that also defines the handler.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    target = inspect.unwrap(fn) if inspect.isroutine(fn) or inspect.isclass(fn) else type(fn).__call__
    raw = _annotations(target)
    names = {**getattr(target, "__globals__", {}), **(local_names or {})}
    hints: dict[str, Any] = {}
    for name, annotation in raw.items():
        try:
            hints[name] = eval(annotation, names) if isinstance(annotation, str) else annotation  # noqa: S307  the user's own source text
        except (NameError, AttributeError, TypeError, SyntaxError):
            continue
    return hints


_returned: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def returned_type(fn: Callable[..., Any]) -> Any:
    """The annotated type of what a call gives (for a class: the class), None where nothing usable is said."""
    if not inspect.isfunction(fn):
        return _find_returned_type(fn)
    try:
        return _returned[fn]
    except KeyError:
        found = _returned[fn] = _find_returned_type(fn)
        return found


def _find_returned_type(fn: Callable[..., Any]) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isclass(fn):
        return fn
    annotation = type_hints(fn).get("return")
    origin = get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Awaitable) and not is_async(fn):
        annotation = get_args(annotation)[-1]
    return None if annotation in (NoReturn, Never) else annotation


def _annotations(target: Any) -> dict[str, Any]:
    if sys.version_info >= (3, 14):  # reading __annotations__ would evaluate them, also those that only a checker knows
        import annotationlib

        found = annotationlib.get_annotations(target, format=annotationlib.Format.FORWARDREF)
        return {k: v for k, v in found.items() if not isinstance(v, annotationlib.ForwardRef)}
    return getattr(target, "__annotations__", {})


def retry_after(error: BaseException) -> float | None:
    """The seconds a server asked us to wait: `error.retry_after`, or the Retry-After header of `error.response`."""
    direct = getattr(error, "retry_after", None)
    if isinstance(direct, int | float) and not isinstance(direct, bool):
        asked = float(direct)
    else:
        get = getattr(getattr(getattr(error, "response", None), "headers", None), "get", None)
        value = (get("retry-after") or get("Retry-After")) if callable(get) else None
        if not isinstance(value, str):
            return None
        try:
            date = None if value.strip().isdecimal() else parsedate_to_datetime(value)
            asked = float(value) if date is None else max(0.0, (date - datetime.now(UTC)).total_seconds())
        except (TypeError, ValueError, OverflowError):
            return None
    return asked if 0 <= asked <= MAX_DURATION else None


async def call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], threads: Executor) -> Any:
    """Await an async function, or run a plain one in a thread of `threads` with the caller's context variables."""
    try:
        if is_async(fn):
            return await fn(*args, **kwargs)
        value = await in_thread(threads, contextvars.copy_context().run, fn, *args, **kwargs)
        if inspect.isawaitable(value):  # a lambda around an async function
            return await value
    except SystemExit as error:  # leaving a task it would end the worker's event loop
        raise RuntimeError(f"sys.exit({error.code!r}) was called") from error
    except KeyboardInterrupt as error:
        raise RuntimeError("KeyboardInterrupt was raised") from error
    return value


async def in_time(work: Awaitable[O], clock: Clock, limit: float, what: str) -> O:
    """Await something for so many seconds at most. Raises a TimeoutError that says whose time was up."""
    scope = clock.timeout(limit)
    try:
        async with scope:
            return await work
    except TimeoutError:
        if scope.expired():
            raise TimeoutError(f"{what} ran longer than its timeout of {limit:g} s") from None
        raise
    raise AssertionError("unreachable")


def in_thread(threads: Executor, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
    """Start a plain function in a thread; what it returns or raises arrives in the future."""

    def run() -> Any:
        try:
            return fn(*args, **kwargs)
        except StopIteration as error:
            raise RuntimeError("StopIteration was raised, which no future can hold") from error

    return asyncio.get_running_loop().run_in_executor(threads, run)


def _where(fn: Callable[..., Any]) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', fn)}"
