"""Variations over every transport, in all modes of autoreset, in one world or several, and set by the client."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.shared_server import Served
from worldloom.client import VectorEnv
from worldloom.client.errors import ServerError

EVERYTHING = {
    "vary_colors": 0.4,
    "vary_textures": 0.3,
    "vary_sizes": 0.5,
    "vary_sizes_at": "step",
    "vary_lights": 0.6,
    "vary_lights_at": "walk",
    "vary_camera": 0.2,
    "vary_camera_at": "walk",
    "vary_sky": 0.5,
    "vary_sky_at": "world",
}
LANES = 4


def make(address: str | list[str] = "local", family: str = "catch", lanes: int = LANES, **given: Any) -> VectorEnv:
    given = {"width": 16, "height": 16, "seed": 5, "observations": ["eye.rgb"], **given}
    renderer = "cpu" if address == "local" else "auto"
    made: Any = VectorEnv
    env: VectorEnv = made(address, family, lanes, renderer=renderer, **given)
    return env


def run(env: VectorEnv, steps: int = 14, name: str = "eye.rgb") -> Iterator[np.ndarray]:
    """Yield what is observed, with the same actions for the same steps."""
    yield env.reset()[0][name]
    for step in range(steps):
        lanes = np.arange(env.num_envs)
        yield env.step({"paddle": ((lanes + step) % 3 - 1).astype(np.int32)})[0][name]


def told(env: VectorEnv, **given: Any) -> list[bytes]:
    with env:
        return [frames.tobytes() for frames in run(env, **given)]


@pytest.mark.parametrize("transport", ["socket", "shm", "grpc"])
def test_all_transports_give_the_same_bytes(server: Served, transport: str) -> None:
    expected = told(make(settings=EVERYTHING))
    assert told(make(server.tcp, settings=EVERYTHING, transport=transport)) == expected
    assert told(make(settings={})) != expected


def test_several_streams_give_the_bytes_of_one(server: Served) -> None:
    for given in ({}, {"vary_seed": 3, "variation": [7, 1, 2, 7]}, {"vary_seed": 3, "vary_count": 5}):
        settings = {**EVERYTHING, **given}
        expected = told(make(settings=settings))
        assert told(make(server.tcp, settings=settings, streams=3)) == expected
        assert told(make([server.tcp, server.unix], settings=settings)) == expected


def test_each_step_of_each_episode_looks_the_same_in_all_modes_of_autoreset() -> None:
    """Episodes of catch take nine steps; with `same_step` the last frame is a final observation."""
    shown: dict[str, dict[tuple[int, int], bytes]] = {}
    names = ["eye.rgb", "variation"]
    for mode in ("next_step", "same_step", "disabled"):
        with make(settings=EVERYTHING, autoreset=mode, observations=names, lanes=1) as env:
            frames = shown[mode] = {}
            observations, _ = env.reset()
            step = 0
            for _ in range(24):
                frames[int(observations["variation"][0]), step] = observations["eye.rgb"].tobytes()
                observations, _, terminated, _, info = env.step({"paddle": np.zeros(1, np.int32)})
                step += 1
                if mode == "same_step" and terminated[0]:
                    last = info["final_obs"][0]
                    frames[int(last["variation"]), step] = last["eye.rgb"].tobytes()
                    step = 0
                elif mode == "disabled" and terminated[0]:
                    frames[int(observations["variation"][0]), step] = observations["eye.rgb"].tobytes()
                    observations, _ = env.reset(options={"reset_mask": np.ones(1, bool)})
                    step = 0
                elif mode == "next_step" and step == 10:
                    step = 0
    common = set.intersection(*(set(frames) for frames in shown.values()))
    assert common >= {(0, 0), (0, 9), (1, 0), (1, 9)}
    for frame in common:
        assert len({frames[frame] for frames in shown.values()}) == 1, frame


def test_lanes_with_one_seed_and_number_look_the_same() -> None:
    """In another world with other lanes too. Their episodes have the same seed, so that pictures can be compared."""
    settings = {**EVERYTHING, "vary_seed": 11, "variation": [3, 3, 4, 3]}
    with make(settings=settings, seed=[1, 1, 1, 1]) as env:
        frames = next(run(env))
        assert (frames[0] == frames[1]).all()
        assert (frames[0] == frames[3]).all()
        assert (frames[0] != frames[2]).any()
        again, _ = env.reset(seed=[1] * LANES, options={"variation": 4})
        assert all((one == frames[2]).all() for one in again["eye.rgb"])
    with make(settings={**settings, "variation": 4}, seed=[9, 1], lanes=2) as env:
        assert (next(run(env))[1] == frames[2]).all()


def test_some_lanes_get_other_numbers() -> None:
    names = ["variation", "variation.colors"]
    with make(settings={"vary_colors": 1.0, "vary_seed": 2}, autoreset="disabled", observations=names) as env:
        first, _ = env.reset(options={"variation": [1, 2, 3, 4]})
        mask = np.array([False, True, False, True])
        second, _ = env.reset(options={"variation": [9, 9, 9, 1], "reset_mask": mask})
        assert first["variation"].tolist() == [1, 2, 3, 4]
        assert second["variation"].tolist() == [1, 9, 3, 1]
        assert (second["variation.colors"][3] == first["variation.colors"][0]).all()
        third, _ = env.reset()
        assert third["variation"].tolist() == [1, 9, 3, 1]
        fourth, _ = env.reset(options={"variation": -1})
        assert len(set(fourth["variation"].tolist())) == LANES


def test_a_limited_number_of_variations() -> None:
    settings = {"vary_colors": 1.0, "vary_seed": 2, "vary_count": 3}
    with make(settings=settings, observations=["variation"], lanes=20) as env:
        assert {int(number) for numbers in run(env, 30, "variation") for number in numbers} == {0, 1, 2}


def test_observations_of_what_varies_are_offered_when_they_are_named() -> None:
    with make(settings=EVERYTHING, observations=None) as env:
        assert not any(name.startswith("variation") for name in env.reset()[0])
    with make(settings=EVERYTHING, observations=["variation.camera"]) as env:
        observations, _ = env.reset()
        assert observations["variation.camera"].shape == (LANES, 4)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"vary_colors": 1.5}, "'vary_colors' is 1.5: expected a number from 0 to 1"),
        ({"vary_colors": 0.5, "vary_colors_at": "often"}, "expected one of world, episode, step, walk"),
        ({"vary_colours": 0.5}, "did you mean 'vary_colors'"),
        ({"vary_colors": 0.5, "vary_count": -1}, "expected an integer from 0 to 2147483647"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ServerError, match=expected):
        make(settings=settings)


def test_wrong_numbers() -> None:
    with pytest.raises(ValueError, match="variation has 2 numbers: expected 4, or one for all lanes"):
        make(settings={"vary_colors": 0.5, "variation": [1, 2]})
    with make(settings={"vary_colors": 0.5}) as env:
        with pytest.raises(ValueError, match=r"variation\[1\] is -2"):
            env.reset(options={"variation": [1, -2, 3, 4]})
        with pytest.raises(ValueError, match="expected none, 'reset_mask' or 'variation'"):
            env.reset(options={"variations": 1})
    with make(settings={}) as env, pytest.raises(ServerError, match="where nothing varies"):
        env.reset(options={"variation": 1})


@pytest.mark.parametrize("name", ["variation", "variation.colors"])
def test_where_nothing_varies_there_is_nothing_to_observe(name: str) -> None:
    expected = f"names '{name}' in a world where nothing varies: expected some `vary_…` above 0, or a `distraction`"
    with pytest.raises(ServerError, match=re.escape(expected)):
        make(settings={}, observations=["eye.rgb", name])


def test_misspelt_names_of_what_varies() -> None:
    """They are offered by name only, and listed in errors all the same."""
    with pytest.raises(ServerError, match=r"did you mean 'variation\.colors'.*expected some of .*, variation, "):
        make(settings={"vary_colors": 0.5}, observations=["variation.colours"])
