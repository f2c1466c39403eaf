"""Everything about families and worlds can be read by properties: the same as `describe`, and as JoinWorld's specs."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_spec_utils
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.support.engine_streams import EngineHarness, Stream, refused
from scripts.support.messages import RequestFailed
from tests.support.toy import Toy
from worldloom.kernels.outputs import OUTPUTS
from worldloom.render.assets import AssetLibrary
from worldloom.server.dm_env_rpc.specs import DTYPES
from worldloom.server.engine.world_settings import JOIN_SETTINGS, WORLD_SETTINGS
from worldloom.worlds.describe import Description, describe
from worldloom.worlds.family import Spec
from worldloom.worlds.registry import Registry, find_family, known_families

Values = dict[str, Any]


def walk(stream: Stream, key: str = "") -> tuple[Values, dict[str, str]]:
    """Return all values below a key, and the descriptions of all groups."""
    values, groups = {}, {}
    waiting = [key]
    while waiting:
        for name, spec in stream.list_properties(waiting.pop()).items():
            assert spec.is_listable != spec.is_readable, name
            assert spec.description, name
            if spec.is_listable:
                groups[name] = spec.description
                waiting.append(name)
            else:
                values[name] = stream.read(name)
    return values, groups


def check_spec(values: Values, key: str, entry: Mapping[str, Any]) -> None:
    """Compare an action or an observation with its description."""
    sides = {"height": -1, "width": -1}
    assert (values[f"{key}.name"], values[f"{key}.text"], values[f"{key}.dtype"]) == (
        entry["name"],
        entry["text"],
        entry["dtype"],
    )
    assert np.asarray(values[f"{key}.shape"]).tolist() == [sides.get(side, side) for side in entry["shape"]]
    for bound, no_limit in (("minimum", -np.inf), ("maximum", np.inf)):
        expected = entry.get(bound)
        if expected is None:
            assert f"{key}.{bound}" not in values
        else:
            each = [no_limit if one is None else one for one in expected] if isinstance(expected, list) else expected
            np.testing.assert_array_equal(values[f"{key}.{bound}"], each)


def check_family(values: Values, key: str, described: Description) -> None:
    """Compare the properties of a family with its description."""
    assert values[f"{key}.text"] == described["text"]
    assert list(values[f"{key}.required_settings"]) == described["missing"]
    found = {name: value for name, value in values.items() if name.startswith(f"{key}.settings.")}
    assert found == {f"{key}.settings.{one['name']}": one["default"] for one in described["settings"]}
    assert list(values[f"{key}.labels"]) == [one["text"] for one in described["labels"]]
    assert {name for name in values if name.startswith(f"{key}.cameras.")} == {
        f"{key}.cameras.{one['name']}" for one in described["cameras"]
    }
    frames = [output for camera in described["cameras"] for output in camera["outputs"]]
    varied = described["variation_observations"]
    observations = [*described["observations"], *described["every_world"], *varied, *frames]
    for group, entries in (("actions", described["actions"]), ("observations", observations)):
        shown = {name.split(".")[3] for name in values if name.startswith(f"{key}.{group}.")}
        assert shown == {one["name"].replace(".", "/") for one in entries}
        for entry in entries:
            check_spec(values, f"{key}.{group}.{entry['name'].replace('.', '/')}", entry)
    for entry in observations:
        assert values[f"{key}.observations.{entry['name'].replace('.', '/')}.hidden"] == entry.get("hidden", False)


@pytest.mark.parametrize("family", ["cartpole", "catch", "dmc", "gym", "maze", "mujoco"])
def test_every_family_is_documented_before_its_first_world(harness: EngineHarness, family: str) -> None:
    values, groups = walk(harness.stream(), f"families.{family}")
    check_family(values, f"families.{family}", describe(find_family(family)))
    if family in ("gym", "mujoco"):
        missing = " and ".join(find_family(family).required_settings)
        assert f"Known when {missing} is" in groups[f"families.{family}.actions"]
    else:
        assert values[f"families.{family}.max_steps"] == describe(find_family(family))["max_steps"]


def test_settings_of_all_families(harness: EngineHarness) -> None:
    stream = harness.stream()
    for group, table in (("create_settings", WORLD_SETTINGS), ("join_settings", JOIN_SETTINGS)):
        values, _ = walk(stream, group)
        assert {f"{group}.{one.name}": one.default for one in table}.items() <= values.items()
        for setting in table:
            assert setting.text in stream.list_properties(group)[f"{group}.{setting.name}"].description
    assert np.asarray(stream.read("join_settings.observations")).shape == (0,)
    assert "It has to be given." in stream.list_properties("create_settings")["create_settings.family"].description


def test_a_world_has_the_observations_of_what_varies_in_it(harness: EngineHarness) -> None:
    stream = harness.stream()
    names = ["variation", "variation.colors"]
    specs = stream.join(stream.create("maze", vary_colors=0.5, lanes=3), observations=names)
    values, _ = walk(stream, "world")
    shown = {key.split(".")[2] for key in values if key.startswith("world.observations.")}
    assert {name for name in shown if name.startswith("variation")} == {"variation", "variation/colors"}
    for spec in specs.observations.values():
        key = f"world.observations.{spec.name.replace('.', '/')}"
        check_against_spec(values, key, spec)
        assert values[f"{key}.hidden"]


@pytest.mark.parametrize("lanes", [None, 3])
@pytest.mark.parametrize(
    ("family", "own"), [("maze", {"agents": 2, "size": 7}), ("dmc", {"domain": "reacher", "task": "easy"})]
)
def test_a_world_has_what_joining_it_shows(
    harness: EngineHarness, family: str, own: dict[str, Any], lanes: int | None
) -> None:
    stream = harness.stream()
    specs = stream.join(stream.create(family, **own, **({} if lanes is None else {"lanes": lanes})), width=12, height=8)
    values, _ = walk(stream, "world")
    described = describe(find_family(family), own)
    for setting in described["settings"]:
        assert values[f"world.settings.{setting['name']}"] == setting["value"]
    assert values["world.agents"] == described["agents"]
    frames = [output for camera in described["cameras"] for output in camera["outputs"]]
    by_name_only = {"actions": [], "observations": [one["name"] for one in frames if one["by_name_only"]]}
    assert by_name_only["observations"]
    for group, of in (("actions", specs.actions), ("observations", specs.observations)):
        assert {key.split(".")[2] for key in values if key.startswith(f"world.{group}.")} == {
            name.replace(".", "/") for name in (*(spec.name for spec in of.values()), *by_name_only[group])
        }
        for spec in of.values():
            check_against_spec(values, f"world.{group}.{spec.name.replace('.', '/')}", spec)
    for entry in described["observations"]:
        assert values[f"world.observations.{entry['name']}.hidden"] == entry["hidden"]


def check_against_spec(values: Values, key: str, spec: rpc.TensorSpec) -> None:
    assert DTYPES[values[f"{key}.dtype"]] == spec.dtype
    assert np.asarray(values[f"{key}.shape"]).tolist() == list(spec.shape)
    if key.split(".")[-1].split("/")[-1] in {output.name for output in OUTPUTS} or not spec.HasField("min"):
        return
    bounds = tensor_spec_utils.bounds(spec)
    for name, bound in (("minimum", bounds.min), ("maximum", bounds.max)):
        if f"{key}.{name}" in values:
            # Bounds of the specs are rounded to the dtype.
            expected = np.asarray(values[f"{key}.{name}"]).astype(values[f"{key}.dtype"])
            np.testing.assert_array_equal(np.unique(bound), np.unique(expected))


class Awkward(Toy):
    """A family with names that need care as keys."""

    name = "awkward"

    def __init__(self, given: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(given, assets)
        names = ("a", "a.text", "a.text.text", "a..b", "eye.name", "x y", "a/text")
        self.observations = tuple(Spec(name, "float64", (2,), f"Text of {name}.", (-1.0, -np.inf)) for name in names)


class Broken(Toy):
    """A family that cannot be built."""

    name = "broken"

    def __init__(self, given: Mapping[str, object], assets: AssetLibrary) -> None:
        raise KeyError("missing file")


def test_names_that_need_care_as_keys(harness: EngineHarness, fresh_registry: Registry) -> None:
    fresh_registry.add(f"{__name__}:Awkward")
    values, groups = walk(harness.stream(), "families.awkward.observations")
    for name in ("a", "a.text", "a.text.text", "a..b", "eye.name", "x y"):
        key = f"families.awkward.observations.{name.replace('.', '/')}"
        assert values[f"{key}.name"] == name
        assert groups[key] == f"Text of {name}."
        assert values[f"{key}.minimum"].tolist() == [-1.0, -np.inf]


def test_a_family_that_cannot_be_built_says_why(harness: EngineHarness, fresh_registry: Registry) -> None:
    fresh_registry.add(f"{__name__}:Broken")
    stream = harness.stream()
    assert "families.broken" in stream.list_properties("families")
    assert walk(stream, "families.broken")[0] == {"families.broken.problem": "KeyError: 'missing file'"}
    with refused("NOT_FOUND", "families.broken.settings"):
        stream.list_properties("families.broken.settings")


WORDS = (
    *("families", "catch", "maze", "settings", "observations", "eye/rgb", "eye", "rgb", "hidden", "dtype", "actions"),
    *("world", "server", "limits", "max_worlds", "join_settings", "width", "counters", "zoo", "", "a" * 300, "\0", "é"),
)


@given(st.lists(st.sampled_from(WORDS), max_size=5).map(".".join))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
def test_any_key_is_what_listing_says(harness: EngineHarness, key: str) -> None:
    """A key is found if and only if listing its parent shows it, and is then a group or a value as shown there."""
    stream = harness.stream()
    stream.join(stream.create("catch"))
    listed = None
    with suppress(RequestFailed):  # if the parent is not there, or a value
        listed = stream.list_properties(key.rpartition(".")[0]).get(key)
    if key == "":
        assert stream.list_properties("").keys() >= {"families", "world"}
    elif listed is None:
        for ask in (stream.read, stream.list_properties):
            with refused("NOT_FOUND"):
                ask(key)
    elif listed.is_listable:
        assert all(name.startswith(f"{key}.") for name in stream.list_properties(key))
        with refused("PERMISSION_DENIED"):
            stream.read(key)
    else:
        stream.read(key)
        with refused("PERMISSION_DENIED"):
            stream.list_properties(key)
    stream.session.close()


def test_listing_families_builds_none(harness: EngineHarness) -> None:
    shown = harness.stream().list_properties("families")
    assert set(shown) == {f"families.{name}" for name in known_families()}
    assert all(harness.engine.descriptions.find(name) is None for name in known_families())
