"""Whether the files of a job, and the records of its runs of coding CLIs, fit the job."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model.states import Status
from perdure.store.fsck.case import Case, Fault
from perdure.store.rows import Row


def faults_of_files(case: Case, job: Row, status: Status) -> Iterator[Fault]:
    """Every file has a content of its size, and is of an attempt that the job has begun, as are runs and what they wrote."""
    del status
    for row in case.rows("files"):
        name = f"the {'input' if row['is_input'] else 'output'} {row['path']!r:.100}"
        if row["tenant_id"] != job["tenant_id"]:
            yield Fault("file-differs", f"{name} is of tenant {row['tenant_id']}, the job is not")
        elif row["lost"]:
            yield Fault("content-lost", f"{name} has no content")
        elif row["another_size"]:
            yield Fault("file-differs", f"{name} has another size than its content")
        if not (row["attempt"] == 0 if row["is_input"] else 0 < row["attempt"] <= job["attempt"]):
            yield Fault("file-unknown", f"{name} is of attempt {row['attempt']}, which the job has not begun")
    for part, what in (("tool_runs", "a run of a coding CLI"), ("tool_output", "output of a coding CLI")):
        for row in case.rows(part):
            if not 0 < row["attempt"] <= job["attempt"]:
                text = f"there is {what} of attempt {row['attempt']}, which the job has not begun"
                yield Fault("tool-run-unknown", text)
            elif part == "tool_runs" and row["tenant_id"] != job["tenant_id"]:
                yield Fault("tool-run-unknown", f"{what} is of tenant {row['tenant_id']}, the job is not")
