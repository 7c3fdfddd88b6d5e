"""How a function is made an operation, and what is known of each: its name, its role, its errors, its documentation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, TypeVar

from perdure.model.errors import ConfigError, PerdureError, StoreError

F = TypeVar("F", bound=Callable[..., Any])

COMMON_ERRORS: tuple[type[PerdureError], ...] = (ConfigError, StoreError)
"""Raised by every operation where the database cannot be opened or used; an operation does not declare them."""


class Role(StrEnum):
    """Who may call an operation. Each role may do what the roles before it may do.

    VIEWER reads and changes nothing. OPERATOR enqueues and controls jobs and workers. APPROVER decides approvals.
    ADMIN changes the schema, repairs and deletes.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        """Whether this role may call an operation that needs `needed`."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class Unset(Enum):
    """The default of an argument that may be left out, where None is a value of its own."""

    UNSET = "unset"


UNSET = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. name: `jobs.cancel`: a noun and a verb. errors: what it raises besides COMMON_ERRORS; a class
    stands for its subclasses too.
    """

    name: str
    role: Role
    errors: tuple[type[PerdureError], ...]
    function: Callable[..., Any]

    @property
    def description(self) -> str:
        """What it does, for people."""
        return inspect.getdoc(self.function) or ""

    @property
    def streams(self) -> bool:
        """Whether it yields results as they come, instead of returning one."""
        return inspect.isasyncgenfunction(self.function)

    def declares(self, error: BaseException) -> bool:
        """Whether it says that it raises such an error."""
        return isinstance(error, (*self.errors, *COMMON_ERRORS))


REGISTERED: dict[str, Operation] = {}
"""The operations of the modules imported so far; `catalog.OPERATIONS` has them all."""


def operation(name: str, *, role: Role, errors: Iterable[type[PerdureError]] = ()) -> Callable[[F], F]:
    """Make an operation of an async function `(client, ...)`. The function itself stays as it is.

    role: the least role that may call it; checked by whatever lets other people call it, not here.
    """

    def register(function: F) -> F:
        if name in REGISTERED and REGISTERED[name].function.__qualname__ != function.__qualname__:
            raise ValueError(f"two operations are named {name}")
        REGISTERED[name] = Operation(name, role, tuple(errors), function)
        return function

    return register
