"""Coding CLIs: one real program, run once in a workspace of its own, and what came of it. No store is needed here."""

from perdure.tools.adapters.base import Adapter
from perdure.tools.adapters.generic import described_tools
from perdure.tools.outputs import OutputFile, create_input, find_outputs, missing_outputs, open_output
from perdure.tools.registry import ADAPTERS, adapter_of, check_task
from perdure.tools.run import run_cli
from perdure.tools.settings import CliSettings, Limits

__all__ = [
    "ADAPTERS",
    "Adapter",
    "CliSettings",
    "Limits",
    "OutputFile",
    "adapter_of",
    "check_task",
    "create_input",
    "described_tools",
    "find_outputs",
    "missing_outputs",
    "open_output",
    "run_cli",
]
