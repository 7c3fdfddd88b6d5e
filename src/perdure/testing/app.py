"""TestApp: what tests use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, ClassVar, TypeVar, Unpack, overload

from perdure.app import App
from perdure.model.errors import ConfigError, InvalidInput
from perdure.model.timing import Duration
from perdure.runtime.client.enqueue import EnqueueOptions
from perdure.runtime.registry import Handler
from perdure.testing.clock import ManualClock
from perdure.testing.crash import CrashCheck, CrashReport, Decide
from perdure.testing.memory import MemoryApp

I = TypeVar("I")  # noqa: E741  the handler's input
T = TypeVar("T")


class TestApp(MemoryApp):
    """An App for tests: in memory, on a clock that the test moves, with workers that run when the test calls for it.

    It is an `App`: enqueue, look, decide through it. Used inside `async with TestApp(app) as t:`, or `with` in synchronous
    tests, whose calls go through `t.run(...)`. A job is run by `run_until_idle`, or by asking for its result.

    app: your own App. Its handlers are what runs, and as long as the block lasts everything that uses it, also from handlers
    and from `perdure.sync`, uses this database instead of its own. None: an App of its own; register handlers with `t.job`.
    clock: a ManualClock to share. stubs: functions to call in place of those given to the steps and tools of these names, with
    the same arguments. lease: how long a crashed worker's jobs stay with it.
    """

    __test__: ClassVar = False  # for pytest, which takes classes of such names for tests

    def __init__(
        self,
        app: App | None = None,
        *,
        clock: ManualClock | None = None,
        stubs: Mapping[str, Callable[..., Any]] | None = None,
        lease: Duration = "30s",
    ) -> None:
        super().__init__(app, clock=clock, stubs=stubs, lease=lease)
        self._runner: asyncio.Runner | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        super().__exit__(kind, error, trace)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Make a call from a synchronous test: `t.run(t.enqueue(research, brief))`. All of them share one event loop.

        Raises what the call raises; ConfigError where an event loop runs, and the call can be awaited.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            call.close()
            raise ConfigError("an event loop runs here: await the call instead of giving it to run()")
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        return self._runner.run(call)

    def stub(self, stubs: Mapping[str, Callable[..., Any]]) -> None:
        """Add to `stubs`: `t.stub({"search": fake_search})`. A later one of the same name wins."""
        self.monitor.stubs.update(stubs)
        self.monitor.called_stubs.difference_update(stubs)

    @property
    def unused_stubs(self) -> list[str]:
        """The names of stubs that were not called so far: of a step or tool that is named otherwise, or was not come to.
        What `crash_after_each_step` calls counts. A test that needs all of them ends with `assert not t.unused_stubs`."""
        return [name for name in self.monitor.stubs if name not in self.monitor.called_stubs]

    @overload
    async def crash_after_each_step(
        self,
        handler: Handler[None, Any],
        /,
        *,
        decide: Decide | None = None,
        signals: Mapping[str, Any] | None = None,
        effects: Any = None,
        setup: Callable[[], object] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> CrashReport: ...
    @overload
    async def crash_after_each_step(
        self,
        handler: Handler[I, Any],
        input: I,
        /,
        *,
        decide: Decide | None = None,
        signals: Mapping[str, Any] | None = None,
        effects: Any = None,
        setup: Callable[[], object] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> CrashReport: ...
    async def crash_after_each_step(
        self,
        handler: Any,
        input: Any = None,
        /,
        *,
        decide: Decide | None = None,
        signals: Mapping[str, Any] | None = None,
        effects: Any = None,
        setup: Callable[[], object] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> CrashReport:
        """Prove that a handler survives a crash: run it without one, and then once for each event that its job commits (steps,
        tools, waits, approvals, checkpoints), killing the worker right after that commit; and once killing it at the very end.

        Nothing of the killed attempt is written any more; its lease runs out on the clock, and another worker takes over. Each
        run has a fresh database and a clock of its own, with this app's stubs. Every run must end with the same status, result,
        recorded keys and number of jobs, and no recorded step may run twice: else AssertionError names the crash.
        The killed attempt shares this process: its `finally` blocks run, and what it kept in global variables stays.

        decide: called with the run's app and a pending approval; default approves. Questions about tools that the crash cut off
        are answered truly. signals: payloads by key, of signals to send when a job waits for them. effects: a list, dict or set
        that your fakes write to; it is cleared before each run and must be equal after it. setup: called before each run, to
        reset fakes. options: as in `enqueue`. Raises InvalidInput for what is no handler of this app.
        """
        __tracebackhide__ = True  # of pytest: what failed is the handler, not this
        if not isinstance(handler, Handler) or self.registry.find(handler.name) is not handler:
            raise InvalidInput(
                f"{handler!r} is not a handler of this app",
                hint="give what @app.job made of your function, and its App",
            )
        check = CrashCheck(
            self._fresh, handler, input, decide=decide, signals=signals, setup=setup, effects=effects, options=options
        )
        return await check.run()

    def _fresh(self) -> MemoryApp:
        """Another one like this, as it was in the beginning, for the same handlers."""
        app = MemoryApp(
            self._original,
            clock=ManualClock(self.clock.now()),
            stubs=self.monitor.stubs,
            lease=self._lease,
            registry=self.registry,
        )
        app.monitor.called_stubs = self.monitor.called_stubs
        return app
