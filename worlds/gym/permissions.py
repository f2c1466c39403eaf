"""Permissions of the family `gym`: the environments and keyword arguments that clients may ask for.

A client names an environment by its id in Gymnasium's registry and nothing else: no id imports a module. The operator
says which ids are allowed, and which keyword arguments beyond those that tune Gymnasium's own environments. Arguments
that can name files or code, or change how pictures are made, are refused whatever the operator lists.
"""

import difflib
import importlib
import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, NoReturn, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec

from worldloom.worlds.gym.environments import error_text, raise_interrupt
from worldloom.worlds.settings import SettingError, abbreviate

Argument: TypeAlias = int | float | bool | str | tuple[int | float, ...]
"""Value of a keyword argument."""

MAX_ID_CHARACTERS = 100
MAX_KWARGS_CHARACTERS = 4096
MAX_TEXT_CHARACTERS = 64
MAX_LIST_NUMBERS = 64
MAX_NUMBER = 1e9
"""Limits of what a client sends: an id, the text of `kwargs`, a text, a list and a number in it."""
MAX_FRAME_SKIP = 100
"""Largest `frame_skip`: simulator steps in one step, which nothing interrupts."""

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TEXT = re.compile(r"[A-Za-z0-9_+-]([A-Za-z0-9_+. -]*[A-Za-z0-9_+-])?")

TUNING_ARGUMENTS = frozenset(
    {
        *("contact_cost_range", "contact_cost_weight", "contact_force_range", "continuous", "ctrl_cost_weight"),
        *("domain_randomize", "enable_wind", "exclude_current_positions_from_observation", "fickle_passenger"),
        *("fickle_probability", "forward_reward_weight", "frame_skip", "g", "goal_velocity", "gravity", "hardcore"),
        *("healthy_angle_range", "healthy_reward", "healthy_state_range", "healthy_z_range", "impact_cost_range"),
        *("impact_cost_weight", "include_cfrc_ext_in_observation", "include_cinert_in_observation"),
        *("include_cvel_in_observation", "include_qfrc_actuator_in_observation", "is_rainy", "is_slippery"),
        *("lap_complete_percent", "main_body", "map_name", "natural", "rainy_probability", "reset_noise_scale"),
        *("reward_control_weight", "reward_dist_weight", "reward_near_weight", "reward_schedule", "sab"),
        *("success_rate", "sutton_barto_reward", "terminate_when_unhealthy", "turbulence_power", "uph_cost_weight"),
        *("use_contact_forces", "wind_power"),
    }
)
"""Keyword arguments of Gymnasium's own environments that weigh rewards, set ranges and noise, or choose a variant."""
_REFUSED_PARTS = (
    *("file", "path", "dir", "url", "module", "import", "entry_point", "class", "func", "callback", "wrapper", "spec"),
    *("render", "camera", "width", "height", "screen", "visual", "max_geom", "xml", "kwargs"),
)
"""Parts of argument names that are always refused."""

_id_patterns: list[str] = []
_more_arguments: set[str] = set()


def allow_gym_ids(patterns: Iterable[str]) -> None:
    """Allow ids that match one of these patterns, as `fnmatch` has them, and no others.

    Without patterns, Gymnasium's own environments are allowed.
    """
    found = list(patterns)
    for pattern in found:
        if not pattern or ":" in pattern:
            raise ValueError(f"pattern {pattern!r} of environment ids: expected a text without ':', such as 'Ant*'")
    _id_patterns[:] = found


def allow_gym_kwargs(names: Iterable[str]) -> None:
    """Allow these keyword arguments beside TUNING_ARGUMENTS; earlier ones are no longer allowed."""
    found = set(names)
    for name in sorted(found):
        if not _NAME.fullmatch(name):
            raise ValueError(f"keyword argument {abbreviate(name)}: expected the name of an argument")
        part = _refused_part(name)
        if part is not None:
            raise ValueError(
                f"keyword argument {name!r} has {part!r} in its name and cannot be allowed: arguments that may name "
                "files or code, or change how pictures are made, are the server's own"
            )
    _more_arguments.clear()
    _more_arguments.update(found)


def import_gym_modules(modules: Iterable[str]) -> None:
    """Import the modules that register environments of other packages."""
    for module in modules:
        try:
            gymnasium.register_envs(importlib.import_module(module))
        except BaseException as error:  # the module is not ours and may raise anything
            raise_interrupt(error)
            raise ValueError(f"cannot import {module!r}: {error_text(error)}") from error


