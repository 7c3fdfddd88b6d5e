"""The tools there are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perdure.model.errors import PromptTooLarge, UnknownTool
from perdure.model.tooling import TaskSpec
from perdure.tools.adapters.base import Adapter
from perdure.tools.adapters.claude import Claude
from perdure.tools.adapters.codex import Codex
from perdure.tools.adapters.gemini import Gemini

ADAPTERS: Mapping[str, Adapter] = MappingProxyType({adapter.name: adapter for adapter in (Codex(), Claude(), Gemini())})
"""The tools that perdure brings, by name."""


def adapter_of(tool: str, adapters: Mapping[str, Adapter] = ADAPTERS) -> Adapter:
    """The adapter of a tool. Raises UnknownTool naming those there are."""
    if tool not in adapters:
        raise UnknownTool(f"there is no tool {tool!r:.60}", hint=f"tools: {', '.join(adapters)}")
    return adapters[tool]


def check_task(task: TaskSpec, adapters: Mapping[str, Adapter] = ADAPTERS) -> None:
    """Raise UnknownTool, or PromptTooLarge where the tool would refuse or cut the prompt."""
    adapter = adapter_of(task.tool, adapters)
    if len(task.prompt.encode()) > adapter.prompt_limit:
        raise PromptTooLarge(
            f"the prompt is {len(task.prompt.encode()):,} bytes; {adapter.name} reads {adapter.prompt_limit:,}",
            hint="put the text into an input file and name the file in the prompt",
        )
