"""A run of `worldloom render`: states are read, drawn and written part by part, and taken up again where it stopped.

Beside the output there is a journal, `OUT.partial.jsonl`, until all is done. Its first line has the arguments of the
run; each further line has the number of frames that are on the disk. A run that was killed at any moment leaves a
journal from which the same command goes on: frames after the last line are drawn again, at the same places.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from worldloom.client import BadAction, ClientError, MujocoRenderer
from worldloom.data.errors import DatasetError
from worldloom.data.frame_files import Form, FrameWriter
from worldloom.data.replacing import PARTIAL_SUFFIX, finish_replacing, partial_path, read_marker, remove_marker
from worldloom.data.state_files import StateFile

_CHECKPOINT_S = 1.0
"""Time between two lines of the journal: at most so much work is repeated."""
_PART_BYTES = 32 << 20
"""Bytes of the frames of a part, of which up to three are in memory."""
_MAX_PART = 4096
DAMAGED = "damaged"
"""Arguments of a journal that cannot be read."""
_STATE = re.compile(r"\bstate (\d+)")


class Stopped(DatasetError):  # noqa: N818  # as that of collections
    """A run that was stopped as asked for."""


@dataclass(frozen=True)
class RenderProgress:
    """Progress of a run, for progress bars."""

    done: int
    """States whose frames are written, by this run and by those before."""
    first_done: int
    """States whose frames were written when this run began."""
    count: int
    elapsed_s: float

    @property
    def states_per_s(self) -> float:
        """States that this run has drawn and written in a second."""
        return (self.done - self.first_done) / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float:
        """Time left at this rate; infinite before the first part."""
        return (self.count - self.done) / self.states_per_s if self.states_per_s else float("inf")


class Journal:
    """The file that tells how far a run has come. It is locked while a process works on the output."""

    def __init__(self, out: Path) -> None:
        """Open or create the journal of an output, and read it; DatasetError if another process works on it."""
        self.path = out.with_name(f"{out.name}{PARTIAL_SUFFIX}.jsonl")
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(self._descriptor).st_nlink:
                raise BlockingIOError  # the other process has just ended, and removed it
        except BlockingIOError:
            os.close(self._descriptor)
            raise DatasetError(f"another process draws {out}: expected it to end first") from None
        lines = self.path.read_bytes().split(b"\n")[:-1]  # half a line at the end was not written whole
        self.arguments: Any = None
        """Arguments of the run that the journal is of; None if there was none, DAMAGED if they are not known."""
        self.done = 0
        """States whose frames are on the disk."""
        try:
            values = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            values = [None]
        if values:
            is_sound = isinstance(values[0], dict) and all(type(one) is int and one >= 0 for one in values[1:])
            self.arguments, self.done = (values[0], max([0, *values[1:]])) if is_sound else (DAMAGED, 0)

    def begin(self, arguments: Mapping[str, Any]) -> None:
        """Begin anew with these arguments."""
        os.ftruncate(self._descriptor, 0)
        self.arguments, self.done = arguments, 0
        self._append(arguments)

    def note(self, done: int) -> None:
        """Note how many frames are on the disk."""
        if done > self.done:
            self.done = done
            self._append(done)

    def remove(self) -> None:
        """Remove the journal."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock. Closing twice does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, value: Any) -> None:
        line = json.dumps(value).encode() + b"\n"
        size = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise


@contextlib.contextmanager
def open_journal(out: Path, arguments: Mapping[str, Any], is_overwriting: bool) -> Iterator[Journal]:
    """Hold the journal of an output; ValueError if a run with other arguments has begun it, unless it may be lost.

    If the block ends before anything is on the disk, the journal is removed.
    """
    if not out.parent.is_dir():
        raise ValueError(f"{out.parent} is no directory: expected one for {out.name}")
    journal = Journal(out)
    try:
        arguments = json.loads(json.dumps(arguments))
        partial = partial_path(out)
        if journal.arguments is None and partial.exists() and not is_overwriting:
            raise ValueError(
                f"{partial} exists, and no journal says that a run has begun it: expected that place to be free, as "
                f"{out.name} is written there; move it away, or --overwrite replaces it"
            )
        if journal.arguments != arguments:
            if journal.arguments is not None and not is_overwriting:
                if journal.arguments == DAMAGED:
                    raise ValueError(f"{journal.path} is damaged: expected --overwrite, to begin {out} anew")
                raise ValueError(
                    f"{out} was begun with other arguments ({_differences(journal.arguments, arguments)}): expected "
                    "the same to go on, or --overwrite to begin anew"
                )
            try:
                journal.begin(arguments)
            except OSError as error:
                raise DatasetError(
                    f"cannot write the frames: {error.strerror or error}; nothing was written"
                ) from error
        yield journal
    finally:
        if not journal.done and journal.arguments in (None, arguments):
            journal.remove()
        journal.close()


