"""Settings of CreateWorld, JoinWorld and ResetWorld that all families share, checked and parsed.

Settings of a family are checked against its own table.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.raster.scratch import MAX_WIDTH
from worldloom.protos.errors import InvalidArgument, PermissionDenied, RequestError, ResourceExhausted
from worldloom.render.views import DEFAULT_SIZE
from worldloom.server.config import Limits
from worldloom.server.engine.world import Autoreset, LaneSeeds, World
from worldloom.worlds.family import Family
from worldloom.worlds.randomisation.presets import DISTRACTION, NONE
from worldloom.worlds.randomisation.settings import (
    VARIATION,
    VARIATION_NAMES,
    VARIATION_SETTINGS,
    Randomisation,
    VariationChoice,
    read_choice,
    read_randomisation,
)
from worldloom.worlds.registry import FamilyError, find_family, known_families
from worldloom.worlds.settings import (
    Setting,
    SettingError,
    SettingNotAllowedError,
    SettingTooLargeError,
    abbreviate,
    parse_settings,
)

MAX_ACTION_REPEAT = 1000
"""Largest `action_repeat`: a step of a world must not hold up those of others for long."""
WORLD_SETTINGS = (
    Setting("family", "", "Family of the world; `worldloom worlds` lists them. Required."),
    Setting(
        "seed",
        0,
        "Seed of everything random in the world; random unless given. With `lanes`, a list has a seed for each lane: "
        "the lane is then the world of one lane with that seed.",
        -(2**63),
        2**64 - 1,
    ),
    Setting("lanes", 1, "Lanes of a vector world: every tensor gets a leading dimension of this size.", 1),
    Setting(
        "first_lane",
        0,
        "With `lanes`: number of the first lane, or a list with the number of each. A lane's seed follows from the "
        "world's seed and this number, so a large world can be divided into several.",
        0,
        2**63 - 1,
    ),
    Setting(
        "autoreset",
        Autoreset.NEXT_STEP.value,
        "With `lanes`: begin of the next episode in a lane whose episode has ended: with the next step, within the "
        "same step, or only by ResetWorld.",
        choices=tuple(mode.value for mode in Autoreset),
    ),
    Setting(
        "action_repeat",
        1,
        "Number of times that a step applies its actions. Rewards are added up; the end of an episode stops it. Only "
        "the last state is observed.",
        1,
        MAX_ACTION_REPEAT,
    ),
    *VARIATION_SETTINGS,
)
"""Settings of CreateWorld that all families share."""
GRPC_RECEIVE_BYTES = 4 << 20
"""Default of gRPC clients for the largest message that they receive."""
JOIN_SETTINGS = (
    Setting("width", DEFAULT_SIZE, "Width of the frames in pixels.", 1, MAX_WIDTH),
    Setting("height", DEFAULT_SIZE, "Height of the frames in pixels.", 1, MAX_WIDTH),
    Setting("samples", 1, "Samples a pixel: 1, or 4 for smooth edges.", 1, 4),
    Setting("shadows", False, "Whether lights cast shadows."),
    Setting(
        "max_reply_bytes",
        GRPC_RECEIVE_BYTES,
        "Bytes of the largest reply that the client receives: grpc.max_receive_message_length of its channel.",
        1,
    ),
    Setting("shm", False, "Whether to offer frames in shared memory too, for clients on the same machine."),
    Setting("agent", 0, "Index of the agent to be; the first free one unless given.", 0),
)
OBSERVATIONS = "observations"
"""A list of names, a type that the table above does not have."""

EXPECTED_TO_VARY = "expected some `vary_…` above 0, or a `distraction`"
"""End of errors about worlds where nothing varies."""
VECTOR_SETTINGS = ("lanes", "first_lane", "autoreset")
"""Settings of CreateWorld that only vector worlds have."""
_LISTS = ("seed", "first_lane", VARIATION)
"""Settings that may be lists, with an element for each lane."""
_MASKS = ("seed_mask", "reset_mask")
"""Settings of ResetWorld that are lists of bools, with an element for each lane."""
_COMMON = frozenset(setting.name for setting in WORLD_SETTINGS)
_OF_OTHER_REQUESTS = {
    **dict.fromkeys((*(setting.name for setting in JOIN_SETTINGS), OBSERVATIONS), "JoinWorld"),
    **dict.fromkeys(_MASKS, "ResetWorld"),
}


@dataclass(frozen=True)
class WorldSettings:
    """Settings of CreateWorld, parsed."""

    family: type[Family]
    own: Mapping[str, object]
    """Settings of the family that are given."""
    lanes: int
    is_vector: bool
    seeds: LaneSeeds
    autoreset: Autoreset
    action_repeat: int
    variations: "WorldVariations"


@dataclass(frozen=True)
class WorldVariations:
    """Settings of what varies in a world: as given, and parsed."""

    given: Mapping[str, object]
    randomisation: Randomisation | None
    choice: VariationChoice


@dataclass(frozen=True)
class JoinSettings:
    """Settings of JoinWorld, which Reset may change."""

    given: Mapping[str, object]
    width: int
    height: int
    samples: int
    shadows: bool
    max_reply_bytes: int
    shm: bool
    agent: int | None
    """Agent index; None: the first free one."""
    observations: tuple[str, ...] | None
    """Names to offer; None: all."""


@dataclass(frozen=True)
class ResetSettings:
    """Settings of ResetWorld, parsed."""

    own: Mapping[str, object]
    """Settings that the family has from now on, as given now or before."""
    seeds: LaneSeeds | None
    """Seeds of all lanes from now on; None if they stay."""
    is_reseeded: NDArray[np.bool_] | None
    """Lanes that start over with their seed. None: all, if there are seeds."""
    is_reset: NDArray[np.bool_] | None
    """Lanes that begin an episode with the next step. None: all."""
    variations: WorldVariations


def refusal(error: SettingError) -> RequestError:
    """Return the error that a request with a rejected setting is answered with."""
    if isinstance(error, SettingNotAllowedError):
        return PermissionDenied(str(error))
    return ResourceExhausted(str(error)) if isinstance(error, SettingTooLargeError) else InvalidArgument(str(error))


def parse_world_settings(given: Mapping[str, object]) -> WorldSettings:
    """Check the settings of CreateWorld, but for the values of the family's own."""
    family = family_of(given)
    given = _with_lists(given)
    lists = {name: given[name] for name in _LISTS if isinstance(given.get(name), list)}
    single = {name: value for name, value in given.items() if name not in lists}
    try:
        values = parse_settings((*WORLD_SETTINGS, *family.settings), single, _OF_OTHER_REQUESTS)
        variations = parse_variations(given, int(values["lanes"]), "lanes" in given)
    except SettingError as error:
        raise refusal(error) from error
    is_vector = "lanes" in given
    alone = [name for name in (*VECTOR_SETTINGS, *lists) if name in given and not is_vector]
    if alone:
        what = f"a list in setting {alone[0]!r}" if alone[0] in lists else f"setting {alone[0]!r}"
        raise InvalidArgument(f"{what} without 'lanes': expected 'lanes' too, since it is for worlds with lanes")
    lanes = int(values["lanes"])
    numbers: int | Sequence[int] = int(values["first_lane"])
    if "first_lane" in lists:
        numbers = _parse_list("first_lane", lists["first_lane"], lanes)
        if len(set(numbers)) < lanes:
            raise InvalidArgument("setting 'first_lane' has a number twice: expected different numbers of lanes")
    seed: int | Sequence[int] = int(values["seed"]) if "seed" in given else secrets.randbits(64)
    if "seed" in lists:
        seed = _parse_list("seed", lists["seed"], lanes)
    return WorldSettings(
        family=family,
        own=own_settings(given),
        lanes=lanes,
        is_vector=is_vector,
        seeds=LaneSeeds(seed, numbers, lanes),
        autoreset=Autoreset(values["autoreset"]),
        action_repeat=int(values["action_repeat"]),
        variations=variations,
    )


