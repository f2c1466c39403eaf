"""Settings of randomisation: they say what varies between the lanes of a world, by how much, and when.

They are the same for all families. What varies is drawn from seeds and counters alone: from the variation seed of a
lane, the number of its variation and, where it changes within an episode, the number of the step. So lanes with the
same seed and number look the same in any world, pool and process. `lanes.py` draws and applies it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from worldloom.worlds.settings import Setting, Value

WORLD, EPISODE, STEP, WALK = 0, 1, 2, 3
"""Times at which a variation is drawn: indices into TIMES."""
TIMES = ("world", "episode", "step", "walk")
AUTOMATIC = -1
"""Number of the variation of a lane that chooses it by itself."""
BUILT_IN = "built-in"
"""Name of the set of pictures that are made by code."""
VARIATION = "variation"
"""Setting and observation of the number of a lane's variation."""
MAX_NUMBER = 2**31 - 1
"""Largest number of a variation."""


@dataclass(frozen=True)
class Variation:
    """One thing that can vary. `vary_<name>` is its amount."""

    name: str
    text: str
    """Meaning of the amount, in sentences."""
    walk: tuple[float, float, float] = (0.0, 0.015, 1.0)
    """Law of a walk, in parts of the range: how much of the last move is kept, standard deviation of what is added to
    it in a step, and the largest move."""
    is_physical: bool = False
    """True if the simulation varies, from the beginning of an episode on."""


_SLOW_TURN = (1.0, 0.008, 0.032)
VARIATIONS = (
    Variation(
        "colors",
        "Colours of things, the same for all parts of one: red, green and blue are each drawn from up to so much less "
        "to so much more, within 0 to 1. 1: any colour.",
    ),
    Variation(
        "textures", "Part of the things that get another texture, of `texture_set`. 1: all of them.", (0.0, 0.0, 0.0)
    ),
    Variation(
        "sizes",
        "Sizes of things that move, drawn around the middle of each part. Only the pictures change. "
        "1: from half to double.",
    ),
    Variation(
        "lights",
        "Light of sun and lamps. 1: turned by up to 45 degrees about each of two axes, half to one and a half times as "
        "bright, and each colour by up to a quarter more or less.",
        _SLOW_TURN,
    ),
    Variation(
        "camera",
        "Cameras: they go around what they look at, or turn in place if they are somebody's eye. 1: up to 90 degrees "
        "aside, up and down (but not below the ground) and rolled, and 0.5 to 2.5 times as far away.",
        _SLOW_TURN,
    ),
    Variation(
        "sky",
        "Colours of sky and fog, as `vary_colors` says. A sky of pictures is replaced by their colours.",
    ),
    Variation(
        "background",
        "Probability that the sky is a picture of `background_set`. With `walk` a video goes on by a frame in two "
        "steps, to its end and back.",
        (0.0, 0.0, 0.0),
    ),
    *(
        Variation(name, f"{text} (families dmc, mujoco and gym). 1: from half to double.", is_physical=True)
        for name, text in (
            ("masses", "Masses and inertias of bodies"),
            ("friction", "Sliding friction of geoms"),
            ("damping", "Damping of joints"),
            ("gains", "Gains of motors and servos"),
        )
    ),
)
"""All that can vary, in the order of their numbers."""
COLORS, TEXTURES, SIZES, LIGHTS, CAMERA, SKY, BACKGROUND, *PHYSICS = range(len(VARIATIONS))
VISUAL = tuple(range(PHYSICS[0]))
"""Numbers of those that vary pictures alone."""

