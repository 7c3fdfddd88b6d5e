"""One run of a command: its settings, its App, its output, its signals."""

from __future__ import annotations

import asyncio
import inspect
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from perdure.cli.errors import Declined, Interrupted, NotConfirmed, pipe_closed, report
from perdure.cli.flags import OUTPUTS, Flags, Paging
from perdure.cli.format import clean_text
from perdure.cli.output import Column, Mode, Output
from perdure.cli.usage_error import Usage

if TYPE_CHECKING:
    from perdure import App, Client
    from perdure.config import Settings

T = TypeVar("T")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


class Page(Protocol[T_co]):
    """One page of a list."""

    @property
    def items(self) -> Sequence[T_co]:
        """What is on it."""
        ...

    @property
    def next_cursor(self) -> str | None:
        """Continues the list; None: that was all."""
        ...


class Cli:
    """What a command is given: flags, output, and clients of the database."""

    def __init__(self, flags: Flags) -> None:
        self.flags = flags
        mode = "json" if flags.json else flags.output or os.environ.get("PERDURE_OUTPUT") or "table"
        if mode not in OUTPUTS:
            raise Usage(f"PERDURE_OUTPUT is '{mode}', not one of {', '.join(OUTPUTS)}")
        self.out = Output(
            mode=Mode(mode),
            fields=flags.fields,
            color=flags.color,
            time_format=flags.time_format,
            quiet=flags.quiet,
        )
        self.more_flags: dict[str, Any] = {}
        """Settings that are options of this command only: queues, concurrency, ..."""
        self.loads_app = flags.app is not None
        """Whether the user's App is imported. One that PERDURE_APP or a file names is imported by commands that need its handlers
        alone, so that code which does not load stops no command that has no use for it."""
        self._settings: Settings | None = None
        self._app: App | None = None

    # -- settings and app --------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """Flags, environment, files, defaults; where the App is loaded, what it was made with comes right after the flags.

        Raises ConfigError, AppNotFound.
        """
        if self._settings is None:
            self._settings = self._resolve()
        return self._settings

    def _resolve(self) -> Settings:
        from perdure.config import load_settings

        given = {"database_url": self.flags.db, "tenant": self.flags.tenant, "app": self.flags.app, **self.more_flags}
        own = load_settings(given)
        if not own["app"] or not self.loads_app:
            return own
        from perdure.cli.app_loading import load_app, settings_of

        self._app = load_app(own["app"])
        return settings_of(self._app, own, [name for name, value in given.items() if value is not None])

    @property
    def app(self) -> App:
        """The user's App, configured with the settings; a plain one where none is loaded."""
        settings = self.settings
        if self._app is None:
            from perdure.cli.app_loading import plain_app

            self._app = plain_app(settings)
        elif self._app.settings is not settings:
            self._app.configure(settings)
        return self._app

    @property
    def own_app(self) -> App | None:
        """The user's App, for a command that needs its handlers; None where no App is named. Raises AppNotFound."""
        if not self.loads_app:
            self.loads_app, self._settings = True, None
        return self.app if self.settings["app"] else None

    def adopt(self, app: App) -> None:
        """Use this App where the user names none."""
        self._app = app

    def next(self, command: str) -> str:
        """A command to type next, on the same database. A URL with a password in it is left out: it is not for the screen."""
        from perdure.model.urls import has_secret

        db, settings = self.flags.db, self._settings
        if settings is not None and settings.origins["database_url"].startswith("app "):
            db = settings["database_url"]  # the next command may not load the App
        given = {"--db": None if db is None or has_secret(db) else db, "--tenant": self.flags.tenant}
        more = "".join(f" {name} {shlex.quote(value)}" for name, value in given.items() if value)
        return f"perdure {command}{more}"

    @asynccontextmanager
    async def client(self, *, creates: bool = False, works: bool = False) -> AsyncIterator[Client]:
        """A client of the App, open. An embedded database that does not exist is made only by a command that `creates` something;
        to the others it is an empty one. works: the command runs a worker, so more of its log is shown. Raises as `App.open`."""
        from perdure.cli.logs import configure_logs

        configure_logs(self.settings, self.flags, works=works)
        self._note_about_place(creates)
        app = self.app
        await app.open()
        try:
            yield app.acting(via="cli")
        finally:
            await app.close()

    @asynccontextmanager
    async def existing(self) -> AsyncIterator[Client]:
        """A client of a database that exists and has our schema: any other is refused and left as it is. It has no
        handlers."""
        from perdure.cli.app_loading import plain_app
        from perdure.cli.logs import configure_logs

        configure_logs(self.settings, self.flags)
        async with plain_app(self.settings, migrate=False) as app:
            yield app.acting(via="cli")

    def _note_about_place(self, creates: bool) -> None:
        url = self.settings["database_url"].strip()
        if url == "memory:":
            self.out.warn("memory: is empty at the start of every command and lost at its end")
        elif not creates and (missing := self.missing_file()):
            named = self.settings["app"] if not self.loads_app else None
            other = f"; if {named} names another, so does --app {shlex.quote(named)}" if named else ""
            self.out.warn(
                f"there is no database at {missing} yet; perdure dev, worker start or jobs start create it; --db names another"
                + other
            )
            self.use("memory:")

    def use_tenant(self, tenant: str) -> None:
        """Act for the tenant that a file names. Raises Usage if --tenant names another."""
        if self.flags.tenant not in (None, tenant):
            raise Usage(f"--tenant is '{self.flags.tenant}', and the file's tenant_id is '{tenant}'")
        self.flags = replace(self.flags, tenant=tenant)
        self._settings = None

    def use(self, url: str) -> None:
        """Continue with another database."""
        self._settings = replace(self.settings, values={**self.settings.values, "database_url": url})

    def missing_file(self) -> Path | None:
        """The file of the embedded database, if it does not exist."""
        from perdure.model.urls import has_parameters

        url = self.settings["database_url"].strip()
        if not url.startswith("sqlite:///") or len(url) <= 10 or has_parameters(url):
            return None  # opening it says what is wrong
        path = Path(url.removeprefix("sqlite:///"))
        return None if path.exists() else path

    @asynccontextmanager
    async def unopened(self) -> AsyncIterator[Client]:
        """A client that opens the database at its first call: for commands about a database that may have no schema, or one
        that does not fit."""
        from perdure.cli.logs import configure_logs

        configure_logs(self.settings, self.flags)
        app = self.app
        try:
            yield app.acting(via="cli")
        finally:
            await app.close()

    # -- running -----------------------------------------------------------------------------------------------------------

    def run(self, fn: Callable[..., Any], given: dict[str, Any]) -> int:
        """Run the command's function and return its exit code."""
        try:
            result = fn(self, **given)
            if inspect.iscoroutine(result):
                result = run_async(result)
        except Interrupted as interrupted:
            return interrupted.exit_code
        except BrokenPipeError:
            return pipe_closed()
        return int(result or 0)

    async def each(self, ids: Sequence[str], act: Callable[[str], Awaitable[R]]) -> tuple[list[R], int]:
        """Do something with every id. An error is printed and the other ids continue; the exit code is that of the first."""
        from perdure.model.errors import PerdureError

        done: list[R] = []
        code = 0
        for id in ids:
            try:
                done.append(await act(id))
            except PerdureError as error:
                if len(ids) == 1:
                    raise
                code = code or self.failed(error)
        return done, code

    def failed(self, error: Exception) -> int:
        """Print an error without ending the command; return its exit code."""
        sys.stdout.flush()
        as_json = self.out.for_programs
        return report(error, as_json=as_json, verbose=self.flags.verbose, color=self.out.error_color)

    # -- lists -------------------------------------------------------------------------------------------------------------

    async def list(
        self,
        page: Paging,
        fetch: Callable[[int, str | None], Awaitable[Page[T]]],
        columns: Sequence[Column[T]],
        *,
        id: Callable[[T], Any],
        plain: Callable[[T], dict[str, Any]] | None = None,
        nothing: str,
    ) -> list[T]:
        """Fetch as many pages as were asked for and print them; jsonl and ids as they come."""
        out = self.out
        shown: list[T] = []
        streamed = out.mode in (Mode.JSONL, Mode.ID)
        cursor, left = page.cursor, None if page.all else page.limit
        while True:
            found = await fetch(min(left or 500, 500), cursor)
            cursor = found.next_cursor
            shown += found.items
            if streamed:
                out.rows(found.items, columns, id=id, plain=plain)
            left = None if left is None else left - len(found.items)
            if cursor is None or left == 0:
                break
        if not streamed:
            out.rows(shown, columns, id=id, plain=plain, next_cursor=cursor)
        if not shown and out.for_people:
            out.note(nothing)
        elif cursor is not None and out.mode is not Mode.JSON:
            out.note(f"more with --all, or --cursor {shlex.quote(cursor)}")
        return shown

    # -- confirmation ------------------------------------------------------------------------------------------------------------

    @property
    def may_ask(self) -> bool:
        """True where a person sits at the terminal."""
        silenced = self.flags.no_input or os.environ.get("CI", "") not in ("", "0", "false")
        return not silenced and sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str) -> None:
        """Continue only after a yes. Raises NotConfirmed where no person can be asked, Declined."""
        if self.flags.yes:
            return
        if not self.may_ask:
            raise NotConfirmed(
                f"{question} This needs a yes, and there is no terminal to ask on", hint="add --yes (-y)"
            )
        sys.stdout.flush()
        print(f"{clean_text(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Declined("nothing was done: the answer was not yes")


def run_async(coroutine: Coroutine[Any, Any, T], *, fast: bool = False) -> T:
    """Run it to its end, `fast` on uvloop. SIGINT and SIGTERM cancel it and raise Interrupted; a second signal does not wait."""
    received: list[int] = []

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def on_signal(number: int) -> None:
            if received:
                if sys.stdout.isatty():
                    os.write(1, b"\x1b[?25h")  # a live view may have hidden the cursor
                os._exit(128 + number)
            received.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        return await coroutine

    try:
        with asyncio.Runner(loop_factory=_uvloop() if fast else None) as runner:
            return runner.run(main())
    except asyncio.CancelledError:
        if received:
            raise Interrupted(received[0]) from None
        raise


def _uvloop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop
