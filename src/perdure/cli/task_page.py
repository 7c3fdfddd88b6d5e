"""How a task is shown: the facts of its job, its runs, its files."""

from __future__ import annotations

import base64
from typing import Any

from rich.text import Text

from perdure.cli.format import Times, clean_text, span
from perdure.cli.job_page import JobPage
from perdure.cli.output import Column, as_dict, laid_out
from perdure.model.cost import text_of_cost
from perdure.model.task_records import JobFile, ToolRun
from perdure.operations.tasks import TaskRecord

SHOWN_CHARACTERS = 4000
"""Of one file on the page; `tasks artifacts cat` prints all of it."""


def run_columns(times: Times) -> list[Column[ToolRun]]:
    """The columns of the runs of a task."""
    return [
        Column("attempt", lambda r: str(r.attempt), right=True),
        Column("class", lambda r: f"{r.run.outcome}{f' ({r.run.detail})' if r.run.detail else ''}"),
        Column("exit", lambda r: "" if r.run.exit_code is None else str(r.run.exit_code), right=True),
        Column("account", lambda r: r.account_id or ""),
        Column("took", lambda r: span(r.run.seconds), right=True),
        Column("tokens", lambda r: str(r.run.usage.tokens), right=True),
        Column("cost", lambda r: "" if r.run.usage.cost is None else text_of_cost(r.run.usage.cost), right=True),
        Column("ended", lambda r: times.show(r.finished_at), right=True),
        Column("message", lambda r: r.run.message, flexible=True),
    ]


def file_columns() -> list[Column[JobFile]]:
    """The columns of the files of a task."""
    return [
        Column("path", lambda f: f.path, flexible=True, least=20),
        Column("from", lambda f: "input" if f.is_input else f"attempt {f.attempt}"),
        Column("bytes", lambda f: str(f.size), right=True),
        Column("sha256", lambda f: f.hash, wide=True),
    ]


def task_page(record: TaskRecord, times: Times, width: int | None) -> Text:
    """A task for people."""
    text = JobPage(record.record, times, width).whole()
    if record.runs:
        text.append("\nruns\n", "bold")
        text.append_text(
            laid_out([[c.cell(r) for c in run_columns(times)] for r in record.runs], run_columns(times), width)
        )
    for file, content in record.files or ():
        text.append(
            f"\n{'input' if file.is_input else 'output'} {clean_text(file.path)} ({file.size:,} bytes)\n", "bold"
        )
        if content is None:
            text.append(f"too large for this page: perdure tasks artifacts get {record.job.short_id} ...\n")
            continue
        shown = content.decode(errors="replace")
        text.append(clean_text(shown[:SHOWN_CHARACTERS]) + ("\n..." if len(shown) > SHOWN_CHARACTERS else "") + "\n")
    return text


def as_json(record: TaskRecord) -> dict[str, Any]:
    """A task for programs."""
    value = as_dict(record.job)
    value["runs"] = [run_as_json(run) for run in record.runs]
    if record.files is not None:
        value["files"] = [{**file_as_json(file), **_content(content)} for file, content in record.files]
    return value


def run_as_json(ended: ToolRun) -> dict[str, Any]:
    """A run for programs, flat."""
    run = ended.run
    return {
        "attempt": ended.attempt,
        "tool": ended.tool,
        "account": ended.account_id,
        "worker": ended.worker_id,
        "started_at": ended.started_at,
        "finished_at": ended.finished_at,
        "class": run.outcome,
        "detail": run.detail,
        "message": run.message,
        "exit_code": run.exit_code,
        "session": run.session_id,
        "text": run.final_text,
        "tokens_in": run.usage.tokens_in,
        "tokens_out": run.usage.tokens_out,
        "tokens_cached": run.usage.tokens_cached,
        "cost": run.usage.cost,
        "latency_ms": round(run.seconds * 1000),
        "output_files": [{"path": path, "size": size} for path, size in ended.files],
        "stdout": run.stdout.text,
        "stderr": run.stderr.text,
        "sandbox": as_dict(run.sandbox),
    }


def file_as_json(file: JobFile) -> dict[str, Any]:
    """A file for programs, without its content."""
    return {
        "path": file.path,
        "is_input": file.is_input,
        "attempt": file.attempt,
        "size": file.size,
        "sha256": file.hash,
    }


def _content(content: bytes | None) -> dict[str, str]:
    """As text where it is text, else as base64; nothing of a large file."""
    if content is None:
        return {}
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
