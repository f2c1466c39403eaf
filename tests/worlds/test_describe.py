"""Descriptions of families hold all their tables as plain data."""

import json
from typing import Any

import pytest

from tests.support.toy import Toy
from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.views import make_views
from worldloom.worlds.describe import describe, format_range, format_type, format_value
from worldloom.worlds.gym.family import Gym
from worldloom.worlds.mujoco.dm_control.family import Dmc
from worldloom.worlds.pool import Pool
from worldloom.worlds.randomisation.settings import VARIATION_SETTINGS, read_randomisation
from worldloom.worlds.settings import SettingError, parse_settings


def test_everything_is_said() -> None:
    described = describe(Toy)
    assert described["family"] == "toy"
    assert described["text"] == "Counts its steps."
    assert (described["agents"], described["max_steps"]) == (1, 4)
    assert described["settings"][0] == {
        "name": "agents",
        "type": "int",
        "default": 1,
        "value": 1,
        "minimum": 1,
        "maximum": 4,
        "choices": [],
        "text": "How many count.",
    }
    assert [one["name"] for one in described["settings"]] == ["agents", "longest", "max_steps", "pace", "color"]
    assert described["settings"][4]["choices"] == ["red", "blue"]
    assert described["actions"] == [
        {
            "name": "push",
            "dtype": "float32",
            "shape": [2],
            "minimum": -1.0,
            "maximum": 1.0,
            "text": "Added up to the reward.",
        }
    ]
    assert {one["name"]: one["hidden"] for one in described["observations"]} == {"count": False, "end": True}
    assert [one["name"] for one in described["every_world"]] == ["reward", "discount", "step_type"]
    assert described["labels"] == [{"label": 0, "text": "sky"}, {"label": 1, "text": "box"}]
    assert [camera["name"] for camera in described["cameras"]] == ["eye", "top"]
    names = [one["name"] for camera in described["cameras"] for one in camera["outputs"]]
    assert names == [f"{camera}.{output}" for camera in ("eye", "top") for output in OUTPUT_NAMES]


def test_it_is_ready_for_json() -> None:
    described = describe(Toy, {"agents": 3})
    assert json.loads(json.dumps(described, allow_nan=False)) == described


def test_it_follows_the_settings() -> None:
    described = describe(Toy, {"agents": 3, "longest": 12, "max_steps": 77})
    assert (described["agents"], described["max_steps"]) == (3, 77)
    assert [one["value"] for one in described["settings"]] == [3, 12, 77, 1.0, "red"]
    assert [one["default"] for one in described["settings"]] == [1, 6, 4, 1.0, "red"]
    assert described["observations"][1]["maximum"] == 12


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingError, match="setting 'agents' is 5: expected an integer from 1 to 4"):
        describe(Toy, {"agents": 5})


def test_pictures_are_as_described() -> None:
    sides = {"height": 5, "width": 7}
    views = make_views(Scene(AssetLibrary(texture_size=8)).add(1, 0), **sides, outputs=output_bits(OUTPUT_NAMES))
    offsets, size_bytes = lay_out(views)
    for one in describe(Toy)["cameras"][0]["outputs"]:
        made = get_frame(allocate_arena(size_bytes), views, offsets, 0, one["name"].removeprefix("eye."))
        assert made.dtype == one["dtype"]
        assert list(made.shape) == [sides.get(side, side) for side in one["shape"]]


def test_what_every_world_has_is_as_described() -> None:
    assets = AssetLibrary(texture_size=8)
    pool = Pool(Toy({}, assets), Scene(assets))
    for one in describe(Toy)["every_world"]:
        assert getattr(pool, one["name"]).dtype == one["dtype"]


@pytest.mark.parametrize(
    "settings",
    [
        {"vary_colors": 0.5, "vary_lights": 1.0, "vary_lights_at": "walk"},
        {"distraction": "dcs-hard"},
        {"distraction": "gb-color-easy", "vary_camera": 0.1, "vary_masses": 0.5},
        {"distraction": "gb-video-easy", "vary_background": 0.5},
    ],
)
def test_observations_of_what_varies_are_those_of_its_worlds(settings: dict[str, Any]) -> None:
    own = {"domain": "cartpole", "task": "swingup", "distraction": settings.get("distraction", "none")}
    given = {name: value for name, value in settings.items() if name != "distraction"}
    assets = AssetLibrary(texture_size=16)
    randomisation = read_randomisation(parse_settings(VARIATION_SETTINGS, given), "distraction" in settings)
    pool = Pool(Dmc(own, assets), Scene(assets), randomisation)
    described = describe(Dmc, {**own, **given})
    found = described["variation_observations"]
    assert [(one["name"], one["dtype"], tuple(one["shape"]), one["text"], one["hidden"]) for one in found] == [
        (spec.name, spec.dtype, spec.shape, spec.text, True) for spec in pool.variation_specs
    ]
    lanes = pool.add(pool.family.lane_seeds(0, 2))
    pool.begin(lanes)
    for one in found:
        assert pool.observe(lanes, one["name"]).shape == (2, *one["shape"])
    assert {one["name"]: one["value"] for one in described["variations"]}.items() >= given.items()
    json.dumps(described, allow_nan=False)


def test_without_settings_all_that_can_vary_is_observed() -> None:
    names = [one["name"].removeprefix("variation.") for one in describe(Toy)["variation_observations"]]
    assert names == ["variation", "colors", "textures", "sizes", "lights", "camera", "sky", "background"]
    assert describe(Gym, {"id": "CartPole-v1"})["variation_observations"] == []
    with pytest.raises(SettingError, match="settings that vary the pictures of 'gym': expected none"):
        describe(Gym, {"id": "CartPole-v1", "vary_colors": 0.5})
    with pytest.raises(SettingError, match=r"'vary_masses' is 0\.5: this world of 'toy' has no masses"):
        describe(Toy, {"vary_masses": 0.5})


@pytest.mark.parametrize(
    ("low", "high", "choices", "words"),
    [
        (1, 1_000_000, [], "1 to 1000000"),
        (-1.0, 0.5, [], "-1 to 0.5"),
        (0, None, [], "0 or more"),
        (None, 2.5, [], "2.5 or less"),
        (None, None, [], ""),
        (None, None, ["fixed", "random"], "fixed or random"),
    ],
)
def test_ranges_in_words(low: float | None, high: float | None, choices: list[str], words: str) -> None:
    assert format_range({"minimum": low, "maximum": high, "choices": choices}) == words


def test_types_and_values_in_words() -> None:
    assert format_type({"dtype": "float32", "shape": [2, 3]}) == "float32 [2, 3]"
    assert format_type({"dtype": "uint8", "shape": []}) == "uint8 []"
    assert [format_value(value) for value in (True, False, 3, 0.25, "red")] == ["true", "false", "3", "0.25", "red"]
