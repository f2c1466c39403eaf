"""MujocoRenderer: the frames of the family `mujoco`, in process and at a server, from arrays of any library."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from dm_control import suite
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.support.server_process import serving
from tests.support.mujoco_models import build_all_shapes
from tests.support.other_arrays import OnCard, OtherArray
from worldloom import BadAction, ClientError, MujocoRenderer, ServerError, VectorEnv
from worldloom.worlds.mujoco.models import files

MOCAP = """
<mujoco>
  <asset>
    <texture name="grid" type="2d" builtin="checker" width="32" height="32" rgb1=".1 .2 .3" rgb2=".8 .7 .6"/>
    <material name="grid" texture="grid"/>
    <mesh name="wedge" vertex="-.4 -.3 -.3  .4 -.3 -.3  .4 .3 -.3  -.4 .3 -.3  -.4 -.3 .4  .4 -.3 .1"/>
  </asset>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="side" pos="0 -4 1" xyaxes="1 0 0 0 0 1"/>
    <camera name="chase" pos="0 -2 2" mode="targetbodycom" target="arm"/>
    <geom name="floor" type="plane" size="2 2 .1" material="grid"/>
    <body name="arm" pos="0 0 1"><joint name="hinge" axis="0 1 0"/>
      <geom name="rod" type="capsule" fromto="0 0 0 .5 0 0" size=".05"/><site name="tip" pos=".5 0 0"/></body>
    <body name="ball" pos="0 1 1"><freejoint name="root"/><geom name="ball" type="mesh" mesh="wedge"/></body>
    <body name="goal" mocap="true" pos="1 0 1"><geom name="goal" type="box" size=".1 .2 .3"/><site name="end"/></body>
  </worldbody>
  <tendon><spatial width=".02"><site site="tip"/><site site="end"/></spatial></tendon>
  <actuator><general joint="hinge" dyntype="integrator"/></actuator>
</mujoco>
"""
FAR_AWAY = "<mujoco><worldbody><body pos='1e308 0 0'><joint/><geom size='1'/></body></worldbody></mujoco>"
TASKS = [("walker", "walk"), ("humanoid", "walk"), ("quadruped", "walk"), ("dog", "walk")]


@pytest.fixture(scope="module")
def draw() -> Iterator[MujocoRenderer]:
    with MujocoRenderer(model=MOCAP, width=24, height=16) as made:
        yield made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "only_there.xml").write_text(MOCAP)
    with serving("--listen", "127.0.0.1:0", "--allow-uploads", "--model-dir", str(folder)) as process:
        yield process.address


@pytest.fixture(scope="module")
def without_uploads() -> Iterator[str]:
    with serving("--listen", "127.0.0.1:0") as process:
        yield process.address


def random_states(model: mujoco.MjModel, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Valid states, whose quaternions are not all of length 1."""
    rng = np.random.default_rng(seed)
    qpos = model.qpos0 + rng.normal(0, 0.4, (count, model.nq))
    data = mujoco.MjData(model)
    mocap = {
        "mocap_pos": data.mocap_pos + rng.normal(0, 0.3, (count, *data.mocap_pos.shape)),
        "mocap_quat": rng.normal(0, 1, (count, *data.mocap_quat.shape)),
    }
    return {"qpos": qpos, **(mocap if model.nmocap else {})}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task[0])
def test_frames_are_those_of_simulated_worlds(task: tuple[str, str]) -> None:
    names = ["eye.rgb", "eye.depth", "eye.segmentation"]
    with MujocoRenderer(model=task, outputs=["rgb", "depth", "segmentation"], cameras=["eye"]) as draw:
        model = suite.load(*task, task_kwargs={"random": 0}).physics.model.ptr
        env = VectorEnv("local", "mujoco", 4, settings={"model": "/".join(task)}, observations=["qpos", *names], seed=3)
        env.reset()
        rng = np.random.default_rng(1)
        low, high = model.actuator_ctrlrange.T
        for _ in range(20):
            controls = rng.uniform(low, np.where(high > low, high, low + 1), (4, model.nu))
            obs, *_ = env.step({"control": np.clip(controls, -1, 1)})
        frames = draw(np.asarray(obs["qpos"]))
        for name_of in names:
            np.testing.assert_array_equal(frames[name_of], obs[name_of])
        assert len(np.unique(frames["eye.rgb"].reshape(-1, 3), axis=0)) > 50
        env.close()


