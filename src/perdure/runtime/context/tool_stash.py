"""The complete outputs of tools by the ids that a model gave their calls, and the state that tools share.

Both are part of the records of the calls, so a later attempt has them again once it has replayed the calls. A large output is a
file of the job, and is read when it is asked for.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from perdure.model.errors import ContentMissing, InvalidInput, LeaseLost, Suspended, TooLarge
from perdure.model.events import NewEvent
from perdure.runtime import codec
from perdure.runtime.context.current_call import running_call
from perdure.runtime.run import Run
from perdure.runtime.shown_arguments import shown_arguments

INLINE = 64 * 1024
"""Bytes of the largest output (JSON) that is kept in the log."""
MOST_IN_MEMORY = 8 * 1024 * 1024
"""Bytes of all outputs that are kept in memory; those that come later are files."""
MOST_OUTPUT = 64 * 1024 * 1024
"""Bytes of one output."""
MOST_OUTPUTS = 1024 * 1024 * 1024
"""Bytes of all outputs of a job."""
MOST_STATE = 256 * 1024
"""Bytes of all values of the state together."""


class Stored(NamedTuple):
    """Where a large output is: a file of this job, or of the one that it was forked from."""

    job: str
    attempt: int
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that runs now. arguments: by name, cut, without what looks like a secret."""

    name: str
    tool_call_id: str | None
    arguments: Mapping[str, Any]


