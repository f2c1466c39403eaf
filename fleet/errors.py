"""Errors of a fleet. They are RuntimeErrors; invalid arguments are ValueErrors."""

from collections.abc import Iterator
from contextlib import contextmanager


class FleetError(RuntimeError):
    """Something that a fleet could not do; the text says why and what to do."""


class NoRayCluster(FleetError):
    """There is no Ray cluster to connect to."""


class NoSuchFleet(FleetError):
    """There is no fleet of that name on the Ray cluster."""


class QuotaExceeded(FleetError):
    """A learner asked for more lanes than its quota leaves."""


@contextmanager
def explain_missing() -> Iterator[None]:
    """Tell what to install if the library that is imported in the `with` block is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"worldloom.fleet needs {error.name}, which is not installed: pip install 'worldloom[fleet]'",
            name=error.name,
        ) from error
