"""What is known of each operation as data."""

import inspect
import json
import pkgutil
from importlib import import_module
from typing import Any

import pytest
from pydantic import ValidationError

import perdure.operations
from perdure.model.errors import JobNotFound, PerdureError, StoreUnreachable
from perdure.operations import catalog
from perdure.operations.catalog import OPERATIONS
from perdure.operations.describe import input_model, input_schema, output_schema
from perdure.operations.registry import Operation, Role, operation

each = pytest.mark.parametrize("which", OPERATIONS.values(), ids=lambda o: o.name)


@each
def test_it_says_what_it_is(which: Operation) -> None:
    noun, _, verb = which.name.partition(".")
    assert noun in (
        "jobs",
        "tasks",
        "accounts",
        "agents",
        "limits",
        "queues",
        "schedules",
        "memory",
        "approvals",
        "workers",
        "database",
    )
    assert verb
    assert which.description.endswith(".")
    assert which.role in Role
    assert all(issubclass(error, PerdureError) for error in which.errors)
    assert inspect.iscoroutinefunction(which.function) or which.streams
    assert next(iter(inspect.signature(which.function).parameters)) == "client"


@each
def test_its_input_and_output_have_a_schema(which: Operation) -> None:
    schema = input_schema(which)
    assert schema["additionalProperties"] is False
    named = set(inspect.signature(which.function).parameters) - {"client"}
    left_out = {name for name in named if name.startswith("on_")}
    assert set(schema.get("properties", {})) == named - left_out
    assert json.dumps(output_schema(which))


def test_the_schema_of_an_input() -> None:
    schema = input_schema(OPERATIONS["jobs.cancel"])
    assert schema["required"] == ["job_id"]
    assert {name: value.get("default") for name, value in schema["properties"].items()} == {
        "job_id": None,
        "reason": None,
        "force": False,
    }


def test_an_input_is_read_from_json() -> None:
    model: Any = input_model(OPERATIONS["jobs.count"])
    given = model.model_validate_json(
        '{"which": {"kind": ["research"], "since": "2026-01-01T00:00:00Z"}, "by": "queue"}'
    )
    assert given.which.kind == ("research",)
    assert given.which.since.year == 2026
    with pytest.raises(ValidationError):
        model.model_validate_json('{"by": "colour"}')
    with pytest.raises(ValidationError):
        model.model_validate_json('{"colour": "red"}')


def test_what_is_left_out_is_not_given() -> None:
    model: Any = input_model(OPERATIONS["approvals.approve"])
    assert model.model_validate({"approval_id": "x"}).model_dump(exclude_unset=True) == {"approval_id": "x"}
    edited = model.model_validate({"approval_id": "x", "edited": None})
    assert edited.model_dump(exclude_unset=True) == {"approval_id": "x", "edited": None}


def test_the_catalog_knows_every_module() -> None:
    here = perdure.operations
    modules = {import_module(f"{here.__name__}.{module.name}") for module in pkgutil.iter_modules(here.__path__)}
    with_operations = {m for m in modules if any(o.function.__module__ == m.__name__ for o in OPERATIONS.values())}
    assert set(catalog.MODULES) == with_operations


def test_each_role_may_do_what_the_roles_before_it_may() -> None:
    assert [r for r in Role if r.may(Role.VIEWER)] == list(Role)
    assert [r for r in Role if r.may(Role.APPROVER)] == [Role.APPROVER, Role.ADMIN]
    assert [r for r in Role if r.may(Role.ADMIN)] == [Role.ADMIN]


def test_errors_of_the_database_are_common_to_all() -> None:
    which = OPERATIONS["jobs.count"]
    assert which.declares(StoreUnreachable("it is away"))
    assert not which.declares(JobNotFound("no such job"))


def test_two_operations_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match=r"two operations are named jobs\.get"):

        @operation("jobs.get", role=Role.VIEWER)
        async def another(client: object) -> None:
            del client