class OpenCall:
    """A call that is on the stack; its arguments are written out when they are looked at."""

    __slots__ = ("_args", "_fn", "_id", "_kwargs", "_name")

    def __init__(
        self, name: str, id: str | None, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._name, self._id, self._fn, self._args, self._kwargs = name, id, fn, args, kwargs

    def shown(self) -> ToolCall:
        """For the handler and its tools."""
        return ToolCall(self._name, self._id, shown_arguments(self._fn, self._args, self._kwargs))


class ToolState(MutableMapping[str, Any]):
    """What tools share: JSON values under keys that begin with `__`. What a tool or step sets counts once it has returned."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._values: dict[str, str] = {}

    def _seen(self) -> dict[str, str]:
        call = running_call.get(None)
        own = None if call is None or call.lease != self._run.lease else call.state
        return self._values if own is None else self._values | own

    def __getitem__(self, key: str) -> Any:
        return json.loads(self._seen()[key])

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._seen()))

    def __len__(self) -> int:
        return len(self._seen())

    def __setitem__(self, key: str, value: Any) -> None:
        """Raises InvalidInput for a key that does not begin with `__`, NotJson, TooLarge."""
        if not key.startswith("__") or not 3 <= len(key) <= 200 or not key.isprintable():
            raise InvalidInput(
                f"a key of the tools' state begins with __ and has at most 200 characters, got {key!r:.120}"
            )
        text = codec.encode(value, f"the value of '{key}'")
        after = self._seen() | {key: text}
        if sum(len(name) + len(held.encode()) for name, held in after.items()) > MOST_STATE:
            raise TooLarge(f"the tools' state would have more than {MOST_STATE:,} bytes with '{key}'")
        call = running_call.get(None)
        if call is None or call.lease != self._run.lease:
            self._values[key] = text
        else:
            call.state = (call.state or {}) | {key: text}

    def __delitem__(self, key: str) -> None:
        raise InvalidInput("the tools' state is not deleted from: set the key to None")

    def add(self, values: Mapping[str, str]) -> None:
        """What a call set that has returned, as JSON by key."""
        self._values.update(values)


class ToolOutputStash:
    """The complete outputs of tools that were called with `options(tool_call_id=...)`, and the state that tools share.

    A later tool that is given the text `$<tool_call_id>` as an argument, or inside a list or an object, gets the output in its
    place. Everything is there again in a later attempt.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._outputs: dict[str, str | Stored] = {}
        self._in_memory = 0
        self._total = 0
        self._set: dict[tuple[str, str], dict[str, str]] = {}
        self.state = ToolState(run)
        """JSON values under keys that begin with `__`, for tools alone: no reference of a model reaches them."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the calls whose outputs are there, the oldest first."""
        return tuple(self._outputs)

    async def output(self, tool_call_id: str) -> Any:
        """The complete output of a call, as plain JSON values. Raises KeyError, ContentMissing, ContentDamaged."""
        held = self._outputs[tool_call_id]
        return json.loads(held if isinstance(held, str) else await self.read(held))

    async def resolved(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with the outputs in the place of references to them. Raises as `output`."""
        return tuple([await self._put(value) for value in args]), {k: await self._put(v) for k, v in kwargs.items()}

    async def _put(self, value: Any) -> Any:
        if type(value) is str:
            known = value.startswith("$") and value[1:] in self._outputs
            return await self.output(value[1:]) if known else value
        if type(value) is dict:
            return {key: await self._put(item) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)([await self._put(item) for item in value])
        return value

    async def keep(self, tool_call_id: str, text: str) -> tuple[str, dict[str, Any]]:
        """An output (JSON) that is about to be recorded: what the record holds as the result, and more for its payload. Raises
        TooLarge, Suspended, BlobDirUnusable."""
        size = len(text.encode())
        if self._total + size > MOST_OUTPUTS:
            raise TooLarge(f"the outputs of this job's tools would have more than {MOST_OUTPUTS:,} bytes")
        more: dict[str, Any] = {"call_id": tool_call_id}
        if size > INLINE or self._in_memory + size > MOST_IN_MEMORY:
            more["stored"] = (await self._store(tool_call_id, text, size))._asdict()
            text = "null"
        return text, more

    def was_set(self, kind: str, key: str, state: dict[str, str]) -> None:
        """The function of this call has returned, and set this of the tools' state."""
        self._set[kind, key] = state

    def recorded(self, event: NewEvent, of: tuple[str, str], more: dict[str, Any]) -> None:
        """A call is about to be recorded by this event: what it set of the state, and `more` of its output, become part of it."""
        if state := self._set.pop(of, None):
            more = more | {"stash": {name: json.loads(text) for name, text in state.items()}}
        if more:
            event.payload = f"{event.payload[:-1]},{codec.encode(more, 'the state of tools', most=MOST_OUTPUT)[1:]}"
            self._add(json.loads(event.payload))

    def replayed(self, recorded: Mapping[str, Any]) -> None:
        """A recorded call is not made again: what it, and the calls inside of it, recorded is here again."""
        for inner in self._run.history.stashed_inside.get(recorded["key"], ()):
            self.replayed(inner)
        self._add(recorded)

    def _add(self, recorded: Mapping[str, Any]) -> None:
        """What the record of a call holds for the stash."""
        values = recorded.get("stash")
        if values:
            self.state.add({key: json.dumps(value) for key, value in values.items()})
        id = recorded.get("call_id")
        if id is None:
            return
        self._outputs.pop(id, None)
        if (stored := recorded.get("stored")) is not None:
            self._outputs[id] = Stored(**stored)
            self._total += self._outputs[id].size  # type: ignore[union-attr]  # it was set in the line above
        else:
            text = self._outputs[id] = json.dumps(recorded["result"], ensure_ascii=False)
            self._in_memory += len(text.encode())
            self._total += len(text.encode())

    async def read(self, stored: Stored) -> str:
        """A large output. Raises ContentMissing, ContentDamaged."""
        with self._run.busy():
            content = await self._run.store.files.read_file(
                UUID(stored.job), stored.path, is_input=False, attempt=stored.attempt
            )
        if content is None:
            raise ContentMissing(f"the output of a tool, file '{stored.path}' of job {stored.job}, is gone")
        return content.decode()

    async def _store(self, tool_call_id: str, text: str, size: int) -> Stored:
        run, name = self._run, hashlib.sha256(tool_call_id.encode()).hexdigest()[:16]
        path = f"tool-outputs/{name}.json"
        file = await run.store.files.keep(path, io.BytesIO(text.encode()), most=MOST_OUTPUT)
        try:
            await run.store.files.add_outputs(run.lease, [file])
        except LeaseLost:
            run.lease_lost()
            raise Suspended("lease lost") from None
        return Stored(str(run.claimed.id), run.lease.attempt, path, size)


class BlockingStash:
    """`ctx.tool_output_stash` of a plain (sync) handler."""

    def __init__(self, stash: ToolOutputStash, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._stash = stash
        self._wait = wait
        self.state = stash.state
        """See `ToolOutputStash.state`."""

    @property
    def ids(self) -> tuple[str, ...]:
        """See `ToolOutputStash.ids`."""
        return self._stash.ids

    def output(self, tool_call_id: str) -> Any:
        """See `ToolOutputStash.output`."""
        return self._wait(self._stash.output(tool_call_id))
