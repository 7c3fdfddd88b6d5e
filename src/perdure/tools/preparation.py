"""Everything that a run needs before its program starts: the program, secrets, files, environment, confinement."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from perdure.model.errors import DangerRefused
from perdure.model.tooling import Account, RunStart, Sandbox, TaskSpec
from perdure.tools.adapters.base import Adapter, Request
from perdure.tools.cgroup_probe import cgroups
from perdure.tools.cgroups import Delegated
from perdure.tools.process import Order
from perdure.tools.programs import installed, search_path
from perdure.tools.sandbox import Confinement, Needs, confinement, devices, in_container, machine, readable
from perdure.tools.secrets import Masker, credential_of, read_credential, resolve, resolve_task
from perdure.tools.sessions import saved
from perdure.tools.settings import CliSettings, Limits

_URL = re.compile(r"https?://[^\s\"']+")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can be started; what confines it is in `start`. credential: the copy of the credential file in HOME, and its
    text."""

    order: Order
    stdin: bytes
    start: RunStart
    masker: Masker
    credential: tuple[Path, str] | None


async def prepare(
    task: TaskSpec,
    account: Account,
    adapter: Adapter,
    settings: CliSettings,
    *,
    workspace: Path,
    home: Path,
    environ: Mapping[str, str],
) -> Prepared:
    """Find the program, read the secrets, write the files of HOME. Raises the subclass of ToolRefused that fits."""
    workspace, home = _resolved(workspace), _resolved(home)
    program, version = await installed(adapter, settings)
    values, secrets = resolve(account, environ)
    own = resolve_task(task, settings.task_env, environ)
    secrets += own.secrets
    source = credential_of(account, values, adapter.credential, adapter.own_home)
    here = await machine(adapter.bundled_bwrap(program))
    tmp = home / "tmp"
    needs = Needs(
        read=readable(program.folders),
        write=(str(workspace), str(home), *devices()),
        ports=tuple(sorted({*settings.ports, *_ports(values.values())})),
        cwd=str(workspace),
        under_landlock=adapter.under_landlock,
    )
    confined = confinement(settings.level, settings.min_level, needs, here)
    if account.dangerous:
        _check_danger(account, settings, confined, source)
    request = Request(
        task=task,
        account=account,
        env=values,
        workspace=workspace,
        home=home,
        tmp=tmp,
        settings=settings,
        credential=source is not None,
        dangerous=account.dangerous,
        task_env=own.env,
        mcp_servers=own.servers,
    )
    call = adapter.command(request)
    files = dict(call.files)
    credential: tuple[Path, str] | None = None
    if task.session is not None and settings.sessions is not None and adapter.session_pattern is not None:
        name, kept = saved(settings.sessions, account, task.session)
        files |= adapter.session_files(name, kept, workspace)
    if source is not None:
        text, more = read_credential(account, source)
        secrets += more
        files[adapter.credential] = text
        credential = (home / adapter.credential, text)
    _write(home, tmp, files, read_only=adapter.credential)
    groups = await cgroups(settings.cgroups)
    limits = _limits(adapter, settings, groups)
    sandbox = _with_limits(confined.sandbox, limits, groups)
    argv = (*confined.prefix, *program.argv, *call.args)
    env = {**_common(settings, home, tmp), **own.env, **call.env}
    masker = Masker(secrets)
    start = RunStart(
        tool=adapter.name,
        version=version,
        args=tuple(map(masker.mask_text, (*program.argv, *call.args))),
        sandbox=sandbox,
        dangerous=tuple(arg for arg in call.args if "dangerous" in arg),
        writable=(str(workspace), str(home)),
        ports=needs.ports if confined.rules is not None and confined.rules.get("ports") is not None else None,
    )
    order = Order(
        argv,
        env,
        workspace,
        limits,
        settings.nice,
        confined.rules,
        adapter.soft_signal,
        groups.groups(str(home), memory=limits.memory_bytes, pids=limits.processes),
        mark=str(home),
    )
    return Prepared(order, call.stdin.encode(), start, masker, credential)


def _common(settings: CliSettings, home: Path, tmp: Path) -> dict[str, str]:
    """The environment that every run begins with; nothing of the worker's own is in it but PATH."""
    return {
        "PATH": search_path(settings),
        "HOME": str(home),
        "TMPDIR": str(tmp),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "TZ": "UTC",  # clock times in messages are read as UTC
        "GIT_TERMINAL_PROMPT": "0",
    }


def _limits(adapter: Adapter, settings: CliSettings, groups: Delegated) -> Limits:
    """Those of the settings; the address space is at least what the tool starts with."""
    limits = settings.limits
    asked = [limits.address_bytes, limits.memory_bytes if groups.memory is None else None]
    least = min((number for number in asked if number is not None), default=None)
    return limits if least is None else replace(limits, address_bytes=max(least, adapter.address_bytes or 0))


def _with_limits(sandbox: Sandbox, limits: Limits, groups: Delegated) -> Sandbox:
    """With the limits on the whole run that were set, and those that could not be set."""
    missing, found = list(sandbox.missing), list(sandbox.limits)
    if limits.memory_bytes is not None:
        (found if groups.memory is not None else missing).append("memory")
    if limits.processes is not None and groups.pids is not None:
        found.append("pids")
    elif limits.processes is not None and os.geteuid() == 0:  # to root the other limit of processes does not apply
        missing.append("pids")
    return replace(sandbox, limits=tuple(found), missing=tuple(missing))


def _ports(values: Iterable[str]) -> set[int]:
    """The ports of the URLs among these values."""
    found = set()
    for value in values:
        for url in _URL.findall(value):
            parts = urlsplit(url)
            try:
                found.add(parts.port or (443 if parts.scheme == "https" else 80))
            except ValueError:
                continue
    return found


def _check_danger(account: Account, settings: CliSettings, confined: Confinement, credential: Path | None) -> None:
    """Both conditions of the design document: a controlled container, and a credential that the run cannot change."""
    if not settings.controlled_container:
        raise DangerRefused(
            f"account {account.id} permits dangerous flags, but this worker is not configured as a controlled container",
            hint="controlled_container = true in the worker's configuration, if it is one",
        )
    if not in_container() and confined.sandbox.effective != "L2":
        raise DangerRefused(
            f"account {account.id} permits dangerous flags, but this worker is in no container and has no sandbox of level L2"
        )
    if credential is not None and confined.sandbox.effective == "L0" and os.access(credential, os.W_OK):
        mounted_read_only = os.statvfs(credential).f_flag & os.ST_RDONLY
        if not mounted_read_only:
            raise DangerRefused(
                f"account {account.id} permits dangerous flags, but its credential {credential} can be written to",
                hint="mount the folder read-only",
            )


def _resolved(path: Path) -> Path:
    return path.resolve()


def _write(home: Path, tmp: Path, files: Mapping[str, str], read_only: str) -> None:
    tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        if name == read_only:
            path.chmod(0o400)


def has_changed(credential: tuple[Path, str] | None) -> bool:
    """Whether the run wrote to its copy of the credential."""
    if credential is None:
        return False
    path, text = credential
    try:
        return path.is_symlink() or path.read_text(encoding="utf-8") != text
    except (OSError, UnicodeDecodeError):
        return True
