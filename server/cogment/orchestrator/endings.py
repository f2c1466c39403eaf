"""Why trials end, and what that is to whoever waits for one or comes too late."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from worldloom.protos.errors import DeadlineExceeded, FailedPrecondition, Internal, RequestError, Unavailable
from worldloom.server.dm_env_rpc.tensors import shown

T = TypeVar("T")


@dataclass(frozen=True)
class Ending:
    """How a trial ended."""

    reason: str
    kind: type[RequestError] = FailedPrecondition
    """What calls get that wait at that moment."""

    def refusal(self, trial_id: str) -> RequestError:
        """For a call that waits."""
        return self.kind(f"trial {shown(trial_id)} is over: {self.reason}")

    def late(self, trial_id: str) -> RequestError:
        """For a call that comes afterwards."""
        return FailedPrecondition(f"trial {shown(trial_id)} is over: {self.reason}; start another")


class TrialOver(Exception):  # noqa: N818  # it is how a trial ends, seldom an error
    """Nothing more can happen in a trial."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def failure(error: RequestError, by: str = "") -> TrialOver:
    """The end of a trial because of somebody who takes part in it: `by` whom, if the error does not say so itself. To
    the clients it is the server's failure, whatever it was to the server."""
    kind = type(error) if isinstance(error, Unavailable | DeadlineExceeded) else Internal
    text = str(error)
    return TrialOver(Ending(text if by in text else f"{by}: {text}", kind))


async def together(*jobs: Coroutine[Any, Any, T]) -> list[T]:
    """Do all at once. If one fails, the others are cancelled, and its error is raised as it is."""
    if len(jobs) == 1:
        return [await jobs[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
