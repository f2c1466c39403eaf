"""Models uploaded to a server, over real sockets: by the reference client, by ours, and by clients that mean harm."""

import contextlib
import io
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dm_env_rpc.v1 import connection as reference
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import error, tensor_utils
from dm_env_rpc.v1.dm_env_adaptor import DmEnvAdaptor
from dm_env_rpc.v1.extensions.properties import PropertiesExtension
from google.rpc import code_pb2

from scripts.support.server_process import ServerProcess, serving
from worldloom.client import ServerError, VectorEnv, collect_model
from worldloom.server.config import Limits
from worldloom.server.engine.directory import WorldDirectory

TIMEOUT_S = 60.0
TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"
MODEL = """<mujoco><include file="parts/light.xml"/><asset><mesh name="m" file="parts/thing.obj"/></asset><worldbody>
<camera name="side" pos="0 -5 1" xyaxes="1 0 0 0 0 1"/><geom type="plane" size="4 4 .1" rgba=".2 .5 .3 1"/>
<body pos="0 0 2"><freejoint/><geom name="thing" type="mesh" mesh="m" rgba=".8 .3 .2 1"/></body></worldbody></mujoco>"""
SLOW = "<mujoco><worldbody><replicate count='60000' offset='3 0 0'><geom size='.1'/></replicate></worldbody></mujoco>"
"""A model that takes minutes to compile."""
SIZE = {"width": 40, "height": 30}
OBSERVATIONS = ["eye.rgb", "qpos"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    (made / "parts").mkdir()
    (made / "parts/thing.obj").write_text(TETRAHEDRON)
    (made / "parts/light.xml").write_text("<mujocoinclude><worldbody><light pos='0 0 5'/></worldbody></mujocoinclude>")
    (made / "thing.xml").write_text(MODEL)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with serving("--allow-uploads", "--model-dir", str(folder), "--upload-timeout-s", "1") as made:
        yield made


@pytest.fixture(scope="module")
def upload(folder: Path) -> dict[str, str | bytes]:
    xml, files = collect_model(folder / "thing.xml")
    return {"xml": xml, "files": files}


def roll_out(address: str, settings: dict[str, str | bytes], **more: str) -> list[dict[str, np.ndarray]]:
    env = VectorEnv(address, "mujoco", 3, settings=settings, observations=OBSERVATIONS, **SIZE, **more)  # type: ignore[arg-type]
    try:
        seen = [{name: value.copy() for name, value in env.reset(seed=5)[0].items()}]
        for _ in range(10):
            obs, *_ = env.step(env.action_space.sample())
            seen.append({name: value.copy() for name, value in obs.items()})
        return seen
    finally:
        env.close()


def assert_equal(found: list[dict[str, np.ndarray]], expected: list[dict[str, np.ndarray]]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        for name in OBSERVATIONS:
            np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize("transport", ["grpc", "auto"])
def test_an_uploaded_world_is_that_of_the_model_on_disk(
    server: ServerProcess, upload: dict[str, str | bytes], transport: str
) -> None:
    on_disk = roll_out(server.address, {"model": "thing.xml"})
    assert on_disk[0]["eye.rgb"].std() > 10, "there is something to see"
    assert_equal(roll_out(server.address, upload, transport=transport), on_disk)


def test_in_this_process_uploads_need_no_permission(server: ServerProcess, upload: dict[str, str | bytes]) -> None:
    assert_equal(roll_out("local", upload, renderer="cpu"), roll_out(server.address, upload))


def connect(server: ServerProcess) -> reference.Connection:
    return reference.create_secure_channel_and_connect(server.address, timeout=TIMEOUT_S)


def create(connection: reference.Connection, **given: object) -> str:
    """Create a world as any client of the protocol does: bytes are a tensor of UINT8."""
    packed = {
        name: tensor_utils.pack_tensor(np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value)
        for name, value in {"family": "mujoco", **given}.items()
    }
    name: str = connection.send(rpc.CreateWorldRequest(settings=packed)).world_name
    return name


def refused(connection: reference.Connection, code: str, **given: object) -> str:
    with pytest.raises(error.DmEnvRpcError) as caught:
        create(connection, **given)
    text = str(caught.value.message)
    assert len(text) < 2500
    assert caught.value.code == code_pb2.Code.Value(code), text
    return text


def test_the_reference_client_uploads(server: ServerProcess, upload: dict[str, str | bytes]) -> None:
    with connect(server) as connection:
        world = create(connection, **upload, seed=1)
        specs = connection.send(rpc.JoinWorldRequest(world_name=world)).specs
        properties = PropertiesExtension(connection)
        assert properties["world.settings.files"] == f"{len(upload['files'])} bytes"
        assert len(properties["world.settings.xml"]) < 300
        with DmEnvAdaptor(connection, specs, nested_tensors=False) as env:
            assert env.reset().observation["eye.rgb"].shape == (64, 64, 3)
        connection.send(rpc.DestroyWorldRequest(world_name=world))


def test_a_large_upload_is_taken_and_other_large_requests_are_not(server: ServerProcess) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("unused.bin", np.random.default_rng(0).bytes(10 << 20))
        archive.writestr("parts/thing.obj", TETRAHEDRON)
        archive.writestr("parts/light.xml", "<mujocoinclude/>")
    with connect(server) as connection:
        world = create(connection, xml=MODEL, files=packed.getvalue())
        connection.send(rpc.DestroyWorldRequest(world_name=world))
        with pytest.raises(error.DmEnvRpcError, match="--max-message-bytes"):
            connection.send(rpc.JoinWorldRequest(world_name="x" * (5 << 20)))
        assert "--max-upload-bytes" in refused(connection, "RESOURCE_EXHAUSTED", xml=MODEL, files=bytes(65 << 20))


def test_settings_that_do_not_fit_are_told(server: ServerProcess, upload: dict[str, str | bytes]) -> None:
    with connect(server) as connection:
        assert "'model' and 'xml' are both given" in refused(
            connection, "INVALID_ARGUMENT", **upload, model="thing.xml"
        )
        assert "'model' is missing" in refused(connection, "INVALID_ARGUMENT")
        assert "'model' is missing" in refused(connection, "INVALID_ARGUMENT", files=upload["files"])
        assert "expected bytes" in refused(connection, "INVALID_ARGUMENT", xml=MODEL, files="text")
        assert "expected bytes" in refused(connection, "INVALID_ARGUMENT", xml=MODEL, files=7)
        assert "expected a text" in refused(connection, "INVALID_ARGUMENT", xml=b"bytes")
        assert "not in the archive" in refused(connection, "INVALID_ARGUMENT", xml=MODEL)


def test_a_reset_with_other_settings_keeps_the_upload(server: ServerProcess, upload: dict[str, str | bytes]) -> None:
    with connect(server) as connection:
        world = create(connection, **upload)
        connection.send(
            rpc.ResetWorldRequest(world_name=world, settings={"control_steps": tensor_utils.pack_tensor(4)})
        )
        connection.send(rpc.DestroyWorldRequest(world_name=world))


def test_others_go_on_while_models_are_compiled(server: ServerProcess, upload: dict[str, str | bytes]) -> None:
    """Three uploads that take too long wait for each other; another client steps, and makes a world of a model."""
    texts: list[str] = []

    def upload_slow() -> None:
        with connect(server) as connection:
            texts.append(refused(connection, "RESOURCE_EXHAUSTED", xml=SLOW))

    env = VectorEnv(server.address, "catch", 8)
    env.reset(seed=0)
    threads = [threading.Thread(target=upload_slow) for _ in range(3)]
    for thread in threads:
        thread.start()
    longest_s, steps = 0.0, 0
    roll_out(server.address, {"model": "thing.xml"})
    assert len(texts) < 3, "a model on disk did not wait for all uploads"
    while any(thread.is_alive() for thread in threads):
        began_s = time.monotonic()
        env.step(env.action_space.sample())
        longest_s, steps = max(longest_s, time.monotonic() - began_s), steps + 1
    env.close()
    assert len(texts) == 3
    assert all("--upload-timeout-s" in text for text in texts)
    assert steps > 100
    # A step takes a millisecond, and waits for its turn where the compiler and other tests have the cores. One that had
    # to wait for the compiler itself would take the two seconds of processor time that this may use, or more.
    assert longest_s < 2.0


def test_worlds_of_the_same_upload_share_one_copy(upload: dict[str, str | bytes]) -> None:
    directory = WorldDirectory(Limits(), time.monotonic)
    files = upload["files"]
    assert isinstance(files, bytes)
    first, second = (directory.create({"family": "mujoco", **upload, "files": bytes(bytearray(files))}) for _ in "ab")
    assert first.pool is second.pool
    assert first.settings["files"] is second.settings["files"]
    assert first.settings["files"] is first.pool.family.setting_values["files"]
    bare = directory.create({"family": "mujoco", "xml": "<mujoco/>"})
    assert bare.settings == {"xml": "<mujoco/>"}


def test_without_the_option_uploads_are_denied(upload: dict[str, str | bytes]) -> None:
    with serving() as server:
        with connect(server) as connection:
            assert "--allow-uploads" in refused(connection, "PERMISSION_DENIED", **upload)
        with pytest.raises(ServerError, match="--allow-uploads"):
            VectorEnv(server.address, "mujoco", 1, settings=upload)


def test_a_server_stops_while_a_model_is_compiled(folder: Path) -> None:
    with serving("--allow-uploads", "--upload-timeout-s", "60") as server:
        connection = connect(server)

        def upload() -> None:
            with contextlib.suppress(Exception):  # the connection ends, with an error or before it
                create(connection, xml=SLOW)

        thread = threading.Thread(target=upload)
        thread.start()
        time.sleep(2)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 20, "it did not wait for the compiler"
    thread.join()
    connection.close()
