"""Descriptions of families as plain data, ready for JSON, and the functions that format parts of them as text.

A description is derived from the tables of a family. `worldloom describe` prints it, docs/worlds.md is made from it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from worldloom.kernels.outputs import OUTPUTS
from worldloom.render.assets import AssetLibrary
from worldloom.worlds.family import Bound, Camera, Family, Spec
from worldloom.worlds.randomisation.settings import PICTURE_SETS, VARIATION_SETTINGS, VARIATIONS
from worldloom.worlds.settings import Setting, format_number

_MAX_LISTED_CHOICES = 5
"""Most choices of a setting that are listed in a table."""
_MAX_SHOWN_TEXT = 200
"""Most characters of a setting's value that a description has."""

Description: TypeAlias = dict[str, Any]

COMMON_OBSERVATIONS = (
    Spec("reward", "float32", (), "Reward of the last step; 0 if that began an episode."),
    Spec("discount", "float32", (), "0 if the last step ended the episode by the family's rules, else 1.", 0, 1),
    Spec("step_type", "uint8", (), "Position of the last step in its episode: 0 first, 1 mid, 2 last.", 0, 2),
)
"""Observations that every family has. The reward is of the family's `reward_dtype`: see `common_observations`."""


def common_observations(family: Family | type[Family]) -> tuple[Spec, ...]:
    """Return the observations that every family has, with the reward of this one's dtype."""
    reward, *others = COMMON_OBSERVATIONS
    return (replace(reward, dtype=family.reward_dtype), *others)


def describe(family: type[Family], settings: Mapping[str, object] | None = None) -> Description:
    """Return the description of a family with these settings and the defaults of the others.

    Actions, observations and cameras may depend on the settings. If a required setting is missing, they are empty.
    """
    settings = {} if settings is None else settings
    missing = family.missing_settings(settings)
    if missing:
        table = [
            describe_setting(setting) | {"value": _shown_value(settings.get(setting.name, setting.default))}
            for setting in family.settings
        ]
        empty: Description = {name: [] for name in ("actions", "observations", "cameras", "labels")}
        known: Description = {
            "family": family.name,
            "text": family.text,
            "seeds": family.seed_text,
            "missing": missing,
            "settings": table,
        }
        allowed = {name: list(values) for name, values in family.allowed_values().items()}
        if allowed:
            known["allowed"] = allowed
        common = [_describe_spec(spec) | {"hidden": False} for spec in common_observations(family)]
        known |= {"agents": family.agents, "max_steps": None, "every_world": common}
        return known | empty | {"variations": [describe_setting(one) for one in VARIATION_SETTINGS]}
    return describe_built(family(settings, AssetLibrary()))


def describe_built(built: Family) -> Description:
    """Return the description of a family that was built, with its settings."""
    return {
        "family": built.name,
        "text": built.text,
        "seeds": built.seed_text,
        "missing": [],
        "settings": [
            describe_setting(setting) | {"value": _shown_value(built.setting_values[setting.name])}
            for setting in built.settings
        ],
        "agents": built.agents,
        "max_steps": built.max_steps,
        "actions": [_describe_spec(spec) for spec in built.actions],
        "observations": [_describe_spec(spec) | {"hidden": spec.hidden} for spec in built.observations],
        "every_world": [_describe_spec(spec) | {"hidden": False} for spec in common_observations(built)],
        "cameras": [_describe_camera(camera) for camera in built.cameras],
        "labels": [{"label": number, "text": text} for number, text in enumerate(built.labels)],
        "variations": _describe_variations(built),
    }


def _describe_variations(family: Family) -> list[Description]:
    """Return the settings of what can vary: no pictures that a family supplies itself, and what its simulation has."""
    is_drawn, counts = any(camera.is_drawn for camera in family.cameras), family.physical_counts()
    possible = [one.name for one in VARIATIONS if (counts.get(one.name) if one.is_physical else is_drawn)]
    impossible = {f"vary_{one.name}" for one in VARIATIONS if one.name not in possible}
    if not is_drawn:
        impossible.update(PICTURE_SETS)
    return [
        describe_setting(one)
        for one in VARIATION_SETTINGS
        if possible and one.name.removesuffix("_at") not in impossible
    ]


def format_range(entry: Mapping[str, Any]) -> str:
    """Return the range of a setting, an action or an observation as short text."""
    choices = entry.get("choices")
    if choices:
        return " or ".join(choices) if len(choices) <= _MAX_LISTED_CHOICES else f"one of {len(choices)}"
    low, high = entry["minimum"], entry["maximum"]
    if isinstance(low, list) or isinstance(high, list):
        return "a range for each"
    if low is not None and high is not None:
        return f"{format_number(low)} to {format_number(high)}"
    if low is not None:
        return f"{format_number(low)} or more"
    return "" if high is None else f"{format_number(high)} or less"


def format_type(entry: Mapping[str, Any]) -> str:
    """Return a dtype and a shape as short text."""
    return f"{entry['dtype']} [{', '.join(str(side) for side in entry['shape'])}]"


def format_value(value: object) -> str:
    """Return a setting's value as it is written on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown_value(value: object) -> object:
    """Return a setting's value for a description: of bytes their number, of a long text the beginning."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes" if value else ""
    return f"{value[:_MAX_SHOWN_TEXT]}…" if isinstance(value, str) and len(value) > _MAX_SHOWN_TEXT else value


def describe_setting(setting: Setting) -> Description:
    """Return the description of a setting, without a value."""
    return {
        "name": setting.name,
        "type": setting.type_name,
        "default": _shown_value(setting.default),
        "minimum": setting.minimum,
        "maximum": setting.maximum,
        "choices": list(setting.choices),
        "text": setting.text,
    }


def _describe_spec(spec: Spec) -> Description:
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "minimum": _json_bound(spec.minimum),
        "maximum": _json_bound(spec.maximum),
        "text": spec.text,
    }


def _json_bound(bound: Bound) -> float | list[float | None] | None:
    """Return a bound for JSON: None stands for infinite numbers, which JSON lacks."""
    return [one if math.isfinite(one) else None for one in bound] if isinstance(bound, tuple) else bound


def _describe_camera(camera: Camera) -> Description:
    return {
        "name": camera.name,
        "text": camera.text,
        "outputs": [
            {
                "name": f"{camera.name}.{output.name}",
                "dtype": output.dtype,
                "shape": list(output.frame_shape("height", "width")),
                "text": output.description,
                "by_name_only": output.by_name_only,
            }
            for output in OUTPUTS
            if output.name in camera.outputs
        ],
    }
