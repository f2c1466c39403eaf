"""Families by name: those that installed packages offer, and those that were added to this process.

A package offers a family through an entry point of the group `worldloom.families`, `name = "module:Class"`. If the
family needs extras of the package they follow, as in `"module:Class [physics]"`. Names are read from the metadata of
packages; a family's code is imported when the family is asked for, so one that cannot be imported does no harm before.
"""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib.metadata import EntryPoint, distributions

from worldloom.worlds.family import Family

GROUP = "worldloom.families"
_CLASS_ATTRIBUTES = ("name", "text", "settings", "labels")
"""Attributes that the class itself must have, so that it can be listed without building a family."""


class FamilyError(ValueError):
    """A family that cannot be found, loaded or added; the message says which, and why."""


class Registry:
    """Families by name. `list_entry_points` is called once, when a name is first asked for."""

    def __init__(self, list_entry_points: Callable[[], Iterable[EntryPoint]]) -> None:
        self._list_entry_points = list_entry_points
        self._added: dict[str, type[Family]] = {}
        self._loaded: dict[str, type[Family]] = {}

    @cached_property
    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for entry_point in self._list_entry_points():
            same = found.setdefault(entry_point.name, [])
            # A package may be on the search path twice, as after a build in the tree it is installed from.
            if not any(entry_point.value == other.value or _package(entry_point) == _package(other) for other in same):
                same.append(entry_point)
        return found

    def known(self) -> tuple[str, ...]:
        """Return the names of all families in alphabetical order, without loading any."""
        return tuple(sorted({*self._entry_points, *self._added}))

    def needs_extra(self, name: str) -> bool:
        """Return True if a family needs an extra: packages beside its own that must be installed and imported.

        A family that was added needs the extra of the family that it is, or is derived from.
        """
        if name not in self._added:
            return any("[" in entry_point.value for entry_point in self._entry_points.get(name, []))
        classes = {f"{base.__module__}:{base.__qualname__}" for base in self._added[name].__mro__}
        return any(
            "[" in entry_point.value and _import_path(entry_point) in classes
            for entry_points in self._entry_points.values()
            for entry_point in entry_points
        )

    def is_built_in(self, name: str) -> bool:
        """Return True if a family is part of worldloom and needs no extra."""
        entry_points = self._entry_points.get(name, [])
        is_own = all(entry_point.value.startswith("worldloom.") for entry_point in entry_points)
        return name not in self._added and bool(entry_points) and is_own and not self.needs_extra(name)

    def is_loaded(self, name: str) -> bool:
        """Return True if a family's code has been imported."""
        return name in self._added or name in self._loaded

    def find(self, name: str) -> type[Family]:
        """Return the family of this name, importing it if necessary; raise FamilyError if that fails."""
        found = self._added.get(name) or self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = self._load(name)
        return found

    def add(self, import_path: str) -> type[Family]:
        """Add the family at `MODULE:CLASS` under its own name. Adding the same family again changes nothing."""
        family = _import(import_path)
        other = self._added.get(family.name)
        is_offered = f"{family.__module__}:{family.__qualname__}" in {
            _import_path(entry_point) for entry_point in self._entry_points.get(family.name, [])
        }
        if other is None and family.name in self._entry_points and not is_offered:
            raise FamilyError(
                f"{import_path} is a family named {family.name!r}, which is already the name of "
                f"{_format(self._entry_points[family.name][0])}: expected another name"
            )
        if other not in (None, family):
            raise FamilyError(
                f"{import_path} is a family named {family.name!r}, which is already the name of "
                "a family that was added before: expected another name"
            )
        self._added[family.name] = family
        return family

    def _load(self, name: str) -> type[Family]:
        entry_points = self._entry_points.get(name, [])
        if not entry_points:
            nearest = difflib.get_close_matches(name, self.known(), n=1, cutoff=0.5)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise FamilyError(f"unknown family {name!r}{hint}: expected one of {', '.join(self.known()) or 'none'}")
        if len(entry_points) > 1:
            found = " and ".join(_format(entry_point) for entry_point in entry_points)
            raise FamilyError(f"several families are named {name!r}: {found}; uninstall all but one of the packages")
        try:
            family = _import(_import_path(entry_points[0]))
        except FamilyError as error:
            raise FamilyError(f"family {name!r} of {_package(entry_points[0])} cannot be loaded: {error}") from error
        if family.name != name:
            raise FamilyError(
                f"family {name!r} of {_package(entry_points[0])} is a class with the name {family.name!r}: "
                "expected the same name"
            )
        return family


