"""The threads of plain functions: as many as wanted, reused, and left behind when a process has to end."""

import subprocess
import sys
import threading
from concurrent.futures import CancelledError, wait

import pytest

from perdure.runtime.threads import DaemonThreads


def test_functions_run_in_as_many_threads_as_are_needed() -> None:
    threads = DaemonThreads(4, "test")
    together = threading.Barrier(4)
    assert {future.result(10) for future in [threads.submit(together.wait, 10) for _ in range(4)]} == {0, 1, 2, 3}
    names = [threads.submit(lambda: threading.current_thread().name).result(10) for _ in range(50)]
    assert set(names) <= {f"test-{n}" for n in range(4)}
    many = [threads.submit(pow, 2, n) for n in range(200)]
    assert [future.result(10) for future in many] == [2**n for n in range(200)]
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 1, 0).result(10)
    threads.shutdown(wait=True)
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(print)


@pytest.mark.parametrize("cancel", [True, False])
def test_what_has_not_begun_at_shutdown_is_cancelled_or_done(cancel: bool) -> None:
    threads = DaemonThreads(1, "test")
    begun, gate = threading.Event(), threading.Event()

    def hold() -> bool:
        begun.set()
        return gate.wait(10)

    running = threads.submit(hold)
    waiting = [threads.submit(pow, 2, n) for n in range(3)]
    assert begun.wait(10)
    threads.shutdown(wait=False, cancel_futures=cancel)
    gate.set()
    wait([running] if cancel else [running, *waiting], 10)
    assert running.result(0)
    for future in waiting:
        if cancel:
            with pytest.raises(CancelledError):
                future.result(0)
        else:
            assert future.result(0) in (1, 2, 4)
    threads.shutdown(wait=True)


def test_a_process_ends_while_a_function_is_running() -> None:
    program = """
import threading
from perdure.runtime.threads import DaemonThreads
threads = DaemonThreads(2, "test")
begun = threading.Event()
threads.submit(lambda: begun.set() or threading.Event().wait())
begun.wait()
threads.shutdown(wait=False, cancel_futures=True)
print("the end")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")
