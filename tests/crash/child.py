"""What a child of the crash tests does: `obey`, in a fork of the nursery or, where it is to be fresh, in an interpreter of its
own: `python -m tests.crash.child ORDERS`."""

import contextlib
import os
import sys

import perdure.store.postgres.store
import perdure.store.sqlite.store  # noqa: F401  the stores are imported here, not in each child
from perdure.chaos.fork_server import Say
from tests.crash import apps
from tests.crash.orders import Orders


def obey(text: str, say: Say) -> None:
    """Do what the orders say."""
    del say
    orders = Orders.read(text)
    os.chdir(orders.place)
    if orders.fresh:
        os.execv(sys.executable, [sys.executable, "-m", "tests.crash.child", text])
    apps.obey(orders)


def main() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        apps.obey(Orders.read(sys.argv[1]))


if __name__ == "__main__":
    main()
