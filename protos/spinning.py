"""Waits of both ends of a local socket: by polling (spinning) or by sleeping, whichever has been shorter of late.

A process that sleeps takes some 50 microseconds to wake up, on each side of a round trip; that is longer than a step of
few lanes. So where a core is free, an end that expects an answer soon polls for a while instead. Where cores are busy,
with other programs or with the threads that draw, polling takes time from the very process that is waited for: steps of
few lanes then took up to five times as long. Neither can be known beforehand, so both ways are tried and timed.
"""

import os
import time
from collections.abc import Callable
from statistics import median

SPIN_S = 300e-6
"""The longest time to poll before sleeping."""
_SAMPLES = 8
"""Waits in a row by which a way is judged, by their median."""
_MIN_INTERVAL, _MAX_INTERVAL = 32, 1024
"""Waits from one trial of the other way to the next: few at first and after a change, then twice as many each time."""
_WORTH = 0.9
"""Share of the time of sleeping below which polling is chosen: it keeps a core busy."""


class Spinner:
    """Waits of one end, and how long they took. Used by one thread."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._polls = True
        """The way that is chosen: polling, or sleeping at once."""
        self._is_trial = False
        """The other way is being tried."""
        self._interval = _MIN_INTERVAL
        self._left = _SAMPLES
        """Waits until the trial begins or ends."""
        self._times_s: list[float] = []
        """Last waits by the chosen way, then those of the trial."""

    def wait(self, is_there: Callable[[], bool], sleep: Callable[[], object]) -> None:
        """Wait until `is_there` returns True. `sleep` waits for the same, or for as long as it is worth waiting."""
        if is_there():
            return
        began_s = self._clock()
        if self._polls is self._is_trial or not self._poll(is_there, began_s + SPIN_S):
            sleep()
        self._note(self._clock() - began_s)

    def _poll(self, is_there: Callable[[], bool], until_s: float) -> bool:
        while self._clock() < until_s:
            os.sched_yield()  # without it, two ends that poll would keep a third process, or each other, from running
            if is_there():
                return True
        return False

    def _note(self, time_s: float) -> None:
        """Count a wait; after enough of them begin a trial of the other way, or end it and choose."""
        if self._left <= _SAMPLES:
            self._times_s.append(time_s)
        self._left -= 1
        if self._left > 0:
            return
        self._is_trial = not self._is_trial
        if self._is_trial:
            self._left = _SAMPLES
            return
        chosen_s, other_s = median(self._times_s[:_SAMPLES]), median(self._times_s[_SAMPLES:])
        polling_s, sleeping_s = (chosen_s, other_s) if self._polls else (other_s, chosen_s)
        polls = polling_s < _WORTH * sleeping_s
        self._interval = min(2 * self._interval, _MAX_INTERVAL) if polls is self._polls else _MIN_INTERVAL
        self._polls, self._left, self._times_s = polls, self._interval, []
