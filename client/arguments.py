"""Arguments of environments, checked: integers, seeds, masks and numbers of lanes."""

import difflib
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from gymnasium.vector import AutoresetMode

Autoreset: TypeAlias = Literal["next_step", "same_step", "disabled"]
MAX_SEED = 2**64 - 1
MAX_LANE_NUMBER = 2**63 - 1
MAX_ACTION_REPEAT = 1000
"""The largest that servers accept."""
MAX_FRAME_STACK = 2**16
MODES: Mapping[Autoreset, AutoresetMode] = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}
"""Gymnasium's names of the modes."""
RESET_MASK = "reset_mask"
VARIATION = "variation"
"""Setting of a world, and option of a reset: the numbers of the variations of its lanes."""
MAX_VARIATION = 2**31 - 1
FINAL_LANES = "final_lanes"
"""Observation of a server: lanes whose episode ended, where the next one has begun."""


def parse_integer(name: str, given: Any, least: int, greatest: int, expected: str = "one integer") -> int:
    """Return an integer from a range; TypeError, which says what was `expected`, or ValueError for anything else."""
    try:
        if isinstance(given, bool | np.bool_):
            raise TypeError
        value = operator.index(given)
    except TypeError:
        raise TypeError(f"{name} is {given!r}: expected {expected}") from None
    if not least <= value <= greatest:
        raise ValueError(f"{name} is {value}: expected an integer from {least} to {greatest}")
    return value


def check_keywords(function: Callable[..., Any], given: Iterable[str]) -> None:
    """Raise TypeError for a keyword that a function with the arguments of VectorEnv does not have."""
    known = inspect.signature(function).parameters
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            setting = "max_steps" if name == "max_episode_steps" else name
            raise TypeError(
                f"unknown argument {name!r}{hint}: expected arguments of VectorEnv; settings of the family, which "
                f"`worldloom describe FAMILY` lists, go into settings={{{setting!r}: ...}}"
            )


def parse_autoreset(given: Any) -> Autoreset:
    """Return a mode of autoreset by our name, given as that or as Gymnasium's enum."""
    for name, mode in MODES.items():
        if given == name or given is mode:
            return name
    raise ValueError(f"autoreset is {given!r}: expected one of {', '.join(map(repr, get_args(Autoreset)))}")


def parse_world_seed(given: Any, lanes: int) -> int | list[int] | None:
    """Return the seed of an env: one for all lanes, one for each lane, or None for a random one."""
    seeds = parse_seeds(given, lanes)
    if not isinstance(seeds, list):
        return seeds
    each = [seed for seed in seeds if seed is not None]
    if len(each) < lanes:
        raise ValueError("seed has None for a lane: expected an integer for each lane; None is for `reset`")
    return each


def parse_seeds(given: Any, lanes: int) -> int | list[int | None] | None:
    """Return the seed of a reset: one for all lanes, one or None for each lane, or None."""
    if given is None:
        return None
    if not _is_list(given):
        expected = "one integer, from which the seeds of the lanes follow, or a list with one for each lane"
        return parse_integer("seed", given, 0, MAX_SEED, expected)
    if len(given) != lanes:
        raise ValueError(f"seed has {len(given)} elements: expected {lanes}, an integer or None for each lane")
    each = enumerate(given)
    return [None if seed is None else parse_integer(f"seed[{lane}]", seed, 0, MAX_SEED) for lane, seed in each]


def parse_timeout(given: Any) -> float:
    """Return a number of seconds, more than 0."""
    if isinstance(given, bool | np.bool_) or not isinstance(given, Real):
        raise TypeError(f"timeout_s is {given!r}: expected seconds, a number")
    timeout_s = float(given)
    if not timeout_s > 0:
        raise ValueError(f"timeout_s is {given}: expected seconds, more than 0")
    return timeout_s


