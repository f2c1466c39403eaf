"""Short waits of both ends of a local socket, which ask again and again instead of sleeping.

A process that sleeps takes some 50 microseconds to wake up, on each side of a round trip; that is longer than a step of
few lanes. So an end that expects an answer soon asks for a while, and lets other processes run in between. If answers
do not come in that time, it stops trying, but for a try now and then.
"""

import os
import time
from collections.abc import Callable

SPIN_S = 300e-6
"""The longest time to ask before sleeping."""
_MAX_FAILED = 8
"""Failed attempts in a row after which most are left out."""
_TRY_EVERY = 32
"""Interval of attempts after that: one is made, the others are left out."""


class Spinner:
    """Attempts of one end to do without sleep, and how they went."""

    def __init__(self) -> None:
        self._failed = 0

    def spin(self, is_there: Callable[[], bool]) -> bool:
        """Ask until the answer is there, and return True; False if it is not there in time, or no attempt is made."""
        if is_there():
            return True
        if self._failed >= _MAX_FAILED and self._failed % _TRY_EVERY:
            self._failed += 1
            return False
        until_s = time.perf_counter() + SPIN_S
        while time.perf_counter() < until_s:
            os.sched_yield()  # without it, two ends that ask would keep a third process, or each other, from running
            if is_there():
                self._failed = 0
                return True
        self._failed += 1
        return False
