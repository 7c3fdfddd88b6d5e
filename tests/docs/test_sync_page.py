"""The page about synchronous code, done as it says: a worker in one terminal, its programs in another."""

from pathlib import Path

from tests.docs.pages import ROOT
from tests.docs.support import a_worker, run_program, write_programs


def test_the_programs(tmp_path: Path) -> None:
    write_programs(ROOT / "docs" / "sync.md", tmp_path)
    with a_worker(tmp_path, "notes:app"):
        result, *events, status = run_program(tmp_path, "ask.py").splitlines()
        assert (result, status) == ("3", "COMPLETED")
        assert (events[0], events[-1]) == ("1 job_created", f"{len(events)} job_completed")
        assert run_program(tmp_path, "elsewhere.py") == "3\n"
