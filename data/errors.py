"""Errors of datasets.

DatasetError
├── DamagedDataset     bytes are not those that were written
├── IncompleteDataset  a dataset whose collection has not ended, where all of it is needed
└── PolicyError        a policy that cannot be loaded, or that returns something else than valid actions

An error that stops a collection says what is complete, and how to go on.
"""


class DatasetError(RuntimeError):
    """Base class of the errors of datasets."""


class DamagedDataset(DatasetError):  # noqa: N818  # named like those of worldloom.client
    """Bytes of a dataset that are not those that were written."""


class IncompleteDataset(DatasetError):  # noqa: N818
    """A dataset whose collection has not ended, where all of it is needed."""


class PolicyError(DatasetError):
    """A policy that cannot be loaded, or that returns something else than valid actions."""
