"""Hints between the processes that share a file: each that listens has a socket in a common directory, and each that commits
sends one byte to every other. Nothing depends on it: where a byte is lost, a listener notices at its next poll."""

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

INTERVAL: dict[Topic, float] = {"work": 0.002, "news": 0.05}  # seconds between two hints: many commits are one
_BYTE: dict[Topic, bytes] = {"work": b"w", "news": b"n"}
_TOPIC: dict[int, Topic] = {ord("w"): "work", ord("n"): "news"}
_LONGEST_ADDRESS = 100  # a socket's path must fit sockaddr_un: 108 bytes on Linux, 104 on macOS
_SETTLED_NS = 200_000_000  # a directory's time is coarse: what changed just now may change again unnoticed
_ATTEMPTS = 10  # to bind a socket while processes that leave remove the directory
_numbers = itertools.count(1)


class Notifier:
    """Sends and receives the hints of one engine; used from its event loop only.

    received: called with the topic that another process hints at.
    """

    def __init__(self, path: str, received: Callable[[Topic], None]) -> None:
        self._received = received
        self._loop = asyncio.get_running_loop()
        digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
        self._directory = Path(tempfile.gettempdir()) / f"perdure-{os.getuid()}" / digest
        self._name = f"{os.getpid()}-{next(_numbers)}"
        self._listeners = 0
        self._receiver: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._peers: list[str] = []
        self._peers_as_of = -1
        self._pending: dict[Topic, asyncio.TimerHandle] = {}
        self._sent_at: dict[Topic, float] = {"work": 0.0, "news": 0.0}

    def start_listening(self) -> None:
        """One listener more: the first one opens the socket."""
        self._listeners += 1
        if self._receiver is None:
            self._bind()

    def stop_listening(self) -> None:
        """One listener less: the last one closes the socket."""
        self._listeners -= 1
        if self._listeners <= 0:
            self._unbind()

    def notify(self, topic: Topic) -> None:
        """Hint at something to the other processes, at once or, if that was done just now, in a moment."""
        if topic in self._pending:
            return
        wait = self._sent_at[topic] + INTERVAL[topic] - self._loop.time()
        if wait <= 0:
            self._send(topic)
        else:
            self._pending[topic] = self._loop.call_later(wait, self._send, topic)

    def close(self) -> None:
        """Send what is pending, then close the sockets."""
        for topic in list(self._pending):
            self._pending[topic].cancel()
            self._send(topic)
        self._unbind()
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _bind(self) -> None:
        for _ in range(_ATTEMPTS):
            try:
                self._try_bind()
            except (FileNotFoundError, FileExistsError):  # a process that left just now has removed the directory
                continue
            except OSError:
                pass
            return

    def _try_bind(self) -> None:
        self._directory.parent.mkdir(mode=0o700, exist_ok=True)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        if not self._is_ours() or len(os.fsencode(self._directory / self._name)) > _LONGEST_ADDRESS:
            return
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            receiver.setblocking(False)
            (self._directory / self._name).unlink(missing_ok=True)
            receiver.bind(str(self._directory / self._name))
            self._loop.add_reader(receiver.fileno(), self._receive)
        except BaseException:
            receiver.close()
            raise
        self._receiver = receiver

    def _unbind(self) -> None:
        if self._receiver is not None:
            self._loop.remove_reader(self._receiver.fileno())
            self._receiver.close()
            self._receiver = None
            with contextlib.suppress(OSError):
                (self._directory / self._name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other sockets are in it, or it is gone
            if self._is_ours():
                self._directory.rmdir()

    def _send(self, topic: Topic) -> None:
        self._pending.pop(topic, None)
        self._sent_at[topic] = self._loop.time()
        with contextlib.suppress(OSError):
            self._find_peers()
            for peer in self._peers:
                self._send_to(peer, _BYTE[topic])

    def _send_to(self, peer: str, byte: bytes) -> None:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        try:
            self._sender.sendto(byte, peer)
        except (ConnectionRefusedError, FileNotFoundError):  # its process was killed
            self._peers_as_of = -1
            Path(peer).unlink(missing_ok=True)
        except BlockingIOError:  # it has plenty of hints already
            pass

    def _find_peers(self) -> None:
        """The sockets of the others; the directory is read only when it has changed."""
        try:
            as_of = self._directory.stat().st_mtime_ns
        except FileNotFoundError:
            as_of = -1
        if as_of == self._peers_as_of != -1:
            return
        names = [peer.name for peer in self._directory.iterdir()] if as_of != -1 and self._is_ours() else []
        self._peers = [str(self._directory / name) for name in names if name != self._name]
        self._peers_as_of = as_of if time.time_ns() - as_of > _SETTLED_NS else -1
        if self._receiver is not None and self._name not in names:  # temporary directories are cleaned up
            self._unbind()
            self._bind()

    def _is_ours(self) -> bool:
        """In a shared temporary directory another user may have made one of this name. Raises FileNotFoundError."""
        found = (self._directory.parent.lstat(), self._directory.lstat())
        return all(stat.S_ISDIR(f.st_mode) and f.st_uid == os.getuid() for f in found)

    def _receive(self) -> None:
        topics: set[int] = set()
        while self._receiver is not None:
            try:
                data = self._receiver.recv(16)
            except OSError:
                break
            topics.update(data)
        for byte in topics:
            if byte in _TOPIC:
                self._received(_TOPIC[byte])