def test_a_model_with_meshes_and_textures_is_drawn_as_when_it_is_simulated() -> None:
    for texture in ("flat", "cube"):
        model = build_all_shapes(texture)
        name = files.offer_model(model)
        env = VectorEnv("local", "mujoco", 1, settings={"model": name}, observations=["eye.rgb", "qpos"])
        obs, _ = env.reset()
        with MujocoRenderer(model=model, cameras=["eye"]) as draw:
            np.testing.assert_array_equal(draw(np.asarray(obs["qpos"]))["eye.rgb"], obs["eye.rgb"])
        env.close()
        files.withdraw_model(name)


def test_mocap_bodies_tendons_and_cameras_follow_the_state(draw: MujocoRenderer) -> None:
    """Poses are MuJoCo's: the label of the centre pixel is that of the body that a camera is put in front of."""
    model = mujoco.MjModel.from_xml_string(MOCAP)
    states = random_states(model, 40)
    names = ["side", "chase", "free"]
    frames = draw(states, cameras=names, outputs=["rgb", "segmentation"])
    assert len({frame.tobytes() for frame in frames["side.rgb"]}) == 40
    simulated = files.offer_model(model)
    env = VectorEnv("local", "mujoco", 1, settings={"model": simulated}, width=24, height=16, observations=["side.rgb"])
    first, _ = env.reset()  # in the default state
    np.testing.assert_array_equal(draw(model.qpos0[None])["side.rgb"], first["side.rgb"])
    env.close()
    files.withdraw_model(simulated)


def test_colours_are_those_of_a_model_with_these_colours(draw: MujocoRenderer) -> None:
    model = mujoco.MjModel.from_xml_string(MOCAP)
    rng = np.random.default_rng(2)
    colors = rng.uniform(0, 1, (12, model.ngeom, 4)).astype(np.float32)
    colors[:3] = (0.5, 0.5, 0.5, 1)  # the material's
    states = random_states(model, 12)
    frames = draw(states, geom_rgba=colors)["side.rgb"]
    for k in range(12):
        model.geom_rgba[:] = colors[k]
        with MujocoRenderer(model=model, width=24, height=16) as other:
            one = {name: array[k : k + 1] for name, array in states.items()}
            np.testing.assert_array_equal(other(one)["side.rgb"][0], frames[k])
    plain = draw(states)["side.rgb"]
    assert not np.array_equal(plain, frames)
    np.testing.assert_array_equal(draw(states, geom_rgba=colors)["side.rgb"], frames)  # nothing of `plain` is left


@settings(max_examples=25, deadline=None)
@given(count=st.integers(0, 150), batch_size=st.sampled_from([1, 3, 16, 50, 64]), parts=st.integers(1, 70))
def test_frames_do_not_depend_on_how_states_are_divided(count: int, batch_size: int, parts: int) -> None:
    model = mujoco.MjModel.from_xml_string(MOCAP)
    states = random_states(model, count)
    with MujocoRenderer(model=model, width=8, height=8, batch_size=batch_size) as draw:
        whole = draw(states)["side.rgb"]
        assert whole.shape == (count, 8, 8, 3)
        each = [part["side.rgb"].copy() for part in draw.stream(states, batch_size=parts)]
        given_parts = ({name: array[k : k + 7] for name, array in states.items()} for k in range(0, count, 7))
        sevens = [part["side.rgb"].copy() for part in draw.stream(given_parts)]
        assert [len(part) for part in sevens[:-1]] == [7] * (len(sevens) - 1)
        for found in (each, sevens):
            np.testing.assert_array_equal(np.concatenate([np.empty((0, 8, 8, 3), np.uint8), *found]), whole)


