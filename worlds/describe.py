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
from worldloom.worlds.randomisation.settings import (
    PICTURE_SETS,
    VARIATION_NAMES,
    VARIATION_SETTINGS,
    VARIATIONS,
    read_randomisation,
)
from worldloom.worlds.randomisation.specs import check_amounts, count_numbers, is_drawn, list_specs
from worldloom.worlds.settings import Setting, Value, format_number, parse_settings

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

    They are the family's own and those of randomisation. Actions, observations and cameras may depend on them. If a
    required setting is missing, they are empty.
    """
    given = {} if settings is None else settings
    varied = {name: value for name, value in given.items() if name in VARIATION_NAMES}
    settings = {name: value for name, value in given.items() if name not in VARIATION_NAMES}
    missing = family.missing_settings(settings)
    if missing:
        table = [
            describe_setting(setting) | {"value": _shown_value(settings.get(setting.name, setting.default))}
            for setting in family.settings
        ]
        empty: Description = {
            name: [] for name in ("actions", "observations", "variation_observations", "cameras", "labels")
        }
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
        common = [describe_observation(spec) for spec in common_observations(family)]
        known |= {"agents": family.agents, "max_steps": None, "every_world": common}
        values = parse_settings(VARIATION_SETTINGS, varied)
        return known | empty | {"variations": [_describe_variation(one, values) for one in VARIATION_SETTINGS]}
    return describe_built(family(settings, AssetLibrary()), varied)


def describe_built(built: Family, varied: Mapping[str, object] | None = None) -> Description:
    """Return the description of a family that was built, with its settings and these of randomisation."""
    values = parse_settings(VARIATION_SETTINGS, varied or {})
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
        "observations": [describe_observation(spec) for spec in built.observations],
        "every_world": [describe_observation(spec) for spec in common_observations(built)],
        "cameras": [_describe_camera(camera) for camera in built.cameras],
        "labels": [{"label": number, "text": text} for number, text in enumerate(built.labels)],
        "variations": _describe_variations(built, values),
        "variation_observations": _describe_variation_observations(built, values),
    }


def _possible(family: Family) -> list[bool]:
    """Return which of VARIATIONS can vary: no pictures that a family supplies itself, and what its simulation has."""
    has_scene, counts = is_drawn(family), family.physical_counts()
    return [bool(counts.get(one.name)) if one.is_physical else has_scene for one in VARIATIONS]


def _describe_variations(family: Family, values: Mapping[str, Value]) -> list[Description]:
    """Return the settings of what can vary."""
    possible = _possible(family)
    impossible = {f"vary_{one.name}" for one, can in zip(VARIATIONS, possible, strict=True) if not can}
    if not is_drawn(family):
        impossible.update(PICTURE_SETS)
    return [
        _describe_variation(one, values)
        for one in VARIATION_SETTINGS
        if any(possible) and one.name.removesuffix("_at") not in impossible
    ]


def _describe_variation(setting: Setting, values: Mapping[str, Value]) -> Description:
    return describe_setting(setting) | {"value": _shown_value(values[setting.name])}


def _describe_variation_observations(family: Family, values: Mapping[str, Value]) -> list[Description]:
    """Return the observations of what varies with these settings, or, if nothing does, of all that can vary."""
    randomisation = read_randomisation(values, family.distraction is not None)
    if randomisation is None:
        varies = _possible(family)
    else:
        check_amounts(family, randomisation)
        varies = [amount > 0 for amount in randomisation.amounts]
    if not any(varies) and family.distraction is None:
        return []
    counts = [count if varied else 0 for count, varied in zip(count_numbers(family), varies, strict=True)]
    return [describe_observation(spec) for spec in list_specs(family, counts)]


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


def describe_observation(spec: Spec) -> Description:
    """Return the description of an observation."""
    return _describe_spec(spec) | {"hidden": spec.hidden}


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