def find_spec(env_id: str) -> EnvSpec:
    """Return the registration of an id; raise SettingError if it is not well-formed, not allowed or not known."""
    if len(env_id) > MAX_ID_CHARACTERS or not _ID.fullmatch(env_id):
        raise SettingError(
            f"setting 'id' is {abbreviate(env_id)}: expected the id of an environment, such as CartPole-v1, in "
            f"letters, digits, '_', '-', '.' and at most one '/', up to {MAX_ID_CHARACTERS} characters"
        )
    spec = gymnasium.registry.get(env_id)
    if spec is not None and _is_allowed(spec):
        return spec
    allowed = allowed_ids()
    nearest = difflib.get_close_matches(env_id, allowed, n=1, cutoff=0.5)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    if spec is not None or any(fnmatchcase(env_id, pattern) for pattern in _id_patterns):
        problem = "is not allowed here" if spec is not None else "is not registered here"
    else:
        problem = "is unknown or not allowed here"
    allows = (
        f"one of the {len(allowed)} ids that are allowed ({_describe_allowed()}; `worldloom describe gym` lists them)"
    )
    if not allowed:
        allows = f"an id like {_describe_allowed()}, of which none is registered"
    raise SettingError(
        f"setting 'id' is {env_id!r}, which {problem}{hint}: expected {allows}; --gym-id PATTERN allows others, and "
        "--gym-import MODULE imports the package that registers them"
    )


def allowed_ids() -> tuple[str, ...]:
    """Return the ids that are allowed and registered."""
    return tuple(sorted(one.id for one in gymnasium.registry.values() if _is_allowed(one)))


def allowed_arguments() -> tuple[str, ...]:
    """Return the names of the keyword arguments that are allowed."""
    return tuple(sorted(TUNING_ARGUMENTS | _more_arguments))


def _is_allowed(spec: EnvSpec) -> bool:
    if _id_patterns:
        return any(fnmatchcase(spec.id, pattern) for pattern in _id_patterns)
    return isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.")


def _describe_allowed() -> str:
    return ", ".join(_id_patterns[:5]) if _id_patterns else "those of Gymnasium itself"


def parse_kwargs(text: str) -> dict[str, Argument]:
    """Return the keyword arguments in a JSON object; raise SettingError for all that is not allowed."""
    if not text:
        return {}
    if len(text) > MAX_KWARGS_CHARACTERS:
        _refuse(text, f"a JSON object of up to {MAX_KWARGS_CHARACTERS} characters, not {len(text)}")
    try:
        found = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_pairs)
    except (ValueError, RecursionError) as error:
        _refuse(text, f'a JSON object such as {{"is_slippery": false}} ({str(error)[:100]})')
    if not isinstance(found, dict):
        _refuse(text, 'a JSON object such as {"is_slippery": false}')
    for name in found:
        _check_name(name)
    return {name: _parse_argument(name, value) for name, value in found.items()}


def _refuse(given: object, expected: str) -> NoReturn:
    raise SettingError(f"setting 'kwargs' is {abbreviate(given)}: expected {expected}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _refused_part(name: str) -> str | None:
    return next((part for part in _REFUSED_PARTS if part in name.lower()), None)


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) and _refused_part(name) is None and name in TUNING_ARGUMENTS | _more_arguments:
        return
    nearest = difflib.get_close_matches(name[:100], TUNING_ARGUMENTS | _more_arguments, n=1, cutoff=0.6)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    if _refused_part(name) is not None:
        how = "arguments that may name files or code, or change how pictures are made, are the server's own"
    else:
        how = "its operator allows others with --gym-kwarg NAME"
    raise SettingError(
        f"setting 'kwargs' has the argument {abbreviate(name)}{hint}, which is not allowed here: expected arguments "
        f"that tune an environment, such as reset_noise_scale or is_slippery; {how}"
    )


def _parse_argument(name: str, value: object) -> Argument:
    if name == "frame_skip":
        if type(value) is not int or not 1 <= value <= MAX_FRAME_SKIP:
            _refuse_argument(name, value, f"an integer from 1 to {MAX_FRAME_SKIP}")
        return value
    if isinstance(value, str):
        if len(value) > MAX_TEXT_CHARACTERS or not _TEXT.fullmatch(value) or ".." in value:
            _refuse_argument(
                name, value, f"a text of letters, digits, '_', '+', '-' and '.', up to {MAX_TEXT_CHARACTERS} of them"
            )
        return value
    if isinstance(value, list):
        if len(value) > MAX_LIST_NUMBERS or not all(_is_number(one) for one in value):
            _refuse_argument(name, value, f"a list of up to {MAX_LIST_NUMBERS} numbers")
        return tuple(value)
    if not _is_number(value):
        _refuse_argument(name, value, f"a number from -{MAX_NUMBER:g} to {MAX_NUMBER:g}, true, false, a text or a list")
    assert isinstance(value, bool | int | float)
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float) and abs(value) <= MAX_NUMBER  # which NaN is not


def _refuse_argument(name: str, value: object, expected: str) -> NoReturn:
    raise SettingError(f"setting 'kwargs' has {name!r} as {abbreviate(value)}: expected {expected}")
