"""Whether the signals of a job fit its log and its waits."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model.states import Status
from perdure.model.waits import SIGNAL
from perdure.store.fsck.case import Case, Fault, Repair
from perdure.store.rows import Row


def faults_of_signals(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """Signals are those that the log has seen come, and none is pending while a wait for its key is open."""
    rows = {case.codec.uuid(row["id"]): row for row in case.rows("signals")}
    if not case.log.unreadable:
        for id in sorted(case.log.signals - rows.keys()):
            yield Fault("signal-missing", f"its log received signal {id}, which does not exist")
        for id in sorted(rows.keys() - case.log.signals):
            yield Fault("signal-unknown", f"signal {id} ('{rows[id]['key']}') is not in its log")
    if other := next((row["tenant_id"] for row in rows.values() if row["tenant_id"] != job["tenant_id"]), None):
        yield Fault("signal-differs", f"a signal is of tenant {other}, the job is not")
    if status.terminal:
        return
    bound = {row["wait_key"] for row in rows.values()}
    for wait in case.rows("waits"):
        if wait["kind"] != SIGNAL.name or wait["key"] in bound:
            continue
        found = next((row for row in rows.values() if row["pending"] and row["key"] == wait["subject_id"]), None)
        if found is not None:
            repair = Repair("bind_signal", {"id": found["id"], "wait_key": wait["key"]})
            yield Fault("signal-unbound", f"'{wait['key']}' waits, and signal '{found['key']}' is pending", repair)
