"""The example of a nightly schedule: the nights of a week are backfilled, and the worker that runs it makes their reports."""

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from perdure.sync import Client
from tests.docs.pages import ROOT
from tests.docs.support import ENVIRONMENT

ORDERS = """\
2026-10-24T23:59:00+02:00,10.00
2026-10-25T00:00:00+02:00,1.10
2026-10-25T23:59:59+01:00,2.20
2026-10-26T08:00:00+01:00,4.40
"""


def test_each_night_has_one_report_also_where_the_clock_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(ORDERS)
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, str(ROOT / "examples" / "nightly_report.py")]
        program = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=log, stderr=log)
    try:
        with Client(f"sqlite:///{tmp_path}/perdure.db") as client:
            client.database.migrate()
            deadline = time.monotonic() + 60
            while not client.schedules.list():
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.05)
            week = (datetime(2026, 10, 24, 22, tzinfo=UTC), datetime(2026, 10, 27, 23, tzinfo=UTC))
            nights = client.schedules.backfill("nightly-report", *week)
            assert [str(night)[5:16] for night in nights] == ["10-25 02:30", "10-26 02:30", "10-27 02:30"]
            assert client.schedules.backfill("nightly-report", *week) == nights
            while client.jobs.count() != {"COMPLETED": 3}:
                assert time.monotonic() < deadline, client.jobs.count()
                time.sleep(0.05)
    finally:
        program.terminate()
        assert program.wait(30) in (0, -15), (tmp_path / "log").read_text()
    assert sorted(file.read_text() for file in tmp_path.glob("report-*.txt")) == [
        "2026-10-24: 1 orders, 10.00 EUR",
        "2026-10-25: 2 orders, 3.30 EUR",
        "2026-10-26: 1 orders, 4.40 EUR",
    ]
