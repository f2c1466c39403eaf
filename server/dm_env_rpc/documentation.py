"""Properties that document worlds: settings, actions, observations, cameras and labels, of a family and of a world.

They are the descriptions of `worldloom describe` as a tree. A setting is a value: its default, or that of the world. An
action or an observation is a group with its meaning, dtype, shape and range. Its key is its name with `/` for the dots,
which would make it a group in a group.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from worldloom.server.dm_env_rpc.property_tree import Group, Property
from worldloom.server.engine.world import Agent
from worldloom.worlds.describe import Description, describe_built, describe_observation, describe_setting
from worldloom.worlds.settings import Setting, Value

T = TypeVar("T")

_SETTING_DTYPES = {"int": "int64", "float": "float64", "bool": "bool", "str": "str", "bytes": "str"}
_DEFAULTS = "With the default settings of the family; if others change them, world.{} of a joined world has its own."
_ANY_SIZE = {"height": -1, "width": -1}


def constant(value: T) -> Callable[[], T]:
    """Return a function that returns a value."""
    return lambda: value


def table_properties(group: str, table: Sequence[Setting], required: Sequence[str] = ()) -> Iterator[Property]:
    """Yield the settings of a table, whose values are their defaults."""
    for setting in table:
        entry = describe_setting(setting)
        yield _setting(group, entry, entry["default"], _default_text(entry, required))


def family_properties(key: str, family: Description) -> Iterator[Property | Group]:
    """Yield the properties of a family: those that are known without its settings, and others with the defaults."""
    if "problem" in family:
        yield Property(f"{key}.problem", "Why it cannot be used.", "str", constant(family["problem"]))
        return
    missing = family["missing"]
    yield Property(f"{key}.text", "Description.", "str", constant(family["text"]))
    yield _texts(f"{key}.required_settings", "Settings without a default, which CreateWorld needs.", missing)
    yield Group(f"{key}.settings", "The family's own settings of CreateWorld.")
    for entry in family["settings"]:
        yield _setting(f"{key}.settings", entry, entry["default"], _default_text(entry, missing))
    about = _DEFAULTS
    if missing:
        about = f"Known when {' and '.join(missing)} is: world.{{}} of a joined world has them."
    yield from _contents(key, family, about, (), _ANY_SIZE)


def world_properties(key: str, agent: Agent) -> Iterator[Property | Group]:
    """Yield the settings, actions and observations of an agent's world, in the shapes that the agent sees."""
    pool = agent.world.pool
    family = describe_built(pool.family)
    family["variation_observations"] = [describe_observation(spec) for spec in pool.variation_specs]
    yield Group(f"{key}.settings", "The family's own settings that the world has.")
    for entry in family["settings"]:
        yield _setting(f"{key}.settings", entry, entry["value"], f"{_setting_text(entry)} The value is this world's.")
    join, lanes = agent.specs.join_settings, agent.specs.lanes
    about = "As this stream sees the world's {}."
    yield from _contents(
        key, family, about, () if lanes is None else (lanes,), {"height": join.height, "width": join.width}
    )


def _contents(
    key: str, family: Description, about: str, lanes: tuple[int, ...], sides: Mapping[str, int]
) -> Iterator[Property | Group]:
    """Yield everything that may depend on settings. `sides` gives the height and width of frames."""
    yield Property(f"{key}.agents", "Agents of a world.", "int64", constant(family["agents"]))
    if family["max_steps"] is not None:
        text = "Steps after which an episode is interrupted."
        yield Property(f"{key}.max_steps", text, "int64", constant(family["max_steps"]))
    frames = [output for camera in family["cameras"] for output in camera["outputs"]]
    yield Group(f"{key}.actions", about.format("actions"))
    yield from _specs(f"{key}.actions", family["actions"], lanes, sides)
    yield Group(f"{key}.observations", about.format("observations"))
    observations = [*family["observations"], *family["every_world"], *family["variation_observations"]]
    yield from _specs(
        f"{key}.observations", [*observations, *({"hidden": False, **one} for one in frames)], lanes, sides
    )
    yield Group(f"{key}.cameras", about.format("cameras"))
    for camera in family["cameras"]:
        text = "Description; its outputs are observations."
        yield Property(f"{key}.cameras.{_word(camera['name'])}", text, "str", constant(camera["text"]))
    labels = [one["text"] for one in family["labels"]]
    yield _texts(f"{key}.labels", "Meaning of each number in segmentation frames, from 0.", labels)


def _specs(
    group: str, entries: Sequence[Description], lanes: tuple[int, ...], sides: Mapping[str, int]
) -> Iterator[Property | Group]:
    by_key: dict[str, Description] = {}
    for entry in entries:  # of names that differ only in a dot and a slash, the first has the key
        by_key.setdefault(f"{group}.{_word(entry['name'])}", entry)
    for key, entry in by_key.items():
        shape = [*lanes, *(sides.get(side, side) for side in entry["shape"])]
        yield Group(key, entry["text"])
        yield Property(f"{key}.name", "Name in the specs.", "str", constant(entry["name"]))
        yield Property(f"{key}.text", "Meaning.", "str", constant(entry["text"]))
        yield Property(f"{key}.dtype", "NumPy's name of the data type.", "str", constant(entry["dtype"]))
        text = "Shape; -1 stands for the height and width of JoinWorld."
        yield Property(f"{key}.shape", text, "int64", constant(np.array(shape, np.int64)), shape=(len(shape),))
        for name, text, no_limit in (("minimum", "Least value.", -np.inf), ("maximum", "Greatest value.", np.inf)):
            bound = entry.get(name)
            if bound is not None:
                yield _bound(f"{key}.{name}", text, entry["dtype"], bound, no_limit)
        if "hidden" in entry:
            text = "True for hidden information, which frames do not show: to evaluate a learner, not as its input."
            yield Property(f"{key}.hidden", text, "bool", constant(entry["hidden"]))


def _bound(key: str, text: str, dtype: str, bound: Any, no_limit: float) -> Property:
    """Return a limit: one number for all elements, or one for each, infinite where there is none."""
    number_type = dtype if np.dtype(dtype).kind in "iu" else "float64"
    if not isinstance(bound, list):
        return Property(key, text, number_type, constant(bound))
    if None in bound:
        number_type, bound = "float64", [no_limit if one is None else one for one in bound]
    each = np.array(bound, number_type)
    return Property(key, f"{text} One for each element.", number_type, constant(each), shape=each.shape)


def _texts(key: str, text: str, values: Sequence[str]) -> Property:
    return Property(key, text, "str", constant(np.array(values, "str")), shape=(-1,))


def _setting(group: str, entry: Description, value: Value, text: str) -> Property:
    return Property(
        f"{group}.{_word(entry['name'])}",
        text,
        _SETTING_DTYPES[entry["type"]],
        constant(value),
        minimum=entry["minimum"],
        maximum=entry["maximum"],
    )


def _setting_text(entry: Description) -> str:
    choices = f" One of {', '.join(entry['choices'])}." if entry["choices"] else ""
    return f"{entry['text']}{choices}"


def _default_text(entry: Description, required: Sequence[str]) -> str:
    default = "It has to be given." if entry["name"] in required else "The value here is the default."
    return f"{_setting_text(entry)} {default}"


def _word(name: str) -> str:
    return name.replace(".", "/")