def parse_join_settings(
    given: Mapping[str, object], limits: Limits, elsewhere: Mapping[str, str] | None = None
) -> JoinSettings:
    """Check the settings of JoinWorld. `elsewhere` has those of other requests: see `parse_settings`."""
    table = {name: value for name, value in given.items() if name != OBSERVATIONS}
    try:
        parsed = parse_settings(JOIN_SETTINGS, table, elsewhere)
    except SettingError as error:
        raise InvalidArgument(str(error).replace("expected some of ", f"expected some of {OBSERVATIONS}, ")) from error
    width, height, samples = (int(parsed[name]) for name in ("width", "height", "samples"))
    if samples not in (1, 4):
        raise InvalidArgument(f"setting 'samples' is {samples}: expected 1 or 4")
    if width * height > limits.max_view_pixels:
        raise ResourceExhausted(
            f"frames of {width} × {height} are {width * height} pixels: expected at most {limits.max_view_pixels}; "
            "ask for smaller ones, or raise --max-view-pixels"
        )
    return JoinSettings(
        given=dict(given),
        width=width,
        height=height,
        samples=samples,
        shadows=bool(parsed["shadows"]),
        max_reply_bytes=int(parsed["max_reply_bytes"]),
        shm=bool(parsed["shm"]),
        agent=int(parsed["agent"]) if "agent" in given else None,
        observations=_parse_names(given[OBSERVATIONS]) if OBSERVATIONS in given else None,
    )


