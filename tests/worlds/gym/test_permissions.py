"""Ids and keyword arguments that clients may ask for: everything else is refused, in short time and with the reason."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from worldloom.worlds.gym.permissions import (
    MAX_KWARGS_CHARACTERS,
    allow_gym_ids,
    allow_gym_kwargs,
    find_spec,
    import_gym_modules,
    parse_kwargs,
)
from worldloom.worlds.settings import SettingError

MAX_MESSAGE = 700
"""Characters of an error: what came is abbreviated."""


def refusal(env_id: str) -> str:
    with pytest.raises(SettingError) as caught:
        find_spec(env_id)
    assert len(str(caught.value)) < MAX_MESSAGE
    return str(caught.value)


def test_gymnasiums_own_environments_are_allowed() -> None:
    for env_id in ("CartPole-v1", "FrozenLake8x8-v1", "HalfCheetah-v5", "phys2d/CartPole-v1"):
        assert find_spec(env_id) is gymnasium.registry[env_id]


@pytest.mark.parametrize(
    "env_id",
    [
        "",
        "os:CartPole-v1",
        "tests.support.odd_environments:CartPole-v1",
        "../CartPole-v1",
        "a/b/c",
        "/CartPole-v1",
        "CartPole-v1\n",
        "CartPole-v1\0",
        "CartPole-v1 ",
        "\N{CYRILLIC CAPITAL LETTER ES}artPole-v1",
        "C" * 10_000_000,
        "*",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_ids_are_refused(env_id: str) -> None:
    loaded, began_s = set(sys.modules), time.perf_counter()
    assert "expected the id of an environment" in refusal(env_id)
    assert time.perf_counter() - began_s < 0.5
    assert set(sys.modules) == loaded


@given(env_id=st.text(max_size=200))
@example("GymV21Environment-v0")
@example("odd/Counting-v0")
@example("CartPole")
@example("CartPole-v99")
def test_other_ids_are_refused(env_id: str) -> None:
    refusal(env_id)


def test_an_error_names_what_is_near_and_what_to_do() -> None:
    text = refusal("Cartpole-v1")
    assert "did you mean 'CartPole-v1'?" in text
    assert "--gym-id" in text


def test_the_operator_allows_ids_by_patterns() -> None:
    allow_gym_ids(["odd/C*", "Ant-v?"])
    assert find_spec("odd/Counting-v0").id == "odd/Counting-v0"
    assert find_spec("Ant-v5").id == "Ant-v5"
    assert "is not allowed here" in refusal("CartPole-v1")
    assert "is not registered here" in refusal("odd/Cat-v0")
    allow_gym_ids([])
    assert "not allowed here" in refusal("odd/Counting-v0")
    with pytest.raises(ValueError, match="without ':'"):
        allow_gym_ids(["os:*"])
    with pytest.raises(ValueError, match="cannot import 'no_such_module'"):
        import_gym_modules(["no_such_module"])


def test_a_module_that_ends_the_program_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_that_exits.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="cannot import 'module_that_exits': SystemExit: 0"):
        import_gym_modules(["module_that_exits"])


def refused(text: str) -> str:
    with pytest.raises(SettingError) as caught:
        parse_kwargs(text)
    assert len(str(caught.value)) < MAX_MESSAGE
    return str(caught.value)


def test_tuning_arguments_are_allowed() -> None:
    text = '{"is_slippery": false, "map_name": "8x8", "gravity": -9.5, "frame_skip": 4, "healthy_z_range": [0.2, 1]}'
    assert parse_kwargs(text) == {
        "is_slippery": False,
        "map_name": "8x8",
        "gravity": -9.5,
        "frame_skip": 4,
        "healthy_z_range": (0.2, 1),
    }
    assert parse_kwargs("") == parse_kwargs("{}") == {}


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "3",
        '"x"',
        "{",
        "{'a': 1}",
        '{"g": NaN}',
        '{"g": Infinity}',
        '{"g": 1e400}',
        '{"g": 1e10}',
        '{"g": null}',
        '{"g": {}}',
        '{"g": [[1]]}',
        '{"g": ["a"]}',
        '{"g": 1, "g": 2}',
        json.dumps({"g": [0] * 65}),
        json.dumps({"map_name": "a" * 65}),
        '{"map_name": "../4x4"}',
        '{"map_name": "a/b"}',
        '{"map_name": "a..b"}',
        r'{"map_name": "a\\b"}',
        r'{"map_name": "a\u0000b"}',
        '{"map_name": "~"}',
        '{"frame_skip": 1000000000}',
        '{"frame_skip": 0}',
        '{"frame_skip": 2.0}',
        '{"frame_skip": true}',
        '{"g": ' + "[" * 2000 + "]" * 2000 + "}",
        '{"g": ' + "9" * 4000 + "}",
        '{"g": 1' + " " * 10_000_000 + "}",
    ],
    ids=lambda text: text[:24],
)
def test_other_texts_and_values_are_refused(text: str) -> None:
    began_s = time.perf_counter()
    assert "expected" in refused(text)
    assert time.perf_counter() - began_s < 0.5


@pytest.mark.parametrize(
    "name",
    [
        *("xml_file", "model_path", "log_dir", "render_mode", "width", "height", "camera_id", "camera_name"),
        *(
            "default_camera_config",
            "mujoco_renderer",
            "entry_point",
            "vector_entry_point",
            "max_geom",
            "visual_options",
        ),
        *("Xml_File", "disable_render_order_enforcing", "__class__"),
    ],
)
def test_arguments_that_may_name_files_or_code_are_always_refused(name: str) -> None:
    assert "not allowed here" in refused(json.dumps({name: 1}))
    with pytest.raises(ValueError, match="cannot be allowed"):
        allow_gym_kwargs([name])


def test_the_operator_allows_further_arguments() -> None:
    assert "--gym-kwarg" in refused('{"speed": 2}')
    assert "did you mean 'gravity'?" in refused('{"gravty": 2}')
    allow_gym_kwargs(["speed"])
    assert parse_kwargs('{"speed": 2, "g": 1}') == {"speed": 2, "g": 1}
    with pytest.raises(ValueError, match="expected the name of an argument"):
        allow_gym_kwargs(["a b"])


@given(given_text=st.text(max_size=MAX_KWARGS_CHARACTERS // 4))
def test_any_other_text_is_refused(given_text: str) -> None:
    if given_text not in ("", "{}"):
        refused(given_text)


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda one: st.lists(one), max_leaves=5
)


@given(found=st.dictionaries(st.sampled_from(["g", "gravity", "map_name", "frame_skip", "width"]), values))
def test_what_is_accepted_is_plain_and_of_limited_size(found: dict[str, Any]) -> None:
    try:
        parsed = parse_kwargs(json.dumps(found))
    except SettingError:
        return
    assert "width" not in parsed
    for value in parsed.values():
        for one in value if isinstance(value, tuple) else (value,):
            assert abs(one) <= 1e9 if not isinstance(one, str) else len(one) <= 64
