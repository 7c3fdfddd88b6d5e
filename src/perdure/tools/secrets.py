"""Secrets: read where an account says that they are, and kept out of everything that is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from perdure.model.errors import SecretMissing
from perdure.model.tooling import Account, TaskSpec, reference_of
from perdure.model.tooling.environment import names_a_secret, referred_variable

SHORTEST = 6
"""Characters; a shorter text occurs in output by chance."""
LINE = 16
"""Characters; a line of a secret that has several is one as well, if it is as long as this."""
LARGEST_FILE = 1024 * 1024
MASK = b"[secret]"


class ResolvedTask(NamedTuple):
    """What a task adds to a run. env: environment; servers: MCP servers; secrets: among the values."""

    env: dict[str, str]
    servers: dict[str, dict[str, Any]]
    secrets: list[str]


def resolve(account: Account, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The environment of an account with its references read, and the secrets among its values. Raises SecretMissing."""
    values: dict[str, str] = {}
    secrets: list[str] = []
    for name, value in account.env.items():
        reference = reference_of(value)
        if reference is None:
            values[name] = value
            continue
        if reference.source == "env":
            if reference.name not in environ:
                raise SecretMissing(
                    f"account {account.id}: this worker has no variable {reference.name}, which {name} refers to"
                )
            values[name] = environ[reference.name]
        else:
            values[name] = _read(account, Path(reference.name)).strip()
        secrets.append(values[name])
    secrets += [value for name, value in values.items() if names_a_secret(name)]
    return values, secrets


def resolve_task(task: TaskSpec, permitted: Collection[str], environ: Mapping[str, str]) -> ResolvedTask:
    """The environment of a task and its MCP servers with their references read, and the secrets among the values.

    permitted: the variables of the worker that a task may refer to. Raises SecretMissing.
    """
    secrets: list[str] = []

    def read(values: Mapping[str, str]) -> dict[str, str]:
        return {name: _task_value(name, value, permitted, environ, secrets) for name, value in values.items()}

    servers = {name: {**server, "env": read(server.get("env", {}))} for name, server in task.mcp_servers.items()}
    return ResolvedTask(read(task.env), servers, secrets)


def _task_value(
    name: str, value: str, permitted: Collection[str], environ: Mapping[str, str], secrets: list[str]
) -> str:
    variable = referred_variable(value)
    if variable is None:
        return value
    if variable not in permitted:
        raise SecretMissing(
            f"{name} of the task refers to {variable}, which this worker does not let tasks have",
            hint=f"cli_task_env of the worker names the variables that it does: PERDURE_CLI_TASK_ENV={variable}",
        )
    if variable not in environ:
        raise SecretMissing(f"this worker has no variable {variable}, which {name} of the task refers to")
    secrets.append(environ[variable])
    return environ[variable]


def credential_of(account: Account, env: Mapping[str, str], file: str, own_home: str) -> Path | None:
    """The credential file of an account: its cred_ref, or in the folder that it or a variable names. `file`: where it belongs in
    HOME (`.codex/auth.json`). Raises SecretMissing if cred_ref is not there or has no such file."""
    folder, name = Path(file).parent, Path(file).name
    if account.cred_ref is not None:
        places = _places(Path(account.cred_ref), folder, name)
        if found := next((place for place in places if place.is_file()), None):
            return found
        raise SecretMissing(f"account {account.id}: there is no {name} at its cred_ref {account.cred_ref}")
    for variable in (own_home, "XDG_CONFIG_HOME"):
        if variable and variable in env:
            for place in _places(Path(env[variable]), folder, name):
                if place.is_file() and place.is_absolute():
                    return place
    return None


def read_credential(account: Account, path: Path) -> tuple[str, list[str]]:
    """The text of a credential file, and the secrets in it. Raises SecretMissing."""
    text = _read(account, path)
    try:
        secrets = list(_leaves(json.loads(text)))
    except (ValueError, RecursionError):
        secrets = text.split()
    return text, [secret for secret in secrets if len(secret) >= 12]


def _places(base: Path, folder: Path, name: str) -> tuple[Path, ...]:
    return (base, base / name, base / folder / name, base / str(folder).lstrip(".") / name)


def _read(account: Account, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise SecretMissing(f"account {account.id}: {path} is larger than {LARGEST_FILE:,} bytes")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise SecretMissing(f"account {account.id}: {path} cannot be read: {reason}") from None


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)


class Masker:
    """Replaces secrets by `[secret]`, as they are and as they stand in JSON text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms: set[bytes] = set()
        for secret in secrets:
            lines = [line for line in secret.split() if len(line) >= LINE] if "\n" in secret else []
            for text in (secret, *lines):  # a diff has each line of a key for itself
                if len(text) >= SHORTEST:
                    forms |= {text.encode(), json.dumps(text)[1:-1].encode()}
        ordered = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, ordered))) if ordered else None
        self._prefixes = {form[:length] for form in ordered for length in range(1, len(form))}
        self._longest = max((len(form) for form in ordered), default=1) - 1

    def mask(self, data: bytes) -> bytes:
        """Data without secrets."""
        return data if self._pattern is None else self._pattern.sub(MASK, data)

    def mask_text(self, text: str) -> str:
        """Text without secrets."""
        return self.mask(text.encode(errors="replace")).decode(errors="replace")

    def stream(self) -> MaskedStream:
        """For data that comes in pieces: a secret may be cut between two of them."""
        return MaskedStream(self)

    def held_back(self, data: bytes) -> int:
        """How many bytes at the end could be the beginning of a secret."""
        if self._pattern is None:
            return 0
        longest = min(self._longest, len(data))
        return next((n for n in range(longest, 0, -1) if data[-n:] in self._prefixes), 0)


class MaskedStream:
    """One stream whose secrets are replaced."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._kept = b""
        self.replaced = False
        """Whether there was a secret."""

    def feed(self, data: bytes) -> bytes:
        """The next piece, without secrets; its end may be kept back until the next call."""
        whole = self._kept + data
        data = self._masker.mask(whole)
        self.replaced = self.replaced or data != whole
        kept = self._masker.held_back(data)
        self._kept = data[len(data) - kept :]
        return data[: len(data) - kept]

    def end(self) -> bytes:
        """What was kept back."""
        kept, self._kept = self._kept, b""
        return kept
