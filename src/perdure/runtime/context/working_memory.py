"""The working memory of a job: its conversation and its variables, written to its log as they change.

A replay meets them in the order in which they were written: at each line of the handler they are what they were there when it ran
first. So a step whose arguments are made of them gets the same arguments."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from perdure.model.conversation import MESSAGE, VARIABLE, Fitted, Message, Noted, fitted, messages_in, variables_in
from perdure.model.errors import InvalidInput
from perdure.model.events import NewEvent
from perdure.runtime import codec
from perdure.runtime.context.current_call import RunningCall, running_call
from perdure.runtime.context.names import Keys
from perdure.runtime.history import KindAndKey
from perdure.runtime.run import Run
from perdure.runtime.validation import check_key


class WorkingMemory:
    """What one attempt knows of the conversation and the variables of its job.

    What the handler writes itself has a key and is written once. What the function of a step or tool writes is kept until the
    call returns, and commits together with its record."""

    def __init__(self, run: Run, keys: Keys) -> None:
        self._run = run
        self._keys = keys
        self._seen: list[Noted] = []
        self._new: list[Noted] = []
        self._held: dict[KindAndKey, tuple[int, list[tuple[NewEvent, Noted]]]] = {}
        """By step or tool: the number of its call, and what that has written so far."""
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self._of_calls: dict[KindAndKey, list[Noted]] = {}
        for noted in run.history.noted:
            type, payload = noted
            if "with" not in payload:
                self._known[type, payload["key"]] = payload
                continue
            committed = payload["with"]
            for kind, key in ((committed["kind"], committed["key"]), *committed.get("around", ())):
                self._of_calls.setdefault((kind, key), []).append(noted)

    @property
    def seen(self) -> list[Noted]:
        """What was written up to this line of the handler."""
        call = self._call()
        held = [] if call is None else self._held.get((call.kind, call.key), (0, []))[1]
        return [*self._seen, *(noted for _, noted in held)] if held else self._seen

    @property
    def recorded(self) -> list[Noted]:
        """All that the log has: also what earlier attempts wrote that this one has not come to."""
        return [*self._run.history.noted, *self._new]

    async def note(self, type: str, noun: str, option_key: str | None, rest: dict[str, Any], what: str) -> None:
        """Write an event of this type, once under its key. noun: what its key begins with. rest: the payload without the key.
        what: names it in errors. Raises Suspended, NotJson, TooLarge, InvalidInput."""
        await self._run.enter()
        call = self._call()
        if call is not None:
            payload = {"key": call.key_of(noun), **rest, "with": _with(call)}
            text = codec.encode(payload, what)
            number, held = self._held.get((call.kind, call.key), (0, []))
            if number != call.number:  # what a call wrote that failed does not count
                self._held[call.kind, call.key] = call.number, (held := [])
            held.append((NewEvent(type, text), (type, json.loads(text))))
            return
        key = self._keys.next(type, noun, option_key)
        known = self._known.get((type, key))
        if known is None:
            text = codec.encode({"key": key, **rest}, what)
            known = json.loads(text)
            await self._run.record([NewEvent(type, text)])
            self._new.append((type, known))
        self._seen.append((type, known))

    def of_call(self, kind: str, key: str, number: int) -> list[NewEvent]:
        """What this call of a step or tool has written, to be committed with its record."""
        its_number, held = self._held.get((kind, key), (0, []))
        return [event for event, _ in held] if its_number == number else []

    def committed(self, kind: str, key: str) -> None:
        """The record of this step or tool was written, with what its last call wrote."""
        _, held = self._held.pop((kind, key), (0, []))
        self._seen += [noted for _, noted in held]
        self._new += [noted for _, noted in held]

    def replayed(self, kind: str, key: str) -> None:
        """This step or tool is recorded and is not called: what was committed with its record is seen from here on."""
        self._seen += self._of_calls.get((kind, key), ())

    def _call(self) -> RunningCall | None:
        call = running_call.get(None)
        return call if call is not None and call.lease == self._run.lease else None


def _with(call: RunningCall) -> dict[str, Any]:
    around: list[list[str]] = []
    outer = call.outer
    while outer is not None and outer.lease == call.lease:
        around.append([outer.kind, outer.key])
        outer = outer.outer
    own: dict[str, Any] = {"kind": call.kind, "key": call.key, "call": f"{call.lease.attempt}.{call.number}"}
    return {**own, "around": around} if around else own


class Messages:
    """`ctx.messages`: the conversation of the job, for the next call of a model. Durable as it grows, and part of its log."""

    def __init__(self, working: WorkingMemory, option_key: str | None) -> None:
        self._working = working
        self._key = option_key

    async def append(self, role: str, content: Any = None, **more: Any) -> None:
        """Add a message, durably and once: calls have the keys `message`, `message#2`, ...; parallel branches give
        options(key=...). A replay keeps what was recorded under the key.

        Inside the function of a step or tool it commits together with the step's record, and not if the call fails.
        content, more: JSON, as the API of your model writes messages, such as tool_calls and tool_call_id:
        `append(**message)`. Raises InvalidInput, NotJson, TooLarge.
        """
        if type(role) is not str or not 1 <= len(role) <= 100:
            raise InvalidInput(f"the role of a message is text such as 'user' or 'assistant', got {role!r:.60}")
        message = {"role": role, "content": content, **more}
        await self._working.note(MESSAGE, "message", self._key, {"message": message}, "the message")

    def list(self) -> builtins.list[Message]:
        """The messages so far. In a replay: those up to this line of the handler."""
        return messages_in(self._working.seen)

    def recorded(self) -> builtins.list[Message]:
        """All messages in the log, also those that a replay has not come to yet."""
        return messages_in(self._working.recorded)

    def fit(self, tokens: int, *, count: Callable[[Message], int] | None = None) -> Fitted:
        """The system messages and the newest others that have at most so many tokens together, and a report of what was cut.
        Nothing is deleted. Calls of tools and their results stay together.

        count: the tokens of a message, such as your model's tokeniser says; an estimate if left out. Raises InvalidInput if
        not even the newest message fits.
        """
        return fitted(self.list(), tokens, count)

    def __len__(self) -> int:
        return len(self.list())

    def __iter__(self) -> Iterator[Message]:
        return iter(self.list())


class Variables:
    """`ctx.vars`: named JSON values of the job, durable as they are set, and part of its log."""

    def __init__(self, working: WorkingMemory, option_key: str | None) -> None:
        self._working = working
        self._key = option_key

    async def set(self, name: str, value: Any) -> None:
        """Give a variable a value, durably. The second time has the key `name#2`, and so on; parallel branches give
        options(key=...). A replay keeps what was recorded under the key. Inside the function of a step or tool it commits
        together with the step's record, and not if the call fails. Raises InvalidInput for a bad name, NotJson, TooLarge."""
        given = {"name": check_key(name, "name"), "value": value}
        await self._working.note(VARIABLE, name, self._key, given, f"variable '{name}'")

    def get(self, name: str, default: Any = None) -> Any:
        """Its value, or the default. In a replay: the value that it had at this line of the handler."""
        return variables_in(self._working.seen).get(name, default)

    def all(self) -> dict[str, Any]:
        """All variables so far."""
        return variables_in(self._working.seen)

    def recorded(self) -> dict[str, Any]:
        """The last values in the log, also those that a replay has not come to yet."""
        return variables_in(self._working.recorded)

    def __getitem__(self, name: str) -> Any:
        return self.all()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.all()

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self.all())


