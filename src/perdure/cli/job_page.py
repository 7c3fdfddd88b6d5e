"""The page of `jobs get`: one job with everything that is stored about it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.text import Text

from perdure.cli import event_table as eventtable
from perdure.cli import step_table as steps
from perdure.cli.format import Times, approve_command, clean_text, one_line, short, span
from perdure.cli.job_table import attempts, attempts_of, bar
from perdure.cli.output import Column, as_dict, laid_out, status_cell
from perdure.model import budgets
from perdure.model import partial as partials
from perdure.model.approvals import Approval
from perdure.model.cost import text_of_cost
from perdure.model.jobs import Job, RunRecord
from perdure.model.states import FAILURES, Status
from perdure.model.steps import steps_of
from perdure.operations.jobs import JobRecord

PARTS = ("payload", "result", "error", "waits", "signals", "checkpoint", "steps", "runs", "events")
BOUND = 20
"""Lines of a payload, result or checkpoint on the page; --show prints all of them."""
LAST_EVENTS = 6


def as_json(record: JobRecord, parts: Iterable[str]) -> dict[str, Any]:
    """The fields of a job, and of the parts that are not on the job itself."""
    value = as_dict(record.job)
    if "events" in parts:
        value["events"] = [eventtable.as_json(e) for e in record.events]
    if "steps" in parts:
        value["steps"] = steps_of(record.events)
    if "signals" in parts:
        value["signals"] = record.signals
    if "runs" in parts:
        value["runs"] = record.runs
    budget = budgets.summary(budgets.use_of(record.events))
    if budget is not None:
        value["budget"] = budget
    if record.shared_budgets:
        value["shared_budgets"] = [as_dict(found) | {"left": found.left} for found in record.shared_budgets]
    if record.job.status in FAILURES and record.events:
        value["partial"] = partials.partial_of(record.job, record.events)
    return value


class JobPage:
    """Lays the record of a job out for people."""

    def __init__(self, record: JobRecord, times: Times, width: int | None) -> None:
        self._record = record
        self._job = record.job
        self._times = times
        self._width = width
        self._text = Text()

    def whole(self) -> Text:
        """Everything, long values cut."""
        self._head()
        self._facts()
        for part in ("waits", "signals", "error", "payload", "result", "checkpoint", "runs", "events"):
            self._part(part, bound=BOUND)
        return self._text

    def only(self, parts: Sequence[str]) -> Text:
        """These parts in full."""
        self._head()
        for part in parts:
            self._part(part, bound=None, empty=True)
        return self._text

    def _head(self) -> None:
        job = self._job
        word, style = status_cell(job.status)
        self._text.append(word, f"bold {style}")
        self._text.append(f"  {one_line(job.kind)}  ", "bold")
        self._text.append(f"{job.id}\n", "dim")
        if job.goal:
            self._text.append(f"{clean_text(job.goal)}\n")

    def _facts(self) -> None:
        job, show = self._job, self._times.show
        if self._record.head is not None:
            self._fact("as of", f"version {job.version} of {self._record.head}, {show(self._record.events[-1].at)}")
        self._fact("queue", f"{job.queue}, priority {job.priority}" + _other_tenant(job))
        claims = f", claimed {job.attempt} times" if job.attempt > attempts(job) else ""
        self._fact("attempts", attempts_of(job, " of ") + claims)
        took = ""
        if job.started_at and job.finished_at:
            took = f" (took {span((job.finished_at - job.started_at).total_seconds())})"
        self._fact("created", show(job.created_at))
        self._fact("started", show(job.started_at))
        self._fact("finished", show(job.finished_at) + took if job.finished_at else "")
        if job.status is Status.RETRY:
            self._fact("next attempt", show(job.next_retry_at))
            self._fact("because", str(job.note.get("error") or job.note.get("reason") or ""))
        elif job.status is Status.PENDING and job.waits and job.waits[0].answered_at is None:
            self._fact("due", "when the jobs of its batch have ended")
        elif job.due_at is not None:
            due = job.due_at <= self._times.now
            self._fact("due", f"{show(job.due_at)}{', waits for a worker' if due else ''}")
        self._fact("pruned", f"{show(job.pruned_at)}: payload, result, checkpoint" if job.pruned_at else "")
        self._fact("deadline", show(job.deadline))
        self._fact("key", job.idempotency_key or "")
        until = "" if job.unique_until is None else f", until {show(job.unique_until)}"
        self._fact("unique", "" if job.unique_key is None else job.unique_key + until)
        self._fact("tags", ", ".join(job.tags))
        if job.concurrency_key is not None:
            most = "" if job.max_concurrent is None else f", at most {job.max_concurrent} at a time"
            self._fact("limit", f"{job.concurrency_key}{most}{', waits for a slot' if job.held else ''}")
        if job.parent_id is not None:
            self._fact("parent", short(job.parent_id))
        if job.origin_id is not None:
            self._fact("origin", f"{job.origin_kind} of {short(job.origin_id)}")
        if job.lease is not None:
            left = (job.lease.expires_at - self._times.now).total_seconds()
            lease = f"lease {span(left)} left" if left > 0 else "lease expired: another worker will take it over"
            self._fact("worker", f"{job.lease.worker_id}, {lease}")
            self._fact("asked to stop", show(job.lease.cancel_requested_at))
        elif job.status.leased:
            self._fact("worker", str(job.note.get("worker") or ""))
        if job.status is Status.CANCELLED:
            self._fact("cancelled by", ", ".join(str(job.note[k]) for k in ("actor", "reason") if job.note.get(k)))
        state = job.state
        if state.progress is not None:
            self._fact(
                "progress", f"{bar(state.progress, 20)} {state.progress:.0%} {state.progress_text or ''}".rstrip()
            )
        self._fact("last step", state.cursor or "")
        if state.tokens or state.cost:
            self._fact("used", f"{state.tokens} tokens, cost {text_of_cost(state.cost)}")
        if job.status in FAILURES and self._record.events:
            self._fact("got as far as", partials.line(partials.partial_of(job, self._record.events)))
        self._fact("budget left", budgets.line(budgets.use_of(self._record.events), self._times.now))
        for shared in self._record.shared_budgets:
            self._fact("budget of", shared.line)

    def _fact(self, name: str, value: str) -> None:
        if value:
            self._text.append(f"  {name:<14}", "dim")
            self._text.append(one_line(value) + "\n")

    def _part(self, part: str, *, bound: int | None, empty: bool = False) -> None:
        job = self._job
        match part:
            case "waits":
                self._waits()
            case "signals" if self._record.signals or empty:
                self._signals()
            case "error" if job.status in FAILURES:
                self._heading(f"Error ({one_line(job.error_kind or '')})")
                self._lines(clean_text(job.error_message or ""), bound, "red")
                self._traceback(bound)
            case "error" if job.status is Status.RETRY:
                self._traceback(bound)
            case "payload" if job.payload is not None or empty:
                self._value("Payload", job.payload, bound)
            case "result" if (job.status is Status.COMPLETED and job.pruned_at is None) or empty:
                self._value("Result", job.result, bound)
            case "checkpoint" if job.state.checkpoint is not None or empty:
                self._value("Checkpoint", job.state.checkpoint, bound)
            case "steps":
                self._table("Steps", steps_of(self._record.events), steps.columns(self._times))
            case "runs" if len(self._record.runs) > 1 or empty:
                self._table("Attempts", self._record.runs, self._run_columns())
            case "events":
                shown = self._record.events if bound is None else self._record.events[-LAST_EVENTS:]
                more = len(self._record.events) - len(shown)
                heading = f"Events ({more} earlier: perdure jobs events {job.short_id})" if more else "Events"
                self._table(heading, shown, eventtable.columns(self._times))
            case _:
                pass

    def _traceback(self, bound: int | None) -> None:
        if self._job.traceback is not None:
            self._heading("Traceback")
            self._lines(clean_text(self._job.traceback), bound and 2 * bound, "")

    def _waits(self) -> None:
        job, show = self._job, self._times.show
        asked = {str(a.id): a for a in self._record.approvals}
        if not job.waits:
            return
        self._heading("Waits for")
        for wait in job.waits:
            approval = asked.get(wait.subject_id) if wait.subject_id else None
            if approval is None:
                until = f", until {show(wait.until)}" if wait.until else ""
                self._text.append(f"  {wait.kind} '{one_line(wait.key)}'{until}\n")
                continue
            left = f", expires {show(approval.expires_at)} (then: {approval.on_expiry})" if approval.expires_at else ""
            who = f", from {one_line(', '.join(approval.assignees))}" if approval.assignees else ""
            self._text.append(f"  {wait.kind} {short(approval.id)}: {one_line(approval.title)}{who}{left}\n")

    def _signals(self) -> None:
        self._heading("Signals that no wait has taken")
        for signal in self._record.signals:
            sent = f"from {one_line(signal.actor)}, {self._times.show(signal.created_at)}"
            self._text.append(f"  '{one_line(signal.key)}' {sent}\n")
        if not self._record.signals:
            self._text.append("  none\n", "dim")

    def _run_columns(self) -> list[Column[RunRecord]]:
        show = self._times.show
        return [
            Column("attempt", lambda r: str(r.attempt), right=True),
            Column("ended", lambda r: status_cell(r.outcome)),
            Column("started", lambda r: show(r.started_at), right=True),
            Column("took", lambda r: span((r.finished_at - r.started_at).total_seconds()), right=True),
            Column("worker", lambda r: r.worker_id, least=12),
            Column("error", lambda r: r.error_message or "", flexible=True),
        ]

    def _heading(self, text: str) -> None:
        self._text.append(f"\n{text}\n", "bold")

    def _value(self, heading: str, value: Any, bound: int | None) -> None:
        self._heading(heading)
        self._lines(pretty(value), bound, "")

    def _lines(self, text: str, bound: int | None, style: str) -> None:
        lines = text.split("\n")
        room = None if bound is None or self._width is None else max(20, self._width - 2)
        for line in lines[:bound]:
            cut = line if room is None or len(line) <= room else line[: room - 1] + "…"
            self._text.append(f"  {cut}\n", style or None)
        if bound is not None and len(lines) > bound:
            self._text.append(f"  … {len(lines) - bound} more lines (--show prints all)\n", "dim")

    def _table(self, heading: str, rows: Sequence[Any], columns: Sequence[Column[Any]]) -> None:
        self._heading(heading)
        if not rows:
            self._text.append("  none\n", "dim")
            return
        shown = [c for c in columns if not c.wide]
        table = laid_out(
            [[c.cell(r) for c in shown] for r in rows], shown, None if self._width is None else self._width - 2
        )
        for line in table.split("\n"):
            self._text.append("  ").append_text(line).append("\n")


def pretty(value: Any) -> str:
    """A JSON value on several lines; text of several lines is shown as it is."""
    if isinstance(value, str) and "\n" in value:
        return clean_text(value)
    return clean_text(json.dumps(value, ensure_ascii=False, indent=2))


def next_commands(job: Job, approvals: Sequence[Approval]) -> list[str]:
    """Commands to type next."""
    id = job.short_id
    if job.status is Status.WAITING_FOR_APPROVAL and approvals:
        return [f"approvals get {approvals[0].short_id}", approve_command(approvals[0])]
    if (job.status in FAILURES or job.status is Status.CANCELLED) and job.pruned_at is None:
        return [f"jobs rerun {id}", f"jobs steps {id}"]
    if job.status.terminal:
        return [f"jobs steps {id}"]
    if job.status is Status.RETRY:
        return [f"jobs retry-now {id}", f"jobs cancel {id}"]
    return [f"jobs watch {id}", f"jobs explain {id}", f"jobs cancel {id}"]


def _other_tenant(job: Job) -> str:
    return "" if job.tenant_id == "default" else f", tenant {job.tenant_id}"
