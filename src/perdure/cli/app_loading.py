"""Finding the user's App by `module:attribute`."""

from __future__ import annotations

import difflib
import os
import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path

from perdure.app import App
from perdure.cli.errors import AppNotFound
from perdure.config import BY_NAME, Settings


def load_app(where: str) -> App:
    """Import the module, with the current directory first on the path, and return its App. Raises AppNotFound.

    What it prints goes to stderr: stdout is for the command's data.
    """
    module_name, colon, attribute = where.partition(":")
    if not colon or not module_name or not attribute:
        raise AppNotFound(
            f"--app {where}: that is not module:attribute", hint=f"for example: --app {shlex.quote(_guess(where))}"
        )
    if module_name.endswith(".py") or "/" in module_name:
        raise AppNotFound(
            f"--app {where}: a module is named as Python imports it",
            hint=f"write --app {shlex.quote(_guess(module_name).removesuffix('app') + attribute)}",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        with _stdout_to_stderr():
            module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name + ".").startswith(error.name + "."):
            raise AppNotFound(
                f"--app {where}: there is no module '{error.name}'",
                hint=f"looked in {here} and the installed packages; change to the directory that contains it, or set PYTHONPATH",
            ) from None
        raise _broken(where, error) from error
    except SystemExit as error:
        raise AppNotFound(
            f"--app {where}: importing '{module_name}' ended the program (SystemExit: {error})",
            hint="put what runs it under: if __name__ == '__main__':",
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _broken(where, error) from error
    target: object = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise AppNotFound(f"--app {where}: '{module_name}' has no '{attribute}'", hint=_apps_of(module, attribute))
        target = getattr(target, part)
    if not isinstance(target, App):
        kind = type(target).__name__
        raise AppNotFound(
            f"--app {where}: it is of type {kind}, not a perdure App",
            hint=_apps_of(module, "") or "make one: app = App()",
        )
    return target


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Also of the programs that it starts, which write to the file descriptor."""
    sys.stdout.flush()
    kept = None
    with suppress(OSError):  # a closed one
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def plain_app(settings: Settings, *, migrate: bool | None = None) -> App:
    """An App without handlers, for commands that need none. migrate: see `App`."""
    return App(settings=settings, migrate=migrate)


def settings_of(app: App, own: Settings, flags: Iterable[str]) -> Settings:
    """The App's settings where its constructor set them, overridden by flags; what neither sets comes from `own`."""
    theirs = app.settings
    values, origins = dict(own.values), dict(own.origins)
    given = set(flags)
    for name in BY_NAME:
        if name not in given and (theirs.origins[name] == "flag" or theirs.values[name] != own.values[name]):
            values[name], origins[name] = theirs.values[name], f"app {own['app']}"
    values["app"], origins["app"] = own["app"], own.origins["app"]
    return Settings(values, origins)


def _broken(where: str, error: BaseException) -> AppNotFound:
    module_name = where.partition(":")[0]
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    own = [f for f in frames if "/perdure/" not in f.filename and "site-packages" not in f.filename]
    place = f" (at {own[-1].filename}:{own[-1].lineno})" if own else ""
    return AppNotFound(
        f"--app {where}: importing '{module_name}' failed: {text}{place}", hint="-vv shows the traceback"
    )


def _apps_of(module: object, attribute: str) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    if names:
        near = difflib.get_close_matches(attribute, names, 1)
        return f"did you mean '{near[0]}'?" if near else f"it has these Apps: {', '.join(names)}"
    return "it has no App at all; make one: app = App()" if attribute else ""


def _guess(where: str) -> str:
    module = where.partition(":")[0].removesuffix(".py").strip("./").replace("/", ".") or "agents"
    return f"{module}:app"