_TIMES_TEXT = (
    "once for the world, for each episode, anew at each step, or for each episode and then on from there by a random "
    "walk within the same limits"
)
VARIATION_SETTINGS = (
    *(
        setting
        for one in VARIATIONS
        for setting in (
            Setting(f"vary_{one.name}", 0.0, one.text, 0.0, 1.0),
            Setting(
                f"vary_{one.name}_at",
                TIMES[EPISODE],
                "Drawn once for the world or for each episode." if one.is_physical else f"Drawn {_TIMES_TEXT}.",
                choices=TIMES[: EPISODE + 1] if one.is_physical else TIMES,
            ),
        )
    ),
    Setting("texture_set", BUILT_IN, "Pictures for `vary_textures`: built-in, or a directory in --texture-dir."),
    Setting("background_set", BUILT_IN, "Pictures for `vary_background`: built-in, or a directory in --texture-dir."),
    Setting(
        "vary_seed",
        0,
        "Seed of all that varies: lanes with the same one and the same number of the variation look the same. Each "
        "lane's own seed unless given.",
        -(2**63),
        2**64 - 1,
    ),
    Setting(
        "vary_count",
        0,
        "Number of variations that episodes choose from at random, so that there are others to evaluate with; 0: no "
        "limit.",
        0,
        MAX_NUMBER,
    ),
    Setting(
        VARIATION,
        AUTOMATIC,
        "Number of the variation from the next episode on: one, or with `lanes` a list with one for each lane. -1: the "
        "number of the episode; with `vary_seed` or `vary_count` one at random for each episode.",
        AUTOMATIC,
        MAX_NUMBER,
    ),
)
"""Settings of CreateWorld and ResetWorld."""
PICTURE_SETS = ("texture_set", "background_set")
"""Settings that name a set of pictures."""
PICTURE_SETTINGS = ("vary_textures", "vary_background", *PICTURE_SETS)
"""Settings with which pictures are shown."""
VARIATION_NAMES = frozenset(setting.name for setting in VARIATION_SETTINGS)


@dataclass(frozen=True)
class Randomisation:
    """Amounts and times of the variations in a pool; tuples have an element for each of VARIATIONS."""

    amounts: tuple[float, ...]
    times: tuple[int, ...]
    texture_set: str = BUILT_IN
    background_set: str = BUILT_IN


NOTHING = Randomisation((0.0,) * len(VARIATIONS), (EPISODE,) * len(VARIATIONS))
"""Nothing varies but what the family has settings of its own for."""


@dataclass(frozen=True)
class VariationChoice:
    """Seed and number of the variations of a world's lanes."""

    seed: int | None = None
    """Seed for all lanes; None: each lane's own."""
    count: int = 0
    """Number of variations that lanes choose from; 0: no limit."""
    numbers: int | tuple[int, ...] = AUTOMATIC
    """Number for all lanes, or for each; AUTOMATIC: chosen for each episode."""


def read_randomisation(values: Mapping[str, Value], is_distracted: bool = False) -> Randomisation | None:
    """Return what varies by these values of all settings; None if nothing does.

    `is_distracted`: the family has a distraction besides.
    """
    amounts = tuple(float(values[f"vary_{one.name}"]) for one in VARIATIONS)
    if not any(amounts) and not is_distracted:
        return None
    times = tuple(
        TIMES.index(str(values[f"vary_{one.name}_at"])) if amount > 0 else EPISODE
        for one, amount in zip(VARIATIONS, amounts, strict=True)
    )
    # Pools are the same where they show the same: a set that is not used does not count.
    sets = {TEXTURES: str(values["texture_set"]), BACKGROUND: str(values["background_set"])}
    is_used = {what: amounts[what] > 0 or (is_distracted and what == BACKGROUND) for what in sets}
    used = {what: name if is_used[what] else BUILT_IN for what, name in sets.items()}
    return Randomisation(amounts, times, used[TEXTURES], used[BACKGROUND])


def read_choice(
    values: Mapping[str, Value], given: Collection[str], numbers: tuple[int, ...] | None = None
) -> VariationChoice:
    """Return seed and number of the variations; `given` are the names of settings that are not defaults.

    `numbers` are those of each lane, if there is a list.
    """
    return VariationChoice(
        int(values["vary_seed"]) if "vary_seed" in given else None,
        int(values["vary_count"]),
        int(values[VARIATION]) if numbers is None else numbers,
    )
