"""Settings: each is a command-line flag, a PERDURE_* variable, a TOML key and a default, in that order of precedence."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perdure.model.errors import ConfigError
from perdure.model.jobs import (
    ALL_QUEUES,
    DEFAULT_GRACE_SECONDS,
    DEFAULT_LEASE_SECONDS,
    DEFAULT_QUEUE,
    DEFAULT_TENANT,
    check_name,
)
from perdure.model.retention import ENDS
from perdure.model.states import Status, parse_status
from perdure.model.timing import seconds
from perdure.model.tooling import check_reference
from perdure.model.urls import masked

PROJECT_FILE = "perdure.toml"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: how it is read from text, its default, and what it does."""

    name: str
    default: Any
    read: Callable[[Any], Any]
    help: str

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return "PERDURE_" + self.name.upper()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {type(value).__name__}")
    return value


def _tenant(value: Any) -> str:
    return check_name(value, "tenant")


def _int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"must be a whole number, got {str(value).lower()}")
    try:
        return int(value)
    except (ValueError, TypeError):
        raise ValueError(f"'{value}' is no whole number") from None


def _whole(value: Any) -> int:
    number = _int(value)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


def _port(value: Any) -> int:
    number = _int(value)
    if not 0 <= number <= 65535:
        raise ValueError("must be between 0 (any that is free) and 65535")
    return number


