"""Everything about a family as plain data, ready for JSON: what `worldloom describe` prints and the documents show."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from worldloom.kernels.outputs import OUTPUTS
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.family import Bound, Camera, Family, Spec
from worldloom.worlds.settings import Setting, plain

_FEW_CHOICES = 5
"""That are named where there is little room."""

Description: TypeAlias = dict[str, Any]

EVERY_WORLD = (
    Spec("reward", "float32", (), "What the last step brought; 0 when it began an episode."),
    Spec("discount", "float32", (), "0 if the last step ended the episode by the family's rules, else 1.", 0, 1),
    Spec("step_type", "uint8", (), "Where in its episode the lane is: 0 first, 1 mid, 2 last.", 0, 2),
)
"""Observations that every family has; some have a reward of float64."""


def every_world(family: Family | type[Family]) -> tuple[Spec, ...]:
    """Those of one family."""
    reward, *others = EVERY_WORLD
    return (replace(reward, dtype=family.reward_dtype), *others)


def describe(family: type[Family], given: Mapping[str, object] | None = None) -> Description:
    """A family with these settings, and the defaults of the others; some of it may depend on them.

    Where a setting that must be given is not, what depends on it is left empty.
    """
    given = {} if given is None else given
    missing = [name for name in family.required if name not in given]
    if missing:
        settings = [
            _setting(setting) | {"value": given.get(setting.name, setting.default)} for setting in family.settings
        ]
        empty: Description = {name: [] for name in ("actions", "observations", "cameras", "labels")}
        known = {"family": family.name, "text": family.text, "missing": missing, "settings": settings}
        every = [_spec(spec) | {"hidden": False} for spec in every_world(family)]
        return known | {"agents": family.agents, "max_steps": None, "every_world": every} | empty
    made = family(given, AssetLibrary())
    return {
        "family": family.name,
        "text": family.text,
        "missing": [],
        "settings": [_setting(setting) | {"value": made.given[setting.name]} for setting in family.settings],
        "agents": made.agents,
        "max_steps": made.max_steps,
        "actions": [_spec(spec) for spec in made.actions],
        "observations": [_spec(spec) | {"hidden": spec.hidden} for spec in made.observations],
        "every_world": [_spec(spec) | {"hidden": False} for spec in every_world(made)],
        "cameras": [_camera(camera) for camera in made.cameras],
        "labels": [{"label": number, "text": text} for number, text in enumerate(made.labels)],
    }


def range_in_words(entry: Mapping[str, Any]) -> str:
    """What a setting, an action or an observation may be, in short."""
    choices = entry.get("choices")
    if choices:
        return " or ".join(choices) if len(choices) <= _FEW_CHOICES else f"one of {len(choices)}"
    low, high = entry["minimum"], entry["maximum"]
    if isinstance(low, list) or isinstance(high, list):
        return "a range for each"
    if low is not None and high is not None:
        return f"{plain(low)} to {plain(high)}"
    if low is not None:
        return f"{plain(low)} or more"
    return "" if high is None else f"{plain(high)} or less"


def type_in_words(entry: Mapping[str, Any]) -> str:
    """A dtype and a shape, in short."""
    return f"{entry['dtype']} [{', '.join(str(side) for side in entry['shape'])}]"


def value_in_words(value: object) -> str:
    """A setting's value as it is written on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _setting(setting: Setting) -> Description:
    return {
        "name": setting.name,
        "type": setting.kind,
        "default": setting.default,
        "minimum": setting.minimum,
        "maximum": setting.maximum,
        "choices": list(setting.choices),
        "text": setting.text,
    }


def _spec(spec: Spec) -> Description:
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "minimum": _bound(spec.minimum),
        "maximum": _bound(spec.maximum),
        "text": spec.text,
    }


def _bound(bound: Bound) -> float | list[float | None] | None:
    """A bound for JSON, which has no infinite numbers."""
    return [one if math.isfinite(one) else None for one in bound] if isinstance(bound, tuple) else bound


def _camera(camera: Camera) -> Description:
    return {
        "name": camera.name,
        "text": camera.text,
        "outputs": [
            {
                "name": f"{camera.name}.{output.name}",
                "dtype": output.dtype,
                "shape": list(output.frame_shape("height", "width")),
                "text": output.description,
            }
            for output in OUTPUTS
        ],
    }
