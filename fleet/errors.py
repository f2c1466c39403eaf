"""Errors of a fleet. They are RuntimeErrors; invalid arguments are ValueErrors."""


class FleetError(RuntimeError):
    """Something that a fleet could not do; the text says why and what to do."""


class NoRayCluster(FleetError):
    """There is no Ray cluster to connect to."""


class NoSuchFleet(FleetError):
    """There is no fleet of that name on the Ray cluster."""


class QuotaExceeded(FleetError):
    """A learner asked for more lanes than its quota leaves."""
