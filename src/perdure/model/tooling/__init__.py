"""Coding CLIs: what a task asks for, the account it runs under, and what came of a run. Records and pure rules."""

from perdure.model.tooling.account import Account, SecretReference, check_reference, reference_of
from perdure.model.tooling.new_task import NewTask, task_of_json
from perdure.model.tooling.paths import check_path, check_pattern, matches
from perdure.model.tooling.run import Captured, CliRun, RunClass, RunStart, Sandbox, Usage
from perdure.model.tooling.task import AUTO, TaskSpec, is_session

__all__ = [
    "AUTO",
    "Account",
    "Captured",
    "CliRun",
    "NewTask",
    "RunClass",
    "RunStart",
    "Sandbox",
    "SecretReference",
    "TaskSpec",
    "Usage",
    "check_path",
    "check_pattern",
    "is_session",
    "matches",
    "check_reference",
    "reference_of",
    "task_of_json",
]
