"""Hints between the processes that share a file: each that listens has a socket in a common directory, and whoever commits
sends one byte to every other. Nothing depends on it: a byte that is lost costs a listener its next poll, no more."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from perdure.store.protocol import Topic

_PAUSE: dict[Topic, float] = {"work": 0.002, "news": 0.05}  # seconds between two rings: many commits are one hint
_BYTE: dict[Topic, bytes] = {"work": b"w", "news": b"n"}
_TOPIC: dict[int, Topic] = {ord("w"): "work", ord("n"): "news"}
_LONGEST_ADDRESS = 100  # a socket's path must fit sockaddr_un: 108 bytes on Linux, 104 on macOS
_SETTLED_NS = 200_000_000  # a directory's time is coarse: what changed just now may change again unseen
_TRIES = 10  # for a room that others leave, and remove, while one enters it
_numbers = itertools.count(1)


class Doorbell:
    """The bell of one store instance; used from its event loop only. rung: called with the topic another process hints at."""

    def __init__(self, path: str, rung: Callable[[Topic], None]) -> None:
        self._rung = rung
        self._loop = asyncio.get_running_loop()
        digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
        self._room = Path(tempfile.gettempdir()) / f"perdure-{os.getuid()}" / digest
        self._name = f"{os.getpid()}-{next(_numbers)}"
        self._listening = 0
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None
        self._doors: list[str] = []
        self._doors_as_of = -1
        self._pending: dict[Topic, asyncio.TimerHandle] = {}
        self._rung_at: dict[Topic, float] = {"work": 0.0, "news": 0.0}

    def open_ear(self) -> None:
        """Somebody listens: make sure that others can ring here."""
        self._listening += 1
        if self._ear is None:
            self._bind()

    def _bind(self) -> None:
        for _ in range(_TRIES):
            try:
                self._try_bind()
            except (FileNotFoundError, FileExistsError):  # whoever left just now has removed the room
                continue
            except OSError:
                pass
            return

    def _try_bind(self) -> None:
        self._room.parent.mkdir(mode=0o700, exist_ok=True)
        self._room.mkdir(mode=0o700, exist_ok=True)
        if not self._is_ours() or len(os.fsencode(self._room / self._name)) > _LONGEST_ADDRESS:
            return
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            ear.setblocking(False)
            (self._room / self._name).unlink(missing_ok=True)
            ear.bind(str(self._room / self._name))
            self._loop.add_reader(ear.fileno(), self._hear)
        except BaseException:
            ear.close()
            raise
        self._ear = ear

    def _unbind(self) -> None:
        if self._ear is not None:
            self._loop.remove_reader(self._ear.fileno())
            self._ear.close()
            self._ear = None
            with contextlib.suppress(OSError):
                (self._room / self._name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there are others in it, or it is gone
            if self._is_ours():
                self._room.rmdir()

    def close_ear(self) -> None:
        """One listener less; the last one takes the socket with it."""
        self._listening -= 1
        if self._listening <= 0:
            self._unbind()

    def ring(self, topic: Topic) -> None:
        """Hint at something to the other processes, at once or, if that was done just now, in a moment."""
        if topic in self._pending:
            return
        wait = self._rung_at[topic] + _PAUSE[topic] - self._loop.time()
        if wait <= 0:
            self._send(topic)
        else:
            self._pending[topic] = self._loop.call_later(wait, self._send, topic)

    def close(self) -> None:
        """Send what is pending, then leave."""
        for topic in list(self._pending):
            self._pending[topic].cancel()
            self._send(topic)
        self._unbind()
        if self._mouth is not None:
            self._mouth.close()
            self._mouth = None

    def _send(self, topic: Topic) -> None:
        self._pending.pop(topic, None)
        self._rung_at[topic] = self._loop.time()
        with contextlib.suppress(OSError):
            self._look_around()
            for door in self._doors:
                self._knock(door, _BYTE[topic])

    def _knock(self, door: str, byte: bytes) -> None:
        if self._mouth is None:
            self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._mouth.setblocking(False)
        try:
            self._mouth.sendto(byte, door)
        except (ConnectionRefusedError, FileNotFoundError):  # its process is gone without a word
            self._doors_as_of = -1
            Path(door).unlink(missing_ok=True)
        except BlockingIOError:  # it has plenty of hints already
            pass

    def _look_around(self) -> None:
        """Who listens; the directory is read only when it has changed."""
        try:
            as_of = self._room.stat().st_mtime_ns
        except FileNotFoundError:
            as_of = -1
        if as_of == self._doors_as_of != -1:
            return
        names = [door.name for door in self._room.iterdir()] if as_of != -1 and self._is_ours() else []
        self._doors = [str(self._room / name) for name in names if name != self._name]
        self._doors_as_of = as_of if time.time_ns() - as_of > _SETTLED_NS else -1
        if self._ear is not None and self._name not in names:  # temporary directories get tidied up
            self._unbind()
            self._bind()

    def _is_ours(self) -> bool:
        """In a shared temporary directory somebody else may have been first. Raises FileNotFoundError."""
        found = (self._room.parent.lstat(), self._room.lstat())
        return all(stat.S_ISDIR(f.st_mode) and f.st_uid == os.getuid() for f in found)

    def _hear(self) -> None:
        topics: set[int] = set()
        while self._ear is not None:
            try:
                data = self._ear.recv(16)
            except OSError:
                break
            topics.update(data)
        for byte in topics:
            if byte in _TOPIC:
                self._rung(_TOPIC[byte])