class BlockingMessages:
    """`ctx.messages` of a plain (sync) handler."""

    def __init__(self, messages: Messages, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._messages = messages
        self._wait = wait

    def append(self, role: str, content: Any = None, **more: Any) -> None:
        """See `Messages.append`."""
        self._wait(self._messages.append(role, content, **more))

    def list(self) -> builtins.list[Message]:
        """See `Messages.list`."""
        return self._messages.list()

    def recorded(self) -> builtins.list[Message]:
        """See `Messages.recorded`."""
        return self._messages.recorded()

    def fit(self, tokens: int, *, count: Callable[[Message], int] | None = None) -> Fitted:
        """See `Messages.fit`."""
        return self._messages.fit(tokens, count=count)

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)


class BlockingVariables:
    """`ctx.vars` of a plain (sync) handler."""

    def __init__(self, variables: Variables, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._variables = variables
        self._wait = wait

    def set(self, name: str, value: Any) -> None:
        """See `Variables.set`."""
        self._wait(self._variables.set(name, value))

    def get(self, name: str, default: Any = None) -> Any:
        """See `Variables.get`."""
        return self._variables.get(name, default)

    def all(self) -> dict[str, Any]:
        """See `Variables.all`."""
        return self._variables.all()

    def recorded(self) -> dict[str, Any]:
        """See `Variables.recorded`."""
        return self._variables.recorded()

    def __getitem__(self, name: str) -> Any:
        return self._variables[name]

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)