def test_results_are_the_callers_and_memory_of_dropped_ones_is_used_again(draw: MujocoRenderer) -> None:
    states = random_states(mujoco.MjModel.from_xml_string(MOCAP), 64)
    first = draw(states)["side.rgb"]
    kept = first.copy()
    second = draw({name: array[::-1] for name, array in states.items()})["side.rgb"]
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(second, kept[::-1])
    where = second.ctypes.data
    row = second[3]
    del second
    assert draw(states)["side.rgb"].ctypes.data != where  # a part of it is still in use
    np.testing.assert_array_equal(row, kept[60])
    del row
    assert where in {draw(states)["side.rgb"].ctypes.data for _ in range(3)}


def test_frames_are_drawn_into_arrays_of_the_caller(draw: MujocoRenderer) -> None:
    states = random_states(mujoco.MjModel.from_xml_string(MOCAP), 20)
    out = {"side.rgb": np.zeros((20, 16, 24, 3), np.uint8)}
    assert draw(states, out=out)["side.rgb"] is out["side.rgb"]
    np.testing.assert_array_equal(out["side.rgb"], draw(states)["side.rgb"])
    for wrong in (
        {},
        {"side.rgb": np.zeros((19, 16, 24, 3), np.uint8)},
        {"side.rgb": np.zeros((20, 16, 24, 3), np.float32)},
        {"side.rgb": np.zeros((20, 24, 16, 3), np.uint8).transpose(0, 2, 1, 3)},
    ):
        with pytest.raises(ValueError, match="out"):
            draw(states, out=wrong)


def test_arrays_of_other_libraries_and_dtypes(draw: MujocoRenderer) -> None:
    states = random_states(mujoco.MjModel.from_xml_string(MOCAP), 9)
    rounded = {name: array.astype(np.float32) for name, array in states.items()}
    expected = draw(rounded)["side.rgb"]
    given_as: dict[str, Any] = {name: OtherArray(array) for name, array in rounded.items()}
    np.testing.assert_array_equal(draw(given_as)["side.rgb"], expected)
    np.testing.assert_array_equal(draw(given_as.pop("qpos"), **given_as)["side.rgb"], expected)
    lists = {name: array.tolist() for name, array in rounded.items()}
    np.testing.assert_array_equal(draw(lists)["side.rgb"], expected)
    with pytest.raises(BadAction, match=r"memory of the CPU.*\.cpu\(\)"):
        draw(OnCard(states["qpos"]))


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (np.zeros((3, 7)), r"qpos has shape \[3, 7\]: expected \[N, 8\]"),
        (np.zeros(8), r"qpos has shape \[8\]: expected \[N, 8\]; for one state give qpos\[None\]"),
        (np.zeros((2, 2, 8)), r"qpos has shape"),
        (np.array([["a"] * 8]), "dtype"),
        ({"qpos": np.ones((3, 8)), "mocap_pos": np.zeros((2, 1, 3))}, "mocap_pos has 2 states: expected 3"),
        ({"qpos": np.ones((3, 8)), "speed": np.zeros((3, 1))}, "'speed' is not part of a state"),
        ({}, "no states"),
        ({"qpos": np.ones((3, 8)), "geom_rgba": np.full((4, 4), 2.0)}, r"geom_rgba is 2.0 at \[0, 0\]"),
    ],
)
def test_states_of_the_wrong_form_are_refused(draw: MujocoRenderer, states: Any, message: str) -> None:
    with pytest.raises(BadAction, match=message):
        draw(states)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e11])
def test_a_number_that_no_state_has_is_refused_with_its_place(draw: MujocoRenderer, value: float) -> None:
    qpos = np.ones((300, 8))
    qpos[217, 5] = value
    with pytest.raises(BadAction, match=rf"qpos of state 217 is {value} at \[5\]"):
        draw(qpos)
    parts = draw.stream(qpos, batch_size=100)
    assert len(next(parts)["side.rgb"]) == 100
    with pytest.raises(BadAction, match="qpos of state 217"):
        list(parts)
    assert draw(np.ones((3, 8)))["side.rgb"].shape == (3, 16, 24, 3)


