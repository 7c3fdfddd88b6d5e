"""Accounts, files and runs of coding CLIs: rows into records, and the other way round."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from perdure.model.cost import cost_of
from perdure.model.task_records import AccountInfo, JobFile, OutputChunk, ToolRun
from perdure.model.tooling import Account, Captured, CliRun, RunClass, Sandbox, Usage
from perdure.store.rows import Codec, Row


def row_of_account(account: Account) -> dict[str, Any]:
    """An account as the parameters of `add_account`."""
    return {
        "id": account.id,
        "tool": account.tool,
        "group_name": account.group_name,
        "name": account.name,
        "env_vars": json.dumps(dict(account.env)),
        "cred_ref": account.cred_ref,
        "enabled": account.enabled,
        "max_concurrency": account.max_concurrency,
        "dangerous": account.dangerous,
    }


def account_of(row: Row, codec: Codec) -> AccountInfo:
    """A row of `accounts`."""
    account = Account(
        id=row["id"],
        tool=row["tool"],
        group_name=row["group_name"],
        name=row["name"],
        env=json.loads(row["env_vars"]),
        cred_ref=row["cred_ref"],
        enabled=bool(row["enabled"]),
        max_concurrency=row["max_concurrency"],
        dangerous=bool(row["dangerous"]),
    )
    return AccountInfo(
        account,
        None if row["parked_until"] is None else codec.time(row["parked_until"]),
        row["parked_reason"],
        row["failed_probes"],
        codec.time(row["created_at"]),
        codec.time(row["updated_at"]),
        row["used"],
    )


def file_of(row: Row, codec: Codec) -> JobFile:
    """A row of `list_files`."""
    return JobFile(
        codec.uuid(row["id"]), row["path"], bool(row["is_input"]), row["attempt"], row["hash"], row["size_bytes"]
    )


def chunk_of(row: Row) -> OutputChunk:
    """A row of `read_output`."""
    return OutputChunk(row["attempt"], row["seq"], row["stream"], bytes(row["content"]))


def tool_run_of(row: Row, codec: Codec) -> ToolRun:
    """A row of `tool_runs`."""
    sandbox: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(row["sandbox"]).items()
    }
    run = CliRun(
        RunClass(row["class"]),
        row["detail"],
        row["message"],
        row["exit_code"],
        row["session_id"],
        row["final_text"],
        Usage(row["tokens_in"], row["tokens_out"], row["tokens_cached"], _cost(row["cost"])),
        stdout=Captured(row["stdout"], "", len(row["stdout"].encode())),
        stderr=Captured(row["stderr"], "", len(row["stderr"].encode())),
        sandbox=Sandbox(**sandbox),
        seconds=row["latency_ms"] / 1000,
    )
    return ToolRun(
        codec.uuid(row["job_id"]),
        row["attempt"],
        row["tool"],
        row["account_id"],
        row["worker_id"],
        codec.time(row["started_at"]),
        codec.time(row["finished_at"]),
        tuple((path, size) for path, size in json.loads(row["output_files"])),
        run,
    )


def _cost(value: Any) -> Decimal | None:
    return None if value is None else cost_of(value)
