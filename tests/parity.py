"""Compares an async class with the blocking one that users of plain functions call instead."""

import inspect
import re
import typing
from collections.abc import Mapping

MARKS = re.compile(r"\b(Async)(Iterator|Iterable|Generator)\b")


def differences(
    asynchronous: type, blocking: type, exceptions: Mapping[str, str], *, names: Mapping[str, str] | None = None
) -> list[str]:
    """What the public members of the two classes differ in: which there are, and for each method its parameters with their kinds,
    defaults and annotations, its overloads, and what it returns once it was awaited.

    exceptions: members that may differ, with the reason. names: what a class is called on the blocking side.
    """
    found = []
    theirs, ours = _members(asynchronous), _members(blocking)
    for name in sorted(theirs.keys() | ours.keys()):
        if name in exceptions:
            continue
        if name not in ours or name not in theirs:
            found.append(f"{name} is only in {(asynchronous if name in theirs else blocking).__qualname__}")
            continue
        wanted = [_renamed(line, names or {}) for line in _described(theirs[name])]
        got = _described(ours[name])
        if wanted != got:
            found.append(f"{name}\n  async:    {wanted}\n  blocking: {got}")
        if inspect.iscoroutinefunction(ours[name]) or inspect.isasyncgenfunction(ours[name]):
            found.append(f"{name} is to be awaited in {blocking.__qualname__}")
    unused = [
        f"{name} is an exception, and does not differ" for name in exceptions if _same(theirs, ours, name, names or {})
    ]
    return found + unused


def _same(theirs: Mapping[str, object], ours: Mapping[str, object], name: str, names: Mapping[str, str]) -> bool:
    if name not in theirs or name not in ours:
        return name not in theirs and name not in ours
    return [_renamed(line, names) for line in _described(theirs[name])] == _described(ours[name])


def _members(cls: type) -> dict[str, object]:
    return {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_")}


def _described(member: object) -> list[str]:
    if isinstance(member, property):
        assert member.fget is not None
        return [f"property {_signature(member.fget)}"]
    if not inspect.isfunction(member):
        return [repr(member)]
    return [_signature(each) for each in typing.get_overloads(member) or [member]]


def _signature(function: object) -> str:
    """The signature as text: names, kinds, defaults and annotations, which are text in this code."""
    text = str(inspect.signature(function)).replace("builtins.", "")  # type: ignore[arg-type]  # each is callable
    return MARKS.sub(r"\2", text)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        text = re.sub(rf"\b{old}\b", new, text)
    return text