def test_a_quaternion_of_length_0_is_refused_with_its_place(draw: MujocoRenderer) -> None:
    qpos = np.ones((300, 8))
    qpos[217, 4:] = 0
    with pytest.raises(BadAction, match=r"'qpos' .* length 0 in state 217, elements 4 to 7 \(joint 'root'\)"):
        draw(qpos)
    with pytest.raises(BadAction, match=r"'mocap_quat' .* in state 0, row 0"):
        draw(np.ones((3, 8)), mocap_quat=np.zeros((1, 4)))
    assert draw(np.ones((3, 8)))["side.rgb"].shape == (3, 16, 24, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": "nowhere.xml"}, ValueError, "'nowhere.xml', which does not exist"),
        ({"model": "<mujoco><worldbody><geom/></worldbody></mujoco>"}, ValueError, "cannot be loaded"),
        ({"model": "<mujoco><worldbody></mujoco>"}, ValueError, "cannot be loaded: .*XML"),
        ({"model": 3}, TypeError, "model is a int"),
        ({"model": ("walker", "fly")}, ServerError, "one of .*walker/walk"),
        ({"model": "bowler/fly"}, ServerError, r"'bowler/fly': expected the path of an \.xml file, or .*walker/…"),
        ({"model": ""}, ValueError, "model is '', which does not exist"),
        ({"model": MOCAP, "assets": 3}, TypeError, "assets are int: expected a dict of bytes by file name"),
        ({"model": MOCAP, "samples": 2}, ValueError, "samples is 2: expected 1 or 4"),
        ({"model": FAR_AWAY}, ServerError, "near and far planes are at .*a body may be too far away"),
        ({"model": MOCAP, "cameras": ["front"]}, ValueError, "'front' is not the model's: expected some of .*side"),
        ({"model": MOCAP, "outputs": ["rbg"]}, ValueError, "'rbg' does not exist: expected some of rgb"),
        ({"model": MOCAP, "outputs": ["flow"]}, ValueError, "'flow' is of a step, and states have none before them"),
        ({"model": MOCAP, "cameras": "side"}, TypeError, r"a list of names, such as \['side'\]"),
        ({"model": MOCAP, "cameras": -1}, TypeError, r"cameras is -1: expected a list of names, such as \['side'\]"),
        ({"model": "."}, ValueError, "which is no file"),
        ({"model": "walker/fly"}, ServerError, "'walker/fly': expected .*a task .*walker/walk"),
        ({"model": MOCAP, "width": 0}, ValueError, "width"),
        ({}, TypeError, "model is missing"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MujocoRenderer(**arguments)


def test_arrays_without_numbers_say_that_the_model_has_none() -> None:
    with MujocoRenderer(model="walker/walk", width=8, height=8) as draw:
        qpos = np.zeros((3, 9))
        found = draw(qpos, act=np.zeros((3, 0)), mocap_pos=np.zeros((3, 0, 3)))["side.rgb"]
        np.testing.assert_array_equal(found, draw(qpos)["side.rgb"])
        with pytest.raises(BadAction, match="'act' is not part of a state of this model"):
            draw(qpos, act=np.zeros((3, 1)))
        with pytest.raises(TypeError, match=r"out is a ndarray: expected a dict of arrays, by side\.rgb"):
            draw(qpos, out=np.zeros((3, 8, 8, 3), np.uint8))  # type: ignore[arg-type]


def test_a_program_that_closes_nothing_ends_quietly() -> None:
    program = """if True:
        import numpy as np
        from worldloom import MujocoRenderer
        draw = MujocoRenderer("local", model="walker/walk", width=8, height=8)
        print(draw(np.zeros((3, 9)))["side.rgb"].shape)
        parts = draw.stream(np.zeros((100000, 9)))
        print(len(next(parts)["side.rgb"]) > 0)
        """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert (ended.stdout, ended.stderr) == ("(3, 8, 8, 3)\nTrue\n", "")


def test_a_renderer_in_a_forked_process_says_so(draw: MujocoRenderer) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pytest must not go on here, whatever happens
        try:
            draw(np.ones((3, 8)))
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert b"before this process was forked: expected one made in the process" in os.read(reader, 1000)
    os.close(reader)


def test_constants_as_long_as_the_states_are_not_divided() -> None:
    model = """<mujoco><worldbody><light pos="0 0 3"/><camera name="side" pos="0 -4 1" xyaxes="1 0 0 0 0 1"/>
        <body><joint/><geom size=".3"/><geom size=".3" pos="1 0 0"/></body></worldbody></mujoco>"""
    states = {"qpos": np.array([[0.0], [1.0]]), "geom_rgba": np.array([[1, 0, 0, 1], [0, 1, 0, 1]])}
    with MujocoRenderer(model=model, width=16, height=16) as draw:
        whole = draw(states)["side.rgb"]
        for size in (1, 2):
            parts = [part["side.rgb"].copy() for part in draw.stream(states, batch_size=size)]
            np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_arrays_with_masked_numbers_are_refused(draw: MujocoRenderer) -> None:
    masked = np.ma.masked_array(np.ones((3, 8)), np.eye(3, 8, dtype=bool))
    with pytest.raises(BadAction, match="qpos is a masked array with numbers left out"):
        draw(masked)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_program_that_drops_a_renderer_at_work_goes_on(is_stream: bool) -> None:
    """The thread has the last reference to what it draws: it must not wait for itself."""
    program = f"""if True:
        import threading, time
        import numpy as np
        from worldloom import MujocoRenderer
        def begin():
            draw = MujocoRenderer("local", model="walker/walk", width=64, height=64)
            if {is_stream}:
                next(draw.stream(np.zeros((100000, 9))))
            else:
                threading.Thread(target=draw, args=(np.zeros((20000, 9)),), daemon=True).start()
        begin()
        deadline = time.monotonic() + 30
        while any("worldloom-states" in one.name for one in threading.enumerate()) and time.monotonic() < deadline:
            time.sleep(0.05)
        print([one.name for one in threading.enumerate() if "worldloom-states" in one.name])
        """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


def test_calls_of_several_threads_do_not_cancel_each_other(draw: MujocoRenderer) -> None:
    states = random_states(mujoco.MjModel.from_xml_string(MOCAP), 3000)
    expected = draw(states)["side.rgb"]
    wrong = {name: array[:1].copy() for name, array in states.items()}
    wrong["qpos"][:, 4:] = 0
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: [draw(states)["side.rgb"] for _ in range(10)])
        while not found.done():
            with pytest.raises(BadAction, match="length 0"):
                draw(wrong)
    for frames in found.result():
        np.testing.assert_array_equal(frames, expected)


def test_an_error_in_a_part_comes_after_the_frames_of_the_parts_before(draw: MujocoRenderer) -> None:
    states = random_states(mujoco.MjModel.from_xml_string(MOCAP), 6)

    def parts() -> Iterator[Any]:
        yield {name: array[:4] for name, array in states.items()}
        yield {name: array[4:] for name, array in states.items()}
        raise OSError("the log ends here")

    stream = draw.stream(parts())
    assert [len(next(stream)["side.rgb"]) for _ in range(2)] == [4, 2]
    with pytest.raises(OSError, match="the log ends here"):
        next(stream)


def test_a_closed_renderer_says_so() -> None:
    draw = MujocoRenderer(model=MOCAP)
    draw.close()
    draw.close()
    with pytest.raises(ClientError, match="closed"):
        draw(np.ones((3, 8)))


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["auto", "shm", "grpc"])
def test_a_server_gives_the_same_bytes(served: str, transport: Any, tmp_path: Path) -> None:
    model = mujoco.MjModel.from_xml_string(MOCAP)
    states = random_states(model, 333)
    path = tmp_path / "mine.xml"
    path.write_text(MOCAP)
    arguments: dict[str, Any] = {"width": 24, "height": 16, "outputs": ["rgb", "depth"], "batch_size": 100}
    with MujocoRenderer(model=MOCAP, **arguments) as local:
        expected = local(states)
        colored = local(states, geom_rgba=np.full((model.ngeom, 4), 0.75))
    for source in (MOCAP, path, "only_there.xml", mujoco.MjSpec.from_string(MOCAP)):
        with MujocoRenderer(served, model=source, transport=transport, **arguments) as draw:
            frames = draw(states)
            for name in expected:
                np.testing.assert_array_equal(frames[name], expected[name])
            parts = [{name: array.copy() for name, array in part.items()} for part in draw.stream(states)]
            for name in expected:
                np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), expected[name])
            other = draw(states, geom_rgba=np.full((model.ngeom, 4), 0.75))
            np.testing.assert_array_equal(other["side.rgb"], colored["side.rgb"])