def _parse_names(given: object) -> tuple[str, ...]:
    names = given if isinstance(given, list) else [given]
    if not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"setting {OBSERVATIONS!r} is {str(given)[:100]}: expected names of observations")
    return tuple(dict.fromkeys(names))


def parse_reset_settings(world: World, given: Mapping[str, object]) -> ResetSettings:
    """Check the settings of ResetWorld, but for the values of the family's own."""
    given = _with_lists(given)
    fixed = [name for name in ("family", "lanes", "first_lane", "autoreset", "action_repeat") if name in given]
    if fixed:
        raise InvalidArgument(f"setting {fixed[0]!r} cannot change: create another world instead")
    lanes = len(world.lanes)
    changed = {name: value for name, value in given.items() if name not in ("seed", VARIATION, *_MASKS)}
    own = {**world.settings, **own_settings(changed)}
    family = world.pool.family
    seed = given.get("seed")
    try:
        parse_settings(family.settings, own, {**_OF_OTHER_REQUESTS, **dict.fromkeys(_COMMON, "CreateWorld")})
        varied = {name: value for name, value in given.items() if name in VARIATION_NAMES}
        variations = parse_variations({**own, **world.variations.given, **varied}, lanes, world.is_vector)
        seeds = None if seed is None else _parse_seeds(world, seed)
    except SettingError as error:
        raise refusal(error) from error
    if VARIATION in given and variations.randomisation is None:
        raise InvalidArgument(f"setting {VARIATION!r} of a world where nothing varies: {EXPECTED_TO_VARY}")
    is_reseeded, is_reset = (_parse_mask(name, given[name], lanes) if name in given else None for name in _MASKS)
    if is_reseeded is not None and not isinstance(seed, list):
        raise InvalidArgument("setting 'seed_mask' without a list in 'seed': expected a seed for each lane beside it")
    if is_reset is not None:
        if not world.is_vector:
            raise InvalidArgument("setting 'reset_mask' of a world without lanes: expected none; ResetWorld resets it")
        if world.autoreset is Autoreset.NEXT_STEP:
            raise InvalidArgument(
                f"setting 'reset_mask' in a world with autoreset {world.autoreset.value!r}: expected 'disabled' or "
                "'same_step', since here a step begins an episode in every lane that has ended; leave it out to reset "
                "all lanes"
            )
        if changed:
            raise InvalidArgument(
                f"setting 'reset_mask' with {min(changed)!r}: expected none of the family's beside it"
            )
        if VARIATION in given:
            variations = _replace_numbers(variations, world.variations.choice, is_reset)
        if seeds is not None:
            is_reseeded = is_reset if is_reseeded is None else is_reseeded & is_reset
    if seeds is not None and is_reseeded is not None:
        seeds = world.seeds.replaced(seeds, is_reseeded)
    return ResetSettings(own, seeds, is_reseeded, is_reset, variations)


