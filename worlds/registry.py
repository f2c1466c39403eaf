"""Families by name: those that installed packages offer, and those that were added to this process.

A package offers a family through the entry-point group `worldloom.families`, as `name = "module:Class"`, with the
extras of the package that the family needs behind it, as in `"module:Class [physics]"`. Names are read from the
packages' metadata; a family's code is imported when it is asked for. One that cannot be loaded is in nobody's way until
then.
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
_WANTED = ("name", "text", "settings", "labels")
"""What the class itself must say, so that it can be described without making one."""


class FamilyError(ValueError):
    """A family that cannot be had; the text says which, and why."""


class Registry:
    """Families by name. `offers` lists the entry points; it is called once, when a name is first asked for."""

    def __init__(self, offers: Callable[[], Iterable[EntryPoint]]) -> None:
        self._list_offers = offers
        self._added: dict[str, type[Family]] = {}
        self._loaded: dict[str, type[Family]] = {}

    @cached_property
    def _offers(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for offer in self._list_offers():
            same = found.setdefault(offer.name, [])
            # A package may be on the search path twice, as after a build in the tree it is installed from.
            if not any(offer.value == other.value or _who(offer) == _who(other) for other in same):
                same.append(offer)
        return found

    def known(self) -> tuple[str, ...]:
        """The names of all families, in alphabetical order; loads none of them."""
        return tuple(sorted({*self._offers, *self._added}))

    def needs_extra(self, name: str) -> bool:
        """Whether more than its own package must be installed for a family, and imported with it."""
        return name not in self._added and any("[" in offer.value for offer in self._offers.get(name, []))

    def is_loaded(self, name: str) -> bool:
        """Whether a family's code has been imported."""
        return name in self._added or name in self._loaded

    def find(self, name: str) -> type[Family]:
        """The family of that name."""
        found = self._added.get(name) or self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = self._load(name)
        return found

    def add(self, place: str) -> type[Family]:
        """Take in the family at `MODULE:CLASS`, under its own name. Adding the same one again changes nothing."""
        family = _import(place)
        other = self._added.get(family.name)
        is_offered = f"{family.__module__}:{family.__qualname__}" in _places(self._offers.get(family.name, []))
        if other is None and family.name in self._offers and not is_offered:
            raise FamilyError(
                f"{place} is a family named {family.name!r}, and {_offer(self._offers[family.name][0])} offers another "
                "of that name: expected a name of its own"
            )
        if other not in (None, family):
            raise FamilyError(
                f"{place} is a family named {family.name!r}, and another of that name was added before: "
                "expected a name of its own"
            )
        self._added[family.name] = family
        return family

    def _load(self, name: str) -> type[Family]:
        offers = self._offers.get(name, [])
        if not offers:
            nearest = difflib.get_close_matches(name, self.known(), n=1, cutoff=0.5)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise FamilyError(f"unknown family {name!r}{hint}: expected one of {', '.join(self.known()) or 'none'}")
        if len(offers) > 1:
            raise FamilyError(f"there are two families named {name!r}: {' and '.join(_offer(one) for one in offers)}")
        try:
            family = _import(_place(offers[0]))
        except FamilyError as error:
            raise FamilyError(f"family {name!r} of {_who(offers[0])} cannot be loaded: {error}") from error
        if family.name != name:
            raise FamilyError(
                f"family {name!r} of {_who(offers[0])} calls itself {family.name!r}: expected the same name"
            )
        return family


def _import(place: str) -> type[Family]:
    """The family class at `MODULE:CLASS`."""
    module_name, colon, class_name = place.replace(" ", "").partition(":")
    if not colon or not module_name or not class_name:
        raise FamilyError(f"family {place!r}: expected MODULE:CLASS, such as my_worlds.balloon:Balloon")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is someone else's code: whatever stops it is the answer
        raise FamilyError(f"cannot import {module_name!r}: {type(error).__name__}: {error}") from error
    found = getattr(module, class_name, None)
    if not inspect.isclass(found) or not issubclass(found, Family):
        there = [name for name, value in vars(module).items() if _is_family(value, module_name)]
        what = "has no" if found is None else "has no family"
        raise FamilyError(f"{module_name!r} {what} {class_name!r}: expected {_one_of(there)}")
    missing = [name for name in _WANTED if not hasattr(found, name)]
    if missing or inspect.isabstract(found):
        missing += sorted(found.__abstractmethods__)
        raise FamilyError(f"family {place} is not whole: it lacks {', '.join(missing)}")
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", str(found.name)):
        raise FamilyError(
            f"family {place} is named {found.name!r}: expected lower case letters, digits, '_' and '-', a letter first"
        )
    return found


def _is_family(value: object, module_name: str) -> bool:
    return inspect.isclass(value) and issubclass(value, Family) and value.__module__ == module_name


def _one_of(names: list[str]) -> str:
    return f"one of its families, {', '.join(names)}" if names else "a subclass of worldloom.worlds.family.Family"


def _places(offers: list[EntryPoint]) -> set[str]:
    return {_place(offer) for offer in offers}


def _place(offer: EntryPoint) -> str:
    """`MODULE:CLASS`, without extras."""
    return offer.value.partition("[")[0].replace(" ", "")


def _who(offer: EntryPoint) -> str:
    return f"package {offer.dist.name}" if offer.dist else offer.value


def _offer(offer: EntryPoint) -> str:
    return f"{offer.value} of {_who(offer)}" if offer.dist else offer.value


def installed_offers() -> Iterator[EntryPoint]:
    """What every package offers. `entry_points()` would look at one of several places a package is found in only."""
    for package in distributions():
        yield from package.entry_points.select(group=GROUP)


_registry = Registry(installed_offers)


def known_families() -> tuple[str, ...]:
    """The names of all families this process can find, in alphabetical order; loads none of them."""
    return _registry.known()


def needs_extra(name: str) -> bool:
    """Whether a family needs an extra of its package; loads nothing."""
    return _registry.needs_extra(name)


def is_loaded(name: str) -> bool:
    """Whether a family's code is here already: then finding it takes no time."""
    return _registry.is_loaded(name)


def find_family(name: str) -> type[Family]:
    """The family of that name, imported now if it was not before."""
    return _registry.find(name)


def add_family(place: str) -> type[Family]:
    """Take the family at `MODULE:CLASS` into this process, to be found by its own name."""
    return _registry.add(place)
