"""The example of two agents: both workers are killed in the middle of the conversation, and it goes on."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from perdure.sync import Client
from tests.docs.pages import ROOT
from tests.docs.support import ENVIRONMENT

SCRIPT = ROOT / "examples" / "two_agents.py"


def start(place: Path, *words: str) -> subprocess.Popen[bytes]:
    with (place / "log").open("a") as log, (place / words[0]).open("a") as said:
        command = [sys.executable, str(SCRIPT), *words]
        return subprocess.Popen(command, cwd=place, env=ENVIRONMENT, stdout=said, stderr=log)


def test_they_converse_although_both_are_killed(tmp_path: Path) -> None:
    with Client(f"sqlite:///{tmp_path}/perdure.db") as client:
        client.database.migrate()
        asker = start(tmp_path, "loud")
        workers = {agent: start(tmp_path, "work", agent) for agent in ("critic", "writer")}
        try:
            deadline = time.monotonic() + 60
            while len(client.jobs.list(agent="critic").items) < 2:
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.02)
            for agent, worker in workers.items():
                worker.kill()
                assert worker.wait(20) == -signal.SIGKILL
                workers[agent] = start(tmp_path, "work", agent)
            assert asker.wait(90) == 0, (tmp_path / "log").read_text()
            assert (tmp_path / "loud").read_text() == "loud!!!\n"
            texts = [job.payload["message"]["payload"] for job in client.jobs.list(agent="critic").items]
            assert texts == ["loud" + "!" * n for n in (3, 2, 1, 0)]
            [job] = client.jobs.list(agent="writer").items
            taken = [event for event in client.jobs.events(job.id) if event.type == "agent_message"]
            assert len(taken) == 4
        finally:
            for process in (asker, *workers.values()):
                process.kill()
                process.wait(20)