def finish_earlier(out: Path) -> dict[str, Any] | None:
    """Do what is left of a run that was killed when its directory was in its place; return the run's arguments.

    None if there is no such run. DatasetError if another process works on the output.
    """
    if read_marker(out) is None:
        return None
    with contextlib.closing(Journal(out)) as journal:
        arguments = read_marker(out)  # again, as another process may have ended meanwhile
        if arguments is not None:
            finish_replacing(out, arguments)
        if arguments is not None or journal.arguments is None:
            journal.remove()
        remove_marker(out)
    return arguments


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    told = []
    for name in [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        was, is_now = before.get(name), now.get(name)
        if name in ("states", "model"):  # a path, and sizes and times of files
            was, is_now = (one[0] if isinstance(one, list) and one else one for one in (was, is_now))
        files = ", or a file that it refers to," if name == "model" else ""
        told.append(f"{is_now}{files} has changed since" if was == is_now else f"{name} was {was}, is {is_now}")
    return ", ".join(told) or "others"


def part_size(state_bytes: int) -> int:
    """Return the number of states of a part, a power of two, given the bytes of the frames of one."""
    return min(_MAX_PART, 1 << (max(1, _PART_BYTES // state_bytes).bit_length() - 1))


def draw_states(
    renderer: MujocoRenderer,
    states: StateFile,
    span: range,
    size: int,
    writer: FrameWriter,
    journal: Journal,
    on_progress: Callable[[RenderProgress], object],
    should_stop: Callable[[], bool],
) -> tuple[RenderProgress, list[Path]]:
    """Draw states of a span in parts of some size, from where the journal ends; return the files that were written.

    Stopped if it was stopped, and other errors, tell how many frames are on the disk.
    """
    count, began_s = len(span), time.monotonic()
    done = first_done = 0
    noted_s = began_s

    def note_done() -> None:
        journal.note(writer.flush(done))

    try:
        on_disk = writer.resume(journal.done if journal.done <= count else 0)
        if not on_disk:
            journal.begin(journal.arguments)
        journal.note(on_disk)
        done = first_done = journal.done
        begins = range(span.start + done, span.stop, size)
        parts = (states.fit(states.read(k, min(k + size, span.stop)), renderer.shapes) for k in begins)
        for frames in renderer.stream(parts):
            writer.write(done, frames)
            done += len(next(iter(frames.values())))
            on_progress(RenderProgress(done, first_done, count, time.monotonic() - began_s))
            is_stopping = should_stop() and done < count
            if is_stopping or time.monotonic() - noted_s > _CHECKPOINT_S:
                note_done()
                noted_s = time.monotonic()
            if is_stopping:
                raise Stopped("stopped as asked for")
        if writer.flush(done) == count:
            journal.note(count)
        files = writer.finish(journal.arguments)
        journal.remove()
        for path in files:
            remove_marker(path)  # last, as it says more than the journal
    except BaseException as error:
        writer.close()
        with contextlib.suppress(OSError):
            note_done()
        if not journal.done:
            writer.remove()
        raise _explain(error, lambda k: states.number_of(span.start + first_done + k), journal.done, count) from error
    return RenderProgress(done, first_done, count, time.monotonic() - began_s), files


def renumber_states(error: BadAction, number_of: Callable[[int], int]) -> BadAction:
    """Return an error about a state with the number that the state has in its file."""
    return BadAction(_STATE.sub(lambda match: f"state {number_of(int(match[1]))}", str(error)))


def _explain(error: BaseException, number_of: Callable[[int], int], done: int, count: int) -> BaseException:
    """Return the error that users see: what happened, and what is on the disk."""
    kept = f"; {done:,} of {count:,} states are drawn" if done else "; nothing was written"
    on = ", the same command goes on from there" if done else ""
    if isinstance(error, Stopped):
        return Stopped(f"stopped{kept}{on}")
    if isinstance(error, BadAction):
        advice = "; --range A:B leaves states out" if _STATE.search(str(error)) else ""
        return ValueError(f"{renumber_states(error, number_of)}{advice}{kept}")
    if isinstance(error, OSError):
        return DatasetError(f"cannot write the frames: {error.strerror or error}{kept}{on}")
    if isinstance(error, ClientError):
        return DatasetError(f"{error}{kept}{on}")
    if isinstance(error, ValueError):  # of a file of states
        return ValueError(f"{error}{kept}")
    return error


def frame_forms(renderer: MujocoRenderer, states: StateFile) -> dict[str, Form]:
    """Return the shape and dtype of one frame, by `<camera>.<output>`."""
    zeros = {name: np.zeros((0, *shape)) for name, shape in renderer.shapes.items() if name in states.shapes}
    found = renderer(zeros)
    return {name: Form(array.shape[1:], str(array.dtype)) for name, array in found.items()}
