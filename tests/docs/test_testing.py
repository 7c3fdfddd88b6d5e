"""The page on testing, done as it says: its agent and its tests in files, in a session of pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.docs.support import ENVIRONMENT
from tests.testing.test_plugin import PLUGIN

PAGE = ROOT / "docs" / "testing.md"


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for block in blocks(PAGE, "python"):
        (tmp_path / block.text.splitlines()[0].removeprefix("# ")).write_text(block.text)
    [ini] = blocks(PAGE, "ini")
    (tmp_path / "pytest.ini").write_text(ini.text)
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"}
    command = [sys.executable, "-m", "pytest", *PLUGIN]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert " 4 passed" in done.stdout, done.stdout + done.stderr
