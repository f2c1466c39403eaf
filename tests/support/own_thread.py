"""Tests that raise exceptions by a trace function, each in a thread of its own."""

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def in_own_thread(test: Callable[P, None]) -> Callable[P, None]:
    """Run a test in a new thread, and raise what it raises.

    A trace function can raise where no signal can: within the instructions that end an `except`. Python then keeps the
    exception that was handled there as the current one of its thread, for all code that runs in it later.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        raised: list[BaseException] = []

        def call() -> None:
            try:
                test(*args, **kwargs)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=call, name=test.__name__)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]

    return run
