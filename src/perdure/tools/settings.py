"""What a worker's configuration says about runs of coding CLIs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the operating system for every process of a run; None is no limit of ours.

    cpu_seconds, open_files, file_bytes (of one file), address_bytes. processes: of the whole run where cgroups can be made;
    elsewhere of the user, which is not enforced for root. memory_bytes: of the whole run where cgroups can be made; elsewhere it
    is the address space of each process, or the least with which the tool starts if that is more.
    """

    cpu_seconds: int | None = 4 * 3600
    open_files: int | None = 4096
    file_bytes: int | None = 4096 * MIB
    processes: int | None = 4096
    address_bytes: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CliSettings:
    """How coding CLIs are run.

    level: the sandbox level that is asked for, `L0`, `L1` or `L2`; min_level: below it a run is refused. limits: of the operating
    system. nice: added to the niceness. retries: how often a CLI repeats a failed request by itself. idle_timeout: seconds a CLI
    waits for an answer of its API. give_up_after: seconds of warnings without progress after which a run is ended.
    captured_bytes: kept of the head and of the tail of each stream. path: where programs are looked for; None is the PATH of the
    worker. ports: TCP ports that a confined run may connect to, besides those in the URLs of its account.
    controlled_container: this worker runs in a container that is made for dangerous flags. sessions: the folder where sessions
    are kept so that a later run can continue them; None = none are kept. cgroups: folders below which cgroups are made; none
    given: those that were delegated to this process. task_env: variables of the worker that tasks may refer to.
    """

    level: str = "L1"
    min_level: str = "L0"
    limits: Limits = field(default_factory=Limits)
    nice: int = 5
    retries: int = 2
    idle_timeout: float = 120.0
    give_up_after: float = 60.0
    captured_bytes: int = 64 * KIB
    path: str | None = None
    ports: tuple[int, ...] = (53, 80, 443)
    controlled_container: bool = False
    sessions: Path | None = None
    cgroups: tuple[str, ...] = ()
    task_env: tuple[str, ...] = ()
