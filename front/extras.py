"""Extras of worldloom: what to install where an optional library is missing.

Every package may use this module; it imports nothing of worldloom.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def explain_missing_extra(module: str, extra: str) -> Iterator[None]:
    """Tell which extra a module needs if a library that is imported in the `with` block is missing."""
    try:
        yield
    except ImportError as error:  # Ray raises it without a name where RLlib's part of it is missing
        raise ModuleNotFoundError(
            f"{module} needs {error.name or f'all of {extra}'}, which is not installed: "
            f"pip install 'worldloom[{extra}]'",
            name=error.name,
        ) from error
