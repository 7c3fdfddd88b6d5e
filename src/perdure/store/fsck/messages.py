"""Whether the messages that a job has got fit its log."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model.states import Status
from perdure.model.waits import MESSAGE
from perdure.store.fsck.case import Case, Fault, Repair
from perdure.store.rows import Row


def faults_of_messages(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """A job has the message that it was started for, and those that its waits have taken, as its log says."""
    del status
    for begun in case.rows("begun_for"):
        id = case.codec.uuid(begun["id"])
        if begun["gone"]:
            yield Fault("message-missing", f"it was started for message {id}, which does not exist")
        elif begun["consumed_by_job_id"] is None and begun["refused"] is None:
            taken = Repair("take_message", {"id": begun["id"], "job_id": case.key})
            yield Fault("message-unbound", f"it was started for message {id}, which is still pending", taken)
        elif begun["consumed_by_job_id"] != case.key:
            yield Fault("message-twice", f"it was started for message {id}, which another job has or which was refused")
    taken_by = {row["consumed_key"] for row in case.rows("messages")}
    for wait in case.rows("waits"):
        answered = (wait["kind"], wait["key"]) in case.log.answered
        if wait["kind"] == MESSAGE.name and answered and wait["key"] not in taken_by:
            yield Fault("message-missing", f"its log says that '{wait['key']}' has taken a message, and it has none")
    for row in case.rows("messages"):
        id = case.codec.uuid(row["id"])
        key = row["consumed_key"]
        if key is not None and not case.log.unreadable and (key, id) not in case.log.messages:
            yield Fault("message-unknown", f"'{key}' has taken message {id}, of which its log says nothing")
        if row["tenant_id"] != job["tenant_id"]:
            yield Fault("message-differs", f"message {id} is of tenant {row['tenant_id']}, the job is not")
