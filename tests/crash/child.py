"""The entry of a child process of the crash tests, a fork or a new interpreter: `python -m tests.crash.child CONFIG`."""

import contextlib
import os
import sys

import perdure.store.postgres.store
import perdure.store.sqlite.store  # noqa: F401  the stores are imported here, not in each child
from perdure.chaos.fork_server import Say
from tests.crash import apps
from tests.crash.child_config import ChildConfig


def run_child(text: str, say: Say) -> None:
    """Run as the configuration in this text says."""
    del say
    config = ChildConfig.read(text)
    os.chdir(config.place)
    if config.fresh:
        os.execv(sys.executable, [sys.executable, "-m", "tests.crash.child", text])
    apps.run_child(config)


def main() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        apps.run_child(ChildConfig.read(sys.argv[1]))


if __name__ == "__main__":
    main()