@pytest.mark.slow
def test_a_server_refuses_broken_states_and_goes_on(served: str) -> None:
    with MujocoRenderer(served, model="only_there.xml", width=8, height=8, batch_size=64) as draw:
        qpos = np.ones((300, 8))
        qpos[217, 4:] = 0
        with pytest.raises(BadAction, match="in state 217, elements 4 to 7"):
            draw(qpos)
        assert draw(qpos[:200])["side.rgb"].shape == (200, 8, 8, 3)
    with pytest.raises(ClientError, match="MjModel cannot be sent to a server"):
        MujocoRenderer(served, model=mujoco.MjModel.from_xml_string(MOCAP))
    with pytest.raises(ServerError, match=r"INVALID_ARGUMENT.*--model-dir"):
        MujocoRenderer(served, model="elsewhere.xml")
    with pytest.raises(ServerError, match=r"INVALID_ARGUMENT.*one of walker/stand, walker/walk, walker/run"):
        MujocoRenderer(served, model="walker/fly")


# Tasks whose models are those of their domains, and tasks that add to them, leave out of them, or build them.
SUITE = ["walker/walk", "quadruped/walk", "dog/fetch", "cartpole/three_poles", "stacker/stack_2", "swimmer/swimmer6"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITE)
def test_a_server_has_the_tasks_of_dm_control(name: str, without_uploads: str) -> None:
    """The model is that of the task, not only of its domain, and needs no upload."""
    domain, task = name.split("/")
    environment = suite.load(domain, task, task_kwargs={"random": 0})
    rng = np.random.default_rng(0)
    qpos = np.array(
        [environment.physics.data.qpos + rng.normal(0, 0.1, environment.physics.model.nq) for _ in range(5)]
    )
    arguments: dict[str, Any] = {"width": 32, "height": 32, "outputs": ["rgb", "segmentation"], "cameras": ["eye"]}
    with (
        MujocoRenderer("local", model=environment, **arguments) as given_env,
        MujocoRenderer("local", model=name, **arguments) as local,
        MujocoRenderer(without_uploads, model=name, **arguments) as at_server,
    ):
        assert given_env.shapes == local.shapes == at_server.shapes
        assert given_env.cameras == local.cameras == at_server.cameras
        expected = given_env(qpos)
        for draw in (local, at_server):
            frames = draw(qpos)
            for output in expected:
                np.testing.assert_array_equal(frames[output], expected[output])


@pytest.mark.slow
def test_a_server_without_uploads_says_so_in_the_terms_of_the_caller(without_uploads: str, tmp_path: Path) -> None:
    (tmp_path / "mine.xml").write_text(MOCAP)
    with pytest.raises(ServerError, match=r"PERMISSION_DENIED: it takes no uploaded models.*--allow-uploads$"):
        MujocoRenderer(without_uploads, model=MOCAP)
    with pytest.raises(ServerError, match=r"--allow-uploads, or with this model in a directory of its own \("):
        MujocoRenderer(without_uploads, model=tmp_path / "mine.xml")
