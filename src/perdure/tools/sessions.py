"""Sessions: what a CLI keeps of a conversation, so that a later run in another HOME and another workspace can continue it.

A session is one file of the tool, kept on the worker's machine in a folder of its tool and account.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from perdure.model.errors import SessionMissing
from perdure.model.tooling import Account, is_session
from perdure.tools.adapters.base import Adapter
from perdure.tools.secrets import Masker

LARGEST = 64 * 1024 * 1024
"""Bytes; a longer conversation is not kept."""
KEPT_SECONDS = 30 * 86400.0

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


def saved(folder: Path, account: Account, session: str) -> tuple[str, str]:
    """The name and the text of a session's file. Raises SessionMissing."""
    place = _place(folder, account, session)
    try:
        (file,) = place.iterdir()
        return file.name, file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise SessionMissing(
            f"this machine has no session {session} of account {account.id}",
            hint="a session can be continued where its run was, under its account, for 30 days",
        ) from None


def save(folder: Path, account: Account, adapter: Adapter, home: Path, session: str | None, masker: Masker) -> bool:
    """Keep what a run left of its session, without secrets; False if it left nothing that can be kept."""
    if session is None or not is_session(session) or adapter.session_pattern is None:
        return False
    for file in sorted(home.glob(adapter.session_pattern.format(id=session, short=session[:8]))):
        text = _read(file, home)
        if text is None or not _FILE_NAME.fullmatch(file.name):
            continue
        place = _place(folder, account, session)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for older in place.iterdir():
            if older.name != file.name:
                older.unlink()
        new = place / file.name
        new.write_bytes(masker.mask(text))
        new.chmod(0o600)
        os.utime(place)
        _forget(place.parent)
        return True
    return False


def _place(folder: Path, account: Account, session: str) -> Path:
    return folder / account.tool / account.id / session


def _read(file: Path, home: Path) -> bytes | None:
    """A regular file below HOME, not by way of a link: the run may have left one."""
    if file.resolve() != home.resolve() / file.relative_to(home) or not file.is_file():
        return None
    with suppress(OSError), file.open("rb") as opened:
        text = opened.read(LARGEST + 1)
        return text if len(text) <= LARGEST else None
    return None


def _forget(folder: Path) -> None:
    """Remove the sessions of an account that were not continued for long."""
    for place in folder.iterdir():
        with suppress(OSError):
            if time.time() - place.stat().st_mtime > KEPT_SECONDS:
                for file in place.iterdir():
                    file.unlink()
                place.rmdir()