def _import(import_path: str) -> type[Family]:
    """Import and check the family class at `MODULE:CLASS`."""
    module_name, colon, class_name = import_path.replace(" ", "").partition(":")
    if not colon or not module_name or not class_name:
        raise FamilyError(f"family {import_path!r}: expected MODULE:CLASS, such as my_worlds.balloon:Balloon")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is not ours and may raise anything
        raise FamilyError(f"cannot import {module_name!r}: {type(error).__name__}: {error}") from error
    found = getattr(module, class_name, None)
    if not inspect.isclass(found) or not issubclass(found, Family):
        families = [name for name, value in vars(module).items() if _is_family(value, module_name)]
        what = "has no" if found is None else "has no family"
        expected = (
            f"one of its families, {', '.join(families)}"
            if families
            else "a subclass of worldloom.worlds.family.Family"
        )
        raise FamilyError(f"{module_name!r} {what} {class_name!r}: expected {expected}")
    missing = [name for name in _CLASS_ATTRIBUTES if not hasattr(found, name)]
    if missing or inspect.isabstract(found):
        missing += sorted(found.__abstractmethods__)
        raise FamilyError(f"family {import_path} is incomplete: it lacks {', '.join(missing)}")
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", str(found.name)):
        raise FamilyError(
            f"family {import_path} is named {found.name!r}: "
            "expected lower case letters, digits, '_' and '-', a letter first"
        )
    return found


def _is_family(value: object, module_name: str) -> bool:
    return inspect.isclass(value) and issubclass(value, Family) and value.__module__ == module_name


def _import_path(entry_point: EntryPoint) -> str:
    """Return `MODULE:CLASS`, without extras."""
    return entry_point.value.partition("[")[0].replace(" ", "")


def _package(entry_point: EntryPoint) -> str:
    return f"package {entry_point.dist.name}" if entry_point.dist else entry_point.value


def _format(entry_point: EntryPoint) -> str:
    return f"{entry_point.value} of {_package(entry_point)}" if entry_point.dist else entry_point.value


def installed_entry_points() -> Iterator[EntryPoint]:
    """List the entry points of all packages.

    A package may be found in several places: `importlib.metadata.entry_points()` would read one of them only.
    """
    for package in distributions():
        yield from package.entry_points.select(group=GROUP)


_registry = Registry(installed_entry_points)


def known_families() -> tuple[str, ...]:
    """Return the names of all families in alphabetical order, without loading any."""
    return _registry.known()


def needs_extra(name: str) -> bool:
    """Return True if a family needs an extra of its package, without loading it."""
    return _registry.needs_extra(name)


def is_built_in(name: str) -> bool:
    """Return True if a family is part of worldloom, and needs no extra: it is built in no time."""
    return _registry.is_built_in(name)


def is_loaded(name: str) -> bool:
    """Return True if a family's code has been imported: finding it then takes no time."""
    return _registry.is_loaded(name)


def find_family(name: str) -> type[Family]:
    """Return the family of this name, importing it if necessary; raise FamilyError if that fails."""
    return _registry.find(name)


def add_family(import_path: str) -> type[Family]:
    """Add the family at `MODULE:CLASS` to this process, under its own name."""
    return _registry.add(import_path)
