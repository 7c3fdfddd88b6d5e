"""The machine that is measured on, and the log level of the benchmark."""

import logging
import os
import platform
import sys
import tempfile
from pathlib import Path

import structlog


def warnings_only() -> None:
    """Log warnings and errors alone, to stderr."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def load() -> float:
    """The load average of the last minute: what else ran on this machine."""
    return os.getloadavg()[0]


def idle_seconds() -> float | None:
    """Seconds that its cores have been idle so far, all together; None where there is no /proc."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
    except OSError:
        return None
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def machine() -> str:
    """Processor, cores, interpreter and file system, in a line."""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, {tempfile.gettempdir()} on {_file_system(Path(tempfile.gettempdir()))}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"


def _file_system(path: Path) -> str:
    """Memory (tmpfs) would make every commit free: then set TMPDIR to a directory on a disk."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "an unknown file system"
    holding = [(where, kind) for where, kind in mounts if path.resolve().is_relative_to(where)]
    return max(holding, key=lambda m: len(m[0]), default=("", "an unknown file system"))[1]
