"""The worker processes of a demo: started, killed and stopped, each with a log of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from perdure.cli.demo_view import View
from perdure.cli.errors import DemoFailed


class DemoWorkers:
    """Workers that run in a directory. settings: their settings, by name; environment: further variables; paths: where Python
    finds their App."""

    def __init__(
        self,
        directory: Path,
        view: View,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
        paths: Sequence[Path] = (),
    ) -> None:
        self._directory = directory
        self._view = view
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("PERDURE_")}
        self._environment |= {f"PERDURE_{name.upper()}": value for name, value in settings.items()} | dict(environment)
        found = [*map(str, paths), self._environment.get("PYTHONPATH", "")]
        self._environment["PYTHONPATH"] = os.pathsep.join(p for p in found if p)
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, command: str) -> None:
        """Start one; `command` is what a person would type."""
        with self._log_of(len(self.started) + 1).open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "perdure", "worker", "start", "--supervised"],
                stdin=subprocess.PIPE,  # it stops when we are gone, however we went
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._directory,
                start_new_session=True,  # Ctrl-C is ours: we stop the workers
            )
        self.started.append(worker)
        self._view.say(f"started a worker: {command} (pid {worker.pid})", "cyan")

    def check(self) -> None:
        """Raises DemoFailed if the last one has ended by itself."""
        if self.started[-1].poll() is not None:
            log = self._log_of(len(self.started)).read_text(encoding="utf-8", errors="replace").strip()
            raise DemoFailed(f"the worker ended by itself (exit {self.started[-1].returncode}):\n{log[-2000:]}")

    def kill(self) -> int:
        """SIGKILL to the last one; its pid."""
        worker = self.started[-1]
        worker.kill()
        worker.wait()
        return worker.pid

    def stop(self) -> None:
        """All of them: gracefully, then not."""
        for worker in self.started:
            if worker.poll() is None:
                worker.terminate()
        for worker in self.started:
            try:
                worker.wait(timeout=5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            if worker.stdin is not None:
                worker.stdin.close()

    def _log_of(self, number: int) -> Path:
        return self._directory / f"worker-{number}.log"
