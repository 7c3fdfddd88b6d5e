"""One run of a coding CLI, from its task to what came of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from perdure.model.tooling import Account, CliRun, RunClass, RunStart, TaskSpec, is_session
from perdure.tools import process
from perdure.tools.adapters.base import STREAMS, Adapter, Ended, Reader, Stream
from perdure.tools.capture import Capture, Lines, storable
from perdure.tools.outputs import find_outputs, missing_outputs
from perdure.tools.preparation import Prepared, has_changed, prepare
from perdure.tools.process import Report, Running, run
from perdure.tools.registry import adapter_of, check_task
from perdure.tools.secrets import Masker
from perdure.tools.sessions import save
from perdure.tools.settings import MIB, CliSettings
from perdure.tools.verdicts import Verdict, one_line

WATCH_SECONDS = 0.2
STDERR_FOR_VERDICT = 32 * 1024
MESSAGE_BYTES = 4096

OnOutput = Callable[[Stream, bytes], Awaitable[None]]
OnStart = Callable[[RunStart], Awaitable[None]]
OnSecrets = Callable[[Masker], None]


async def run_cli(
    task: TaskSpec,
    account: Account,
    *,
    workspace: Path,
    home: Path,
    settings: CliSettings | None = None,
    adapters: Mapping[str, Adapter] | None = None,
    environ: Mapping[str, str] | None = None,
    on_output: OnOutput | None = None,
    on_start: OnStart | None = None,
    on_secrets: OnSecrets | None = None,
) -> CliRun:
    """Run the CLI of a task once, under an account, and say what came of it.

    workspace, home: absolute folders of this run alone; the input files are in the workspace already, HOME is empty. environ:
    where `env:NAME` references are looked up; the worker's environment if left out. on_secrets is called with what replaces the
    secrets of this run, on_start before the program starts, on_output with every piece of output, in which secrets are replaced;
    while on_output runs, the program's next output waits.

    A call that is cancelled, or whose process dies, leaves no process of the run behind. Raises UnknownTool, PromptTooLarge, or a
    subclass of ToolRefused (ToolMissing, ToolUnsupported, SecretMissing, SessionMissing, SandboxTooWeak, DangerRefused) before
    anything starts.
    """
    settings = settings or CliSettings()
    adapter = adapter_of(task.tool) if adapters is None else adapter_of(task.tool, adapters)
    check_task(task, {adapter.name: adapter})
    prepared = await prepare(
        task,
        account,
        adapter,
        settings,
        workspace=workspace,
        home=home,
        environ=os.environ if environ is None else environ,
    )
    if on_secrets is not None:
        on_secrets(prepared.masker)
    if on_start is not None:
        await on_start(prepared.start)
    watched = _Watched(task, adapter.reader(), settings, prepared.masker, on_output)
    report = await watched.run(prepared)
    run = await asyncio.to_thread(watched.result, report, prepared)
    if settings.sessions is not None:
        await asyncio.to_thread(save, settings.sessions, account, adapter, home, run.session_id, prepared.masker)
    return run


class _Watched:
    """A run while it goes on: its output is read, its deadlines are kept."""

    def __init__(
        self, task: TaskSpec, reader: Reader, settings: CliSettings, masker: Masker, on_output: OnOutput | None
    ) -> None:
        self._task = task
        self._reader = reader
        self._settings = settings
        self._masker = masker
        self._on_output = on_output
        self._masked = {"stdout": masker.stream(), "stderr": masker.stream()}
        self._captured = {s: Capture(settings.captured_bytes) for s in STREAMS}
        self._lines = {"stdout": Lines(), "stderr": Lines()}
        self._clock = asyncio.get_running_loop().time
        self._last_output = self._clock()
        self._ended_for: str | None = None
        self._early: Verdict | None = None

    async def run(self, prepared: Prepared) -> Report:
        """Start it, watch it, wait for its end."""
        watching: list[asyncio.Task[None]] = []

        def begin(running: Running) -> None:
            watching.append(asyncio.create_task(self._watch(running)))

        try:
            report = await run(prepared.order, prepared.stdin, self._take, begin)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
        for stream in STREAMS:
            await self._pass_on(stream, self._masked[stream].end())
            for line in self._lines[stream].end():
                self._reader.line(stream, line, self._clock())
        return report

    async def _take(self, stream: Stream, data: bytes) -> None:
        self._last_output = self._clock()
        await self._pass_on(stream, self._masked[stream].feed(data))

    async def _pass_on(self, stream: Stream, data: bytes) -> None:
        if not data:
            return
        self._captured[stream].feed(data)
        now = self._clock()
        for line in self._lines[stream].feed(data):
            self._reader.line(stream, line, now)
        if self._on_output is not None:
            await self._on_output(stream, data)
            self._last_output = self._clock()  # the time that the receiver took is not the program's silence

    async def _watch(self, running: Running) -> None:
        """End the run at its timeout, for silence, or for warnings that make it hopeless: first softly, then for good."""
        task, deadline = self._task, self._clock() + self._task.timeout
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = self._clock()
            if now >= deadline:
                self._ended_for = "timeout"
            elif task.no_output_timeout is not None and now - self._last_output >= task.no_output_timeout:
                self._ended_for = "no_output"
            elif (verdict := self._reader.hopeless(now, self._settings.give_up_after)) is not None:
                self._early = verdict
            else:
                continue
            break
        running.soft()
        await asyncio.sleep(task.kill_after)
        running.kill()
        await asyncio.sleep(process.END_SECONDS)
        running.kill_launcher()

    def result(self, report: Report, prepared: Prepared) -> CliRun:
        """What came of it; looks for the declared files."""
        verdict = self._verdict(report)
        missing: tuple[str, ...] = ()
        if verdict.outcome is RunClass.OK:
            spec = self._task.output_spec
            missing = missing_outputs(find_outputs(prepared.order.cwd, spec), spec)
            if missing:
                names = ", ".join(missing[:10])
                verdict = Verdict(RunClass.MISSING_OUTPUT, "missing", f"it ended without writing {names}")
        reader, captured = self._reader, {s: c.result() for s, c in self._captured.items()}
        return CliRun(
            outcome=verdict.outcome,
            detail=verdict.detail,
            message=storable(verdict.message or self._last_words(verdict)),
            exit_code=report.exit_code,
            session_id=reader.session_id if is_session(reader.session_id) else None,
            final_text=storable(reader.final_text),
            usage=reader.usage,
            retry_after=verdict.retry_after,
            permission_denials=reader.denials,
            ended_early=self._early is not None,
            credential_changed=has_changed(prepared.credential),
            survivors=report.survivors,
            missing_files=missing,
            stdout=captured["stdout"],
            stderr=captured["stderr"],
            sandbox=prepared.start.sandbox,
            seconds=report.seconds,
            cpu_seconds=report.cpu_seconds,
            max_rss_bytes=report.max_rss_bytes,
        )

    def _verdict(self, report: Report) -> Verdict:
        if report.exit_code is None:
            return Verdict(RunClass.UNKNOWN, "launcher", report.error)
        if report.error:
            return Verdict(RunClass.FATAL, "start", f"the program did not start: {report.error}")
        stopped = self._ended_for is not None
        stderr = self._captured["stderr"].tail(STDERR_FOR_VERDICT)
        verdict = self._reader.verdict(Ended(report.exit_code, stopped or self._early is not None, stderr))
        if verdict.outcome is RunClass.OK:
            return verdict
        if self._early is not None:
            return self._early
        if report.memory_kills and not stopped:
            limit = (self._settings.limits.memory_bytes or 0) // MIB
            return Verdict(RunClass.UNKNOWN, "memory", f"it used more memory than the {limit} MiB that it may")
        if self._ended_for == "no_output":
            return Verdict(
                RunClass.TIMEOUT, "no_output", f"it printed nothing for {self._task.no_output_timeout:g} seconds"
            )
        if self._ended_for == "timeout" and verdict.outcome is RunClass.TIMEOUT:
            return Verdict(RunClass.TIMEOUT, "timeout", f"it did not end within {self._task.timeout:g} seconds")
        return verdict

    def _last_words(self, verdict: Verdict) -> str:
        """For a failure that nothing else describes: the end of its output."""
        if verdict.outcome in (RunClass.OK, RunClass.RETRYABLE):
            return ""
        if verdict.outcome is not RunClass.UNKNOWN:
            return one_line(self._captured["stderr"].tail(MESSAGE_BYTES))
        return (
            self._captured["stderr"].tail(MESSAGE_BYTES).strip() or self._captured["stdout"].tail(MESSAGE_BYTES).strip()
        )
