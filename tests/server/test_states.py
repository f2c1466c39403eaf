"""Worlds whose states are their actions, over gRPC, with the reference client of dm_env_rpc."""

from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest
from dm_env_rpc.v1 import connection, dm_env_adaptor, error
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from scripts.support.server_process import serving
from tests.client.test_state_renderer import MOCAP, random_states
from worldloom import MujocoRenderer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("models")
    (folder / "arm.xml").write_text(MOCAP)
    with serving("--listen", "127.0.0.1:0", "--model-dir", str(folder)) as process:
        yield process.address


def test_any_client_sets_states_and_gets_frames(address: str) -> None:
    model = mujoco.MjModel.from_xml_string(MOCAP)
    states = random_states(model, 5)
    with MujocoRenderer(model=MOCAP, width=20, height=20) as draw:
        expected = draw(states)["side.rgb"]
        default = draw(model.qpos0[None])["side.rgb"][0]
    with connection.create_secure_channel_and_connect(address) as stream:
        env, name = dm_env_adaptor.create_and_join_world(
            stream,
            create_world_settings={"family": "mujoco", "model": "arm.xml", "drive": "state"},
            join_world_settings={"width": 20, "height": 20, "observations": ["side.rgb"]},
        )
        env.reset()
        for k in range(5):
            step = env.step({name: array[k] for name, array in states.items()})
            np.testing.assert_array_equal(step.observation["side"]["rgb"], expected[k])
            assert (step.reward, step.discount) in ((None, None), (0.0, 1.0))
        np.testing.assert_array_equal(env.step({}).observation["side"]["rgb"], default)  # the model's own state
        with pytest.raises(error.DmEnvRpcError, match=r"INVALID_ARGUMENT|length 0") as refused:
            env.step({"qpos": np.zeros(model.nq)})
        assert refused.value.code == 3
        with pytest.raises(error.DmEnvRpcError, match="finite"):
            env.step({"qpos": np.full(model.nq, np.nan)})
        step = env.step({name: array[0] for name, array in states.items()})  # refused steps have changed nothing
        np.testing.assert_array_equal(step.observation["side"]["rgb"], expected[0])
        stream.send(rpc.LeaveWorldRequest())
        stream.send(rpc.DestroyWorldRequest(world_name=name))
