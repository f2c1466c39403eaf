"""The reference client lists, reads and writes every property; whatever else is asked gets the right error."""

from typing import Any

import numpy as np
import pytest
from dm_env import specs as dm_env_specs
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.dm_env_rpc_pb2 import EnvironmentResponse, Tensor
from dm_env_rpc.v1.error import DmEnvRpcError
from dm_env_rpc.v1.extensions.properties import PropertiesExtension, PropertySpec
from dm_env_rpc.v1.extensions.properties_pb2 import PropertyRequest, PropertyResponse
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tensor_cases import TEXTS, any_tensor, arrays, flat_values
from worldloom.protos.errors import InvalidArgument, NotFound, PermissionDenied, RequestError
from worldloom.server.dm_env_rpc.property_tree import Group, Property, PropertyTree
from worldloom.server.dm_env_rpc.session import error_reply
from worldloom.server.dm_env_rpc.specs import DTYPES


class Shelf:
    """Values that properties are about."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def property(self, key: str, name: str, dtype: str, writable: bool = False, **more: Any) -> Property:
        def write(value: np.ndarray) -> None:
            self.values[name] = value.copy()

        return Property(key, f"The {name}.", dtype, lambda: self.values[name], write if writable else None, **more)


class Connection:
    """What the reference client needs of a connection, without a wire."""

    def __init__(self, tree: PropertyTree) -> None:
        self.tree = tree

    def send(self, packed: AnyMessage) -> AnyMessage:
        request, reply = PropertyRequest(), AnyMessage()
        packed.Unpack(request)
        try:
            reply.Pack(self.tree.handle(request))
        except RequestError as refused:
            raise DmEnvRpcError(EnvironmentResponse.FromString(error_reply(refused)).error) from None
        return reply


def shelf_and_tree() -> tuple[Shelf, PropertyTree]:
    shelf = Shelf(
        version="0.1.0",
        steps=7,
        fov=60.0,
        sun=[0.0, 1.0, 0.0],
        names=["catch", "maze"],
        fog=False,
        level=3,
        big=2**64 - 1,
    )
    properties = [
        shelf.property("server.version", "version", "str"),
        shelf.property("world.steps", "steps", "int64", minimum=0),
        shelf.property("world.camera.fov", "fov", "float32", True, minimum=1, maximum=170),
        shelf.property("world.light.sun", "sun", "float32", True, shape=(3,), minimum=-1, maximum=1),
        shelf.property("world.light.fog", "fog", "bool", True),
        shelf.property("world.light.level", "level", "uint8", True, minimum=0, maximum=255),
        shelf.property("names", "names", "str", True, shape=(-1,)),
        shelf.property("server.big", "big", "uint64", minimum=0, maximum=2**64 - 1),
    ]
    return shelf, PropertyTree([Group("world", "The joined world."), *properties])


def client(tree: PropertyTree) -> PropertiesExtension:
    return PropertiesExtension(Connection(tree))


def walk(extension: PropertiesExtension, key: str = "") -> dict[str, PropertySpec]:
    found = dict(extension.specs(key))
    for child, spec in list(found.items()):
        if spec.listable:
            found.update(walk(extension, child))
    return found


def read_request(key: str) -> PropertyRequest:
    request = PropertyRequest()
    request.read_property.key = key
    return request


def write_request(key: str, value: Tensor) -> PropertyRequest:
    request = PropertyRequest()
    request.write_property.key = key
    request.write_property.value.CopyFrom(value)
    return request


def list_request(key: str) -> PropertyRequest:
    request = PropertyRequest()
    request.list_property.key = key
    return request


def refusal(tree: PropertyTree, request: PropertyRequest, kind: type[RequestError]) -> str:
    with pytest.raises(kind) as refused:
        tree.handle(request)
    assert type(refused.value) is kind
    assert len(str(refused.value)) < 400
    return str(refused.value)


def test_the_reference_client_finds_everything() -> None:
    shelf, tree = shelf_and_tree()
    found = walk(client(tree))
    groups = {"server", "world", "world.camera", "world.light"}
    values = {"names", "server.big", "server.version", "world.steps", "world.camera.fov"}
    values |= {"world.light.sun", "world.light.fog", "world.light.level"}
    assert set(found) == groups | values
    for key, spec in found.items():
        assert spec.key == key
        assert spec.listable is (key in groups)
        assert spec.readable is (key in values)
        assert spec.description
        if key in groups:
            assert spec.spec is None
            assert not spec.writable
        else:
            value = np.asarray(client(tree)[key])
            assert isinstance(spec.spec, dm_env_specs.Array)
            assert spec.spec.name == key
            if spec.spec.shape != (-1,):
                spec.spec.validate(value)
    writable = {"names", "world.camera.fov", "world.light.sun", "world.light.fog", "world.light.level"}
    assert {key for key, spec in found.items() if spec.writable} == writable
    assert found["world"].description == "The joined world."
    assert found["world.light"].description == "Group of sun, fog, level."
    fov = found["world.camera.fov"].spec
    assert (fov.minimum, fov.maximum, fov.dtype) == (1, 170, np.float32)
    assert list(client(tree).specs("world")) == ["world.steps", "world.camera", "world.light"]
    assert shelf.values["steps"] == 7


def test_the_reference_client_reads_and_writes() -> None:
    shelf, tree = shelf_and_tree()
    extension = client(tree)
    assert extension["server.version"] == "0.1.0"
    assert extension["world.steps"] == 7
    assert extension["server.big"] == 2**64 - 1
    assert extension["names"].tolist() == ["catch", "maze"]
    for key, value, name, kept in [
        ("world.camera.fov", 45, "fov", 45.0),
        ("world.camera.fov", 30.5, "fov", 30.5),
        ("world.light.sun", [1, 0, -1], "sun", [1.0, 0.0, -1.0]),
        ("world.light.sun", [0.5, 0.25, 0.0], "sun", [0.5, 0.25, 0.0]),
        ("world.light.sun", 1.0, "sun", [1.0, 1.0, 1.0]),
        ("world.light.fog", True, "fog", True),
        ("world.light.level", 255, "level", 255),
        ("names", ["a", "", "longer"], "names", ["a", "", "longer"]),
        ("names", [], "names", []),
    ]:
        extension[key] = value
        assert shelf.values[name].tolist() == kept
        assert np.asarray(extension[key]).tolist() == kept


def test_replies_are_of_the_kind_that_was_asked_for_even_if_there_is_nothing_in_them() -> None:
    _, tree = shelf_and_tree()
    write = write_request("world.light.fog", tensor_utils.pack_tensor(True))
    assert tree.handle(write).WhichOneof("payload") == "write_property"
    assert tree.handle(read_request("world.steps")).WhichOneof("payload") == "read_property"
    assert PropertyTree([]).handle(list_request("")).WhichOneof("payload") == "list_property"


def test_the_reference_client_raises_what_it_should() -> None:
    _, tree = shelf_and_tree()
    extension = client(tree)
    with pytest.raises(KeyError):
        extension["world.camera.fow"]
    with pytest.raises(PermissionError):
        extension["world.steps"] = 3
    with pytest.raises(ValueError, match="Property value error"):
        extension["world.camera.fov"] = 200


@pytest.mark.parametrize(
    ("request_", "kind", "words"),
    [
        (PropertyRequest(), InvalidArgument, "empty property request: expected read_property, write_property or"),
        (read_request("world.camera.fow"), NotFound, "'world.camera.fow' (did you mean 'world.camera.fov'?): expected"),
        (list_request("wrld"), NotFound, "no property 'wrld' (did you mean 'world'?)"),
        (write_request("zzz", Tensor()), NotFound, "no property 'zzz': expected a key that listing shows"),
        (read_request("world.camera.fov" + "v" * 3_000_000), NotFound, "(did you mean"),
        (read_request("\x00" * 3_000_000), NotFound, "no property"),
        (read_request(""), PermissionDenied, "'' cannot be read, since it is a group: it can be listed"),
        (read_request("world"), PermissionDenied, "'world' cannot be read, since it is a group: it can be listed"),
        (
            write_request("world", Tensor()),
            PermissionDenied,
            "cannot be written, since it is a group: it can be listed",
        ),
        (write_request("world.steps", Tensor()), PermissionDenied, "'world.steps' cannot be written: it can be read"),
        (list_request("world.steps"), PermissionDenied, "since it is a value: it can be read"),
        (list_request("names"), PermissionDenied, "since it is a value: it can be read and written"),
    ],
)
def test_what_cannot_be_done_says_what_can(request_: PropertyRequest, kind: type[RequestError], words: str) -> None:
    _, tree = shelf_and_tree()
    assert words in refusal(tree, request_, kind)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("world.camera.fov", 171, "property 'world.camera.fov' is 171: expected a finite number from 1 to 170"),
        ("world.camera.fov", np.nan, "is nan: expected a finite number"),
        ("world.camera.fov", 1e300, "is 1e+300: expected a finite number"),
        ("world.camera.fov", True, "came as bools: expected floats, doubles, int8s"),
        ("world.camera.fov", "wide", "came as strings: expected floats"),
        ("world.camera.fov", [45.0], "has shape [1] and 1 element: expected shape []"),
        ("world.light.sun", [0.0, 0.0], "has shape [2] and 2 elements: expected shape [3]"),
        ("world.light.sun", [0.0, 0.0, -2.0], "is -2.0 at [2]: expected a finite number from -1 to 1"),
        ("world.light.level", 256, "is 256: expected an integer from 0 to 255"),
        ("world.light.level", -1, "is -1: expected an integer from 0 to 255"),
        ("world.light.level", 1.0, "came as doubles: expected uint8s, int8s"),
        ("world.light.fog", 1, "came as int64s: expected bools"),
        ("names", "catch", "has shape [] and 1 element: expected shape [-1]"),
        ("names", [1, 2], "came as int64s: expected strings"),
        ("names", [["a"]], "has shape [1, 1] and 1 element: expected shape [-1]"),
    ],
)
def test_a_value_that_does_not_fit_changes_nothing(key: str, value: Any, words: str) -> None:
    shelf, tree = shelf_and_tree()
    before = dict(shelf.values)
    assert words in refusal(tree, write_request(key, tensor_utils.pack_tensor(value)), InvalidArgument)
    assert shelf.values == before


NEARLY_RIGHT = st.one_of(
    st.lists(st.integers(-1, 2), max_size=4),
    st.lists(st.floats(-1, 2), max_size=4),
    st.integers(-1, 300),
    st.floats(-1, 200),
    st.lists(TEXTS, min_size=1, max_size=4),
).map(tensor_utils.pack_tensor)


@given(
    st.sampled_from(["world.camera.fov", "world.light.sun", "world.light.level", "names"]),
    st.one_of(any_tensor(), NEARLY_RIGHT),
)
def test_any_tensor_is_written_whole_or_not_at_all(key: str, tensor: Tensor) -> None:
    shelf, tree = shelf_and_tree()
    name = key.rpartition(".")[2]
    before = dict(shelf.values)
    try:
        assert tree.handle(write_request(key, tensor)).WhichOneof("payload") == "write_property"
    except InvalidArgument:
        assert shelf.values == before
        return
    written = np.ravel(shelf.values.pop(name))
    sent = flat_values(tensor)
    expected = np.full(len(written), sent[0]) if len(sent) == 1 else sent
    assert written.tolist() == expected.astype(written.dtype).tolist()
    before.pop(name)
    assert shelf.values == before


@given(st.sampled_from(sorted(DTYPES)).flatmap(arrays))
def test_values_of_every_type_and_shape_are_read(value: np.ndarray) -> None:
    dtype = "str" if value.dtype.kind == "U" else value.dtype.name
    tree = PropertyTree([Shelf(value=value).property("value", "value", dtype, shape=value.shape)])
    np.testing.assert_array_equal(client(tree)["value"], value)
    assert client(tree).specs()["value"].spec.shape == value.shape


@given(st.one_of(st.builds(read_request, TEXTS), st.builds(list_request, TEXTS), st.binary()))
def test_any_request_is_answered_or_refused(request_: Any) -> None:
    _, tree = shelf_and_tree()
    if isinstance(request_, bytes):
        try:
            request_ = PropertyRequest.FromString(request_)
        except DecodeError:
            return
    try:
        assert isinstance(tree.handle(request_), PropertyResponse)
    except RequestError as refused:
        error_reply(refused)


@given(st.sets(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join), max_size=12))
def test_a_tree_of_any_keys_shows_each_of_them_once(keys: set[str]) -> None:
    properties = [Shelf(value=0).property(key, "value", "int32") for key in sorted(keys)]
    if any(longer.startswith(f"{key}.") for key in keys for longer in keys):
        with pytest.raises(ValueError, match="is a group and a value"):
            PropertyTree(properties)
        with pytest.raises(ValueError, match="is a group and a value"):
            PropertyTree(reversed(properties))
        return
    found = walk(client(PropertyTree(properties)))
    assert {key for key, spec in found.items() if spec.readable} == keys
    assert all(spec.listable != spec.readable for spec in found.values())


def test_keys_that_make_no_tree_are_refused() -> None:
    for key in ("", ".", "a.", ".a", "a..b"):
        with pytest.raises(ValueError, match="expected words with dots between them"):
            Shelf(value=0).property(key, "value", "int32")
    twice = Shelf(value=0).property("a", "value", "int32")
    with pytest.raises(ValueError, match="'a' is there twice"):
        PropertyTree([twice, twice])
    assert client(PropertyTree([])).specs() == {}