def parse_first_lane(given: Any, lanes: int) -> int | list[int]:
    """Return the number of the first lane, or the numbers of all lanes."""
    if not _is_list(given):
        return parse_integer("first_lane", given, 0, MAX_LANE_NUMBER)
    numbers = [parse_integer(f"first_lane[{lane}]", number, 0, MAX_LANE_NUMBER) for lane, number in enumerate(given)]
    if len(set(numbers)) != lanes or len(numbers) != lanes:
        raise ValueError(f"first_lane has {len(numbers)} numbers: expected {lanes} different ones, or the first alone")
    return numbers


def check_names(names: Sequence[str]) -> None:
    """Raise ValueError for observations that an env asks for by itself where it needs them."""
    for name in names:
        if "@" in name or name == FINAL_LANES:
            raise ValueError(
                f"observations has {name!r}: expected names without '@', and not {FINAL_LANES!r}; the env asks for "
                "those by itself where it needs them"
            )


def parse_options(
    options: Mapping[str, Any] | None, lanes: int, autoreset: Autoreset
) -> tuple[np.ndarray | None, int | np.ndarray | None]:
    """Return the mask of lanes that a reset is for, from its options, and the numbers of their variations.

    None: all lanes; the numbers that they have.
    """
    if not options:
        return None, None
    if not set(options) <= {RESET_MASK, VARIATION}:
        raise ValueError(f"options are {options!r}: expected none, {RESET_MASK!r} or {VARIATION!r}")
    variation = parse_variation(options[VARIATION], lanes) if VARIATION in options else None
    if RESET_MASK not in options:
        return None, variation
    if autoreset == "next_step":
        raise ValueError(
            f"options are {options!r}: expected none of lanes with autoreset='next_step', where all lanes are "
            "reset together or by themselves; make the env with autoreset='same_step' or 'disabled' to reset some"
        )
    mask = np.asarray(options[RESET_MASK])
    if mask.dtype != np.bool_ or mask.shape != (lanes,):
        raise ValueError(f"{RESET_MASK} is {mask.dtype} {list(mask.shape)}: expected bool [{lanes}], true for a reset")
    return mask, variation


def parse_variation(given: Any, lanes: int) -> int | np.ndarray:
    """Return the number of a variation for all lanes, or an array with one for each."""
    if np.ndim(given) == 0:
        return parse_integer(VARIATION, given, -1, MAX_VARIATION)
    numbers = [parse_integer(f"{VARIATION}[{lane}]", number, -1, MAX_VARIATION) for lane, number in enumerate(given)]
    if len(numbers) != lanes:
        raise ValueError(f"{VARIATION} has {len(numbers)} numbers: expected {lanes}, or one for all lanes")
    return np.array(numbers, np.int64)


def parse_env_id(given: Any, lanes: int) -> np.ndarray:
    """Return indices of lanes, each once."""
    env_id = np.asarray(given)
    if env_id.ndim != 1 or not len(env_id) or env_id.dtype.kind not in "iu":
        raise ValueError(f"env_id is {env_id.dtype} {list(env_id.shape)}: expected the indices of some lanes, integers")
    if env_id.min() < 0 or env_id.max() >= lanes:
        raise ValueError(f"env_id has {env_id.min()} to {env_id.max()}: expected lanes from 0 to {lanes - 1}")
    if np.bincount(env_id.astype(np.int64)).max() > 1:
        raise ValueError("env_id has a lane twice: expected each lane once")
    return env_id


def _is_list(given: Any) -> bool:
    return isinstance(given, Sequence | np.ndarray) and not isinstance(given, str) and np.ndim(given) > 0


def is_in(lanes: np.ndarray, part: slice) -> Any:
    """Return which lanes are in a range."""
    return (lanes >= part.start) & (lanes < part.stop)


def is_range(lanes: np.ndarray) -> bool:
    """Return whether lanes, in ascending order, follow one another without gaps."""
    return int(lanes[-1]) - int(lanes[0]) == len(lanes) - 1