def parse_variations(given: Mapping[str, object], lanes: int, is_vector: bool) -> WorldVariations:
    """Check the settings of what varies, among those that are given for a world with so many lanes."""
    is_distracted = given.get(DISTRACTION, NONE) != NONE
    given = {name: value for name, value in given.items() if name in VARIATION_NAMES}
    single = {name: value for name, value in given.items() if not isinstance(value, list)}
    values = parse_settings(VARIATION_SETTINGS, single)
    numbers = None
    if isinstance(given.get(VARIATION), list):
        if not is_vector:
            raise InvalidArgument(f"a list in setting {VARIATION!r} of a world without lanes: expected one number")
        numbers = tuple(_parse_list(VARIATION, given[VARIATION], lanes))
    return WorldVariations(given, read_randomisation(values, is_distracted), read_choice(values, single, numbers))


def _replace_numbers(
    variations: WorldVariations, before: VariationChoice, is_reset: NDArray[np.bool_]
) -> WorldVariations:
    """Return variations whose numbers are new in the lanes that are reset, and as before in the others."""
    numbers = [np.broadcast_to(one.numbers, is_reset.shape) for one in (variations.choice, before)]
    mixed = tuple(np.where(is_reset, *numbers).tolist())
    return replace(
        variations,
        given={**variations.given, VARIATION: list(mixed)},
        choice=replace(variations.choice, numbers=mixed),
    )


def _with_lists(given: Mapping[str, object]) -> dict[str, object]:
    """Return settings with lists of integers where these came as uint8, which are bytes elsewhere."""
    return {
        name: list(value) if name in _LISTS and isinstance(value, bytes) else value for name, value in given.items()
    }


def own_settings(given: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of the family among those of CreateWorld."""
    return {name: value for name, value in given.items() if name not in _COMMON}


def family_of(given: Mapping[str, object]) -> type[Family]:
    """Return the family that the settings of CreateWorld name."""
    name = given.get("family")
    if not isinstance(name, str):
        came = "is missing" if name is None else f"is {str(name)[:100]}"
        raise InvalidArgument(f"setting 'family' {came}: expected one of {', '.join(known_families())}")
    try:
        return find_family(name[:100])
    except FamilyError as error:
        raise InvalidArgument(f"setting 'family': {error}") from error


def _parse_seeds(world: World, seed: object) -> LaneSeeds:
    [setting] = [setting for setting in WORLD_SETTINGS if setting.name == "seed"]
    lanes = len(world.lanes)
    if not isinstance(seed, list):
        return LaneSeeds(int(setting.parse(seed)), world.seeds.numbers, lanes)
    if not world.is_vector:
        raise InvalidArgument(f"a list in setting 'seed' of a world without lanes: expected {setting.expected}")
    return LaneSeeds(_parse_list("seed", seed, lanes), world.seeds.numbers, lanes)


def _parse_list(name: str, given: object, lanes: int) -> list[int]:
    """Return a setting that has an integer for each lane."""
    [setting] = [setting for setting in WORLD_SETTINGS if setting.name == name]
    assert isinstance(given, list)
    if len(given) != lanes:
        raise InvalidArgument(
            f"setting {name!r} has {len(given)} elements: expected {lanes}, one for each lane, or {setting.expected}"
        )
    try:
        return [int(setting.parse(value)) for value in given]
    except SettingError as error:
        raise InvalidArgument(str(error)) from error


def _parse_mask(name: str, given: object, lanes: int) -> NDArray[np.bool_]:
    if not isinstance(given, list) or len(given) != lanes or any(type(value) is not bool for value in given):
        raise InvalidArgument(f"setting {name!r} is {abbreviate(given)}: expected {lanes} bools, one for each lane")
    return np.array(given, np.bool_)