def _switch(value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise ValueError("must be true or false")
    return word in ("1", "true", "yes", "on")


def _names(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Sequence | AbstractSet) or not all(isinstance(n, str) for n in items):
        raise ValueError('must be names: "a,b" or ["a", "b"]')
    names = tuple(n.strip() for n in items if n.strip())
    if not names:
        raise ValueError("needs at least one name")
    return names


def _whole_or_none(value: Any) -> int | None:
    return None if value is None else _whole(value)


def _queues(value: Any) -> tuple[str, ...]:
    names = _names(value)
    return (ALL_QUEUES,) if ALL_QUEUES in names else tuple(check_name(name, "queue") for name in names)


def _size(value: Any) -> int:
    number, unit = str(value).strip(), 1
    for name, size in (("KiB", 1024), ("MiB", 1024**2), ("GiB", 1024**3)):
        if number.endswith(name):
            number, unit = number.removesuffix(name).strip(), size
    return _whole(number) * unit


def _size_or_none(value: Any) -> int | None:
    return None if value is None else _size(value)


def _folders(value: Any) -> tuple[str, ...]:
    names = _names(value) if value else ()
    if relative := [name for name in names if not name.startswith("/")]:
        raise ValueError(f"must be absolute: {relative[0]}")
    return names


def _folder(value: Any) -> str | None:
    if value is None or not str(value).strip():
        return None
    if not Path(_text(value)).is_absolute():
        raise ValueError("must be an absolute path")
    return str(value)


def _max_attempts(value: Any) -> int:
    number = _whole(value)
    if number > 101:
        raise ValueError("must be at most 101: 100 retries")
    return number


def _variables(value: Any) -> tuple[str, ...]:
    return () if value in ("", [], ()) else _names(value)


def _tools(value: Any) -> tuple[str, ...] | None:
    return None if value is None else _names(value)


def _accounts(value: Any) -> tuple[str, ...]:
    names = _names(value)
    return ("auto",) if "auto" in names else names


def _tool_tables(value: Any) -> dict[str, Any]:
    tables = json.loads(value) if isinstance(value, str) else value
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ValueError("must be tables: [cli.tools.NAME]")
    return tables


def _lease(value: Any) -> float:
    length = seconds(value)
    if length < 1:
        raise ValueError("must be at least 1 second")
    return length


def _beat(value: Any) -> float:
    length = seconds(value)
    if length < 0.1:
        raise ValueError("must be at least 0.1 seconds")
    return length


def _blocked(value: Any) -> float | None:
    return None if value is None else _lease(value)


def _retention(value: Any) -> float | None:
    if value is None or str(value).strip().lower() in ("off", "none", ""):
        return None
    length = seconds(value)
    if length < 60:
        raise ValueError("must be at least 1 minute, so that results can be fetched, or off")
    return length


def _ends(value: Any) -> tuple[Status, ...]:
    ends = tuple(parse_status(name) for name in _names(value))
    if live := [status for status in ends if not status.terminal]:
        raise ValueError(f"jobs in {live[0]} are not finished; give one of: {', '.join(ENDS)}")
    return ends


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(value)

    return read


SETTINGS = (
    Setting("database_url", "sqlite:///perdure.db", _text, "memory:, sqlite:///path or postgresql://..."),
    Setting("tenant", DEFAULT_TENANT, _tenant, "the tenant whose jobs this process sees"),
    Setting("app", None, _text, "the App, as module:attribute, for commands that run handlers"),
    Setting("queues", (DEFAULT_QUEUE,), _queues, "queues a worker serves, comma-separated; * for all"),
    Setting("concurrency", 100, _whole, "jobs a worker runs at once"),
    Setting("lease", DEFAULT_LEASE_SECONDS, _lease, "after this long without its worker a job is taken over (30s, 2m)"),
    Setting("linger", 1.0, seconds, "a worker keeps a job whose timer ends within this time, instead of parking it"),
    Setting("drain_timeout", 30.0, seconds, "how long a graceful stop waits for running steps"),
    Setting(
        "grace", DEFAULT_GRACE_SECONDS, seconds, "how long a handler may take to stop after a cancel or its timeout"
    ),
    Setting(
        "max_hung",
        None,
        _whole_or_none,
        "calls that do not stop, at which a worker process is replaced; half of concurrency, at least 8",
    ),
    Setting(
        "max_blocked",
        None,
        _blocked,
        "a worker process whose event loop stands still for this long ends and is replaced; ten times lease",
    ),
    Setting(
        "retention", None, _retention, "workers delete finished jobs and their logs after this (30d); off by default"
    ),
    Setting("retention_status", ENDS, _ends, "only jobs that ended so are deleted by retention, comma-separated"),
    Setting("retention_keep_logs", False, _switch, "retention deletes payloads, results and checkpoints only"),
    Setting("tools", None, _tools, "coding CLIs whose tasks a worker runs, comma-separated: codex, claude, gemini"),
    Setting(
        "accounts",
        ("auto",),
        _accounts,
        "accounts that tasks run under, by id or group name; auto: all that are enabled",
    ),
    Setting("cli_work_dir", "/tmp/scheduler-work/", _text, "where the workspaces of running tasks are"),  # noqa: S108  it is made 0700, and refused if another user owns it
    Setting(
        "cli_lease_ttl",
        90.0,
        _lease,
        "after this long without its worker a task is taken over; where only lease is set, that counts for tasks too",
    ),
    Setting(
        "cli_heartbeat", 30.0, _beat, "how often the lease of a running task is renewed; at most half of cli_lease_ttl"
    ),
    Setting("cli_max_attempts", 3, _max_attempts, "attempts of a task that fails"),
    Setting(
        "cli_backoff_base",
        30.0,
        seconds,
        "a failed task waits up to this, doubled with each attempt, at most 5 minutes",
    ),
    Setting("cli_inline_threshold", 1024**2, _size, "bytes of the largest file that is kept in the database itself"),
    Setting(
        "cli_blob_dir",
        None,
        _folder,
        "where larger files are kept, shared by all machines; next to a SQLite file, or ~/.local/share/perdure/blobs",
    ),
    Setting("cli_files_limit", 1024**3, _size, "bytes of all input files of a task, and of all output files of a run"),
    Setting(
        "cli_captured_bytes", 64 * 1024, _size, "bytes kept of the beginning, and of the end, of stdout and of stderr"
    ),
    Setting(
        "cli_task_env",
        (),
        _variables,
        "variables of the worker that tasks may refer to as env:NAME, comma-separated; none by default",
    ),
    Setting(
        "cli_sandbox",
        "L1",
        _one_of("L0", "L1", "L2"),
        "the sandbox of runs; where it is missing, the next lower one",
    ),
    Setting("cli_min_sandbox", "L0", _one_of("L0", "L1", "L2"), "below this a run is refused"),
    Setting(
        "cli_memory",
        None,
        _size_or_none,
        "memory of all processes of a run together (4GiB), where cgroups can be made; off by default",
    ),
    Setting(
        "cli_processes",
        4096,
        _whole,
        "processes of a run; where no cgroups can be made, of the user",
    ),
    Setting(
        "cli_cgroups",
        (),
        _folders,
        "folders below which cgroups are made, comma-separated; by default those that were delegated to the worker",
    ),
    Setting("cli_controlled_container", False, _switch, "true: this worker is in a container made for dangerous flags"),
    Setting("cli_tools", {}, _tool_tables, "further tools, each a table [cli.tools.NAME]"),
    Setting(
        "memory_url",
        None,
        _text,
        "where vectors of memory are made, as https://host/v1; without it perdure makes its own",
    ),
    Setting("memory_model", None, _text, "the model that makes them"),
    Setting("memory_key", None, check_reference, "its key, as env:NAME or file:/path; never the key itself"),
    Setting("memory_dimensions", None, _whole, "how many numbers a vector has, where the model lets that be chosen"),
    Setting("log_format", "text", _one_of("text", "json"), "text or json, on stderr"),
    Setting("log_jobs", False, _switch, "true: a worker writes a log line for each attempt that ends"),
    Setting(
        "metrics_port", None, _port, "the port where a worker serves /metrics, /healthz and /readyz; off by default"
    ),
    Setting("metrics_host", "127.0.0.1", _text, "the address for metrics_port"),
    Setting("otel", False, _switch, "true: trace jobs with the program's OpenTelemetry"),
    Setting("log_level", "info", _one_of("debug", "info", "warning", "error"), "least severe log line shown"),
)
BY_NAME: Mapping[str, Setting] = MappingProxyType({s.name: s for s in SETTINGS})


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved values, and where each came from: `flag`, `env PERDURE_X`, a file's path, or `default`."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Resolve every setting. Flags that are None count as absent.

    Files: ./perdure.toml, then perdure/config.toml in $XDG_CONFIG_HOME or ~/.config. `PERDURE_X_FILE` names a file that
    holds the value of PERDURE_X (for secrets). Raises ConfigError naming the setting, its origin and what is wrong.
    """
    environ = os.environ if environ is None else environ
    files = _files(environ, directory or Path.cwd())
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        raw, origin = _find(setting, flags or {}, environ, files)
        if origin != "default":
            raw = _read(setting, raw, origin)
        values[setting.name], origins[setting.name] = raw, origin
    return Settings(MappingProxyType(values), MappingProxyType(origins))


def load_setting(
    name: str, flag: Any = None, *, environ: Mapping[str, str] | None = None, directory: Path | None = None
) -> Any:
    """One setting, as `load_settings` resolves it, whatever is wrong with the others. A file is read only where that is needed.

    Raises ConfigError.
    """
    environ = os.environ if environ is None else environ
    setting = BY_NAME[name]
    raw, origin = _find(setting, {name: flag}, environ, [])
    if origin == "default":
        raw, origin = _find(setting, {}, environ, _files(environ, directory or Path.cwd()))
    return raw if origin == "default" else _read(setting, raw, origin)


def _read(setting: Setting, raw: Any, origin: str) -> Any:
    try:
        return setting.read(raw)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{setting.name} ({origin}) is invalid: {error}", hint=f"{setting.name}: {setting.help}"
        ) from None


def _find(
    setting: Setting, flags: Mapping[str, Any], environ: Mapping[str, str], files: list[tuple[Path, dict[str, Any]]]
) -> tuple[Any, str]:
    if flags.get(setting.name) is not None:
        return flags[setting.name], "flag"
    if environ.get(setting.variable):
        return environ[setting.variable], f"env {setting.variable}"
    if path := environ.get(setting.variable + "_FILE"):
        try:
            return Path(path).read_text(encoding="utf-8").strip(), f"env {setting.variable}_FILE"
        except OSError as error:
            raise ConfigError(f"{setting.variable}_FILE cannot be read: {error}") from None
    for file, content in files:
        if setting.name in content:
            return content[setting.name], str(file)
    return setting.default, "default"


def _files(environ: Mapping[str, str], directory: Path) -> list[tuple[Path, dict[str, Any]]]:
    home = environ.get("XDG_CONFIG_HOME") or (str(Path(environ["HOME"], ".config")) if environ.get("HOME") else None)
    candidates = [directory / PROJECT_FILE]
    if home:
        candidates.append(Path(home, "perdure", "config.toml"))
    found = []
    for path in candidates:
        if not path.exists():
            continue
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}", hint="it is a TOML file: key = value") from None
        if isinstance(table := content.pop("cli", {}), dict):
            _add_cli_table(path, content, table)
        if unknown := set(content) - set(BY_NAME):
            raise ConfigError(
                f"{path} has unknown settings: {', '.join(sorted(unknown))}", hint=f"known: {', '.join(BY_NAME)}"
            )
        found.append((path, content))
    return found


def _add_cli_table(path: Path, content: dict[str, Any], table: dict[str, Any]) -> None:
    """Its keys are settings without their `cli_`; `lease.ttl` and `db.url` may be written as the design document has them."""
    if isinstance(lease := table.get("lease"), dict):
        table = {**table, **{f"lease_{name}": value for name, value in lease.items()}}
        del table["lease"]
    if isinstance(db := table.pop("db", None), dict) and set(db) == {"url"}:
        if "database_url" in content:
            raise ConfigError(
                f"{path} has database_url and, in [cli], db.url", hint="they are one setting: keep one of them"
            )
        content["database_url"] = db["url"]
    elif db is not None:
        raise ConfigError(f"{path}: db of [cli] has one key, url", hint='db.url = "postgresql://..."')
    content.update({f"cli_{name}": value for name, value in table.items()})


def shown(setting: Setting, value: Any) -> str:
    """A value for people; a password in a URL is never shown."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join(value)
    return masked(str(value)) if setting.name == "database_url" else str(value)
