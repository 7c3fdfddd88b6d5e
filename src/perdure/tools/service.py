"""What an App does with coding CLIs: its settings for them, the handlers of their tasks, and checks before anything is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from perdure.config import Settings
from perdure.model.account_choice import TaskKind
from perdure.model.errors import ConfigError
from perdure.model.task_payload import KIND_PREFIX
from perdure.model.timing import Backoff
from perdure.model.tooling import Account, CliRun, TaskSpec
from perdure.runtime.lease_times import LeaseLength
from perdure.runtime.registry import Handler, Policy, Registry
from perdure.tools.adapters.base import Adapter
from perdure.tools.adapters.generic import described_tools
from perdure.tools.probe import probe
from perdure.tools.programs import is_there, missing
from perdure.tools.registry import ADAPTERS, adapter_of, check_task
from perdure.tools.settings import CliSettings, Limits
from perdure.tools.sweeping import sweeping
from perdure.tools.task_handler import TaskHandler, ToolSettings


class ToolService:
    """The coding CLIs of one App. settings: called when they are needed."""

    def __init__(self, settings: Callable[[], Settings], registry: Registry) -> None:
        self._settings = settings
        self._registry = registry

    @property
    def adapters(self) -> Mapping[str, Adapter]:
        """Those that perdure brings, and those of the settings. Raises ConfigError."""
        return {**ADAPTERS, **described_tools(self._settings()["cli_tools"])}

    @property
    def _cli_settings(self) -> CliSettings:
        settings = self._settings()
        return CliSettings(
            level=settings["cli_sandbox"],
            min_level=settings["cli_min_sandbox"],
            captured_bytes=settings["cli_captured_bytes"],
            controlled_container=settings["cli_controlled_container"],
            limits=Limits(processes=settings["cli_processes"], memory_bytes=settings["cli_memory"]),
            cgroups=settings["cli_cgroups"],
            task_env=settings["cli_task_env"],
        )

    @property
    def _work_dir(self) -> Path:
        return Path(self._settings()["cli_work_dir"])

    def serve(self, *tools: str) -> None:
        """See `App.serve_tools`."""
        settings, adapters = self._settings(), self.adapters
        options = ToolSettings(
            self._work_dir,
            self._cli_settings,
            adapters,
            None if settings["accounts"] == ("auto",) else settings["accounts"],
        )
        self._registry.add_chore(sweeping(options.work_dir, options.cli))
        here = [name for name, adapter in adapters.items() if is_there(adapter, options.cli)]
        for tool in tools or here or adapters:
            adapter = adapter_of(tool, adapters)
            if tool not in here:
                raise missing(adapter, options.cli)
            backoff = Backoff(base=settings["cli_backoff_base"], cap=max(300.0, settings["cli_backoff_base"]))
            task = TaskKind(tool, options.served)
            policy = Policy(max_retries=settings["cli_max_attempts"] - 1, backoff=backoff, task=task)
            self._registry.add(Handler(TaskHandler(tool, options), KIND_PREFIX + tool, policy))

    def leases(self) -> dict[str, LeaseLength]:
        """Of the kinds of tasks that are served; empty where only `lease` is set. Raises ConfigError."""
        settings = self._settings()
        kinds = [kind for kind in self._registry.kinds if kind.startswith(KIND_PREFIX)]
        if settings.origins["cli_lease_ttl"] == "default" and settings.origins["lease"] != "default":
            return {}
        length = LeaseLength(settings["cli_lease_ttl"], settings["cli_heartbeat"])
        if kinds and length.every > length.ttl / 2:
            raise ConfigError(
                f"cli_heartbeat ({length.every:g} s) is more than half of cli_lease_ttl ({length.ttl:g} s): "
                "one renewal that comes late would lose the task",
                hint=f"cli_heartbeat = {length.ttl / 3:g}",
            )
        return dict.fromkeys(kinds, length)

    async def probe(self, account: Account) -> CliRun:
        """See `BackendHolder.probe_account`."""
        adapters = {account.tool: adapter_of(account.tool, self.adapters)}
        return await probe(account, self._work_dir, self._cli_settings, adapters)

    def check_task(self, task: TaskSpec) -> None:
        """See `BackendHolder.check_task`."""
        check_task(task, self.adapters)

    def check_tool(self, tool: str) -> None:
        """See `BackendHolder.check_tool`."""
        adapter_of(tool, self.adapters)
