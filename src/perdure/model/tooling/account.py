"""Accounts: under whose credential a coding CLI runs, and how many runs of it at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from perdure.model.errors import InvalidAccount, SecretByValue
from perdure.model.tooling.environment import account_problem, names_a_secret

MAX_CONCURRENCY = 10_000
MAX_VALUE_CHARACTERS = 32_768

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


class SecretReference(NamedTuple):
    """Where a secret is: `env:NAME`, a variable of the worker, or `file:PATH`, an absolute path on its machine."""

    source: Literal["env", "file"]
    name: str


def reference_of(value: str) -> SecretReference | None:
    """The reference that a value of an account's environment is; None if it is the value itself.

    Raises InvalidAccount for a reference that names nothing, or a path that is not absolute.
    """
    source, colon, name = value.partition(":")
    if not colon or source not in ("env", "file"):
        return None
    if source == "env":
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InvalidAccount(f"'{value}' names no variable", hint="write env:NAME")
        return SecretReference("env", name)
    if not name.startswith("/") or "\0" in name:
        raise InvalidAccount(f"'{value}' names no absolute path", hint="write file:/path/of/the/secret")
    return SecretReference("file", name)


def check_reference(value: object) -> str:
    """A reference, as a setting has it. Raises ValueError without the value, which may be the secret itself."""
    try:
        reference = reference_of(value) if isinstance(value, str) else None
    except InvalidAccount:
        reference = None
    if reference is None:
        raise ValueError("must be env:NAME or file:/absolute/path, not the secret itself")
    return str(value)


def check_max_concurrency(value: object) -> None:
    """Raises InvalidAccount unless it is a number of runs at once."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_CONCURRENCY:
        raise InvalidAccount(f"max_concurrency is a whole number from 0 to {MAX_CONCURRENCY:,}, got {value!r}")


@dataclass(frozen=True, slots=True)
class Account:
    """An account of a tool.

    id: its name in commands. tool: the tool it is for. group_name: what `worker start --accounts` takes as well; the id if left
    out. name: for people. env: environment of its runs, by variable: a plain value, `env:NAME` or `file:PATH`.
    cred_ref: a file or folder (absolute path) that is put, read-only, where the tool looks for its credential.
    max_concurrency: runs at once. dangerous: whether dangerous flags are permitted, in a controlled container.

    Raises InvalidAccount naming the field, SecretByValue for a variable that is named like a secret and is no reference.
    """

    id: str
    tool: str
    group_name: str = ""
    name: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cred_ref: str | None = None
    enabled: bool = True
    max_concurrency: int = 1
    dangerous: bool = False

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise InvalidAccount(f"the id of an account is 1 to 100 letters, digits or ._@-, got {self.id!r:.120}")
        if not self.group_name:
            object.__setattr__(self, "group_name", self.id)
        elif not _ID.fullmatch(self.group_name):
            raise InvalidAccount(f"a group name is 1 to 100 letters, digits or ._@-, got {self.group_name!r:.120}")
        check_max_concurrency(self.max_concurrency)
        if self.cred_ref is not None and (not self.cred_ref.startswith("/") or "\0" in self.cred_ref):
            raise InvalidAccount(f"cred_ref is an absolute path, got {self.cred_ref!r:.200}")
        for name, value in self.env.items():
            self._check_variable(name, value)

    def _check_variable(self, name: str, value: str) -> None:
        if problem := account_problem(name):
            raise InvalidAccount(f"the variable {name!r:.120} {problem}")
        if "\0" in value or len(value) > MAX_VALUE_CHARACTERS:
            raise InvalidAccount(f"the value of {name} is text without NUL, up to {MAX_VALUE_CHARACTERS:,} characters")
        if reference_of(value) is None and names_a_secret(name) and not value.startswith("/"):
            raise SecretByValue(
                f"{name} holds a secret and not where it is",
                hint=f"put it into a file or a variable of the worker and give {name}=file:/path or {name}=env:NAME",
            )
