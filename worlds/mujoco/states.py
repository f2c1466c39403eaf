"""States in, frames out: lanes of the family `mujoco` whose state is set by each step, with `drive` = `state`.

A step gives a lane its positions, and nothing is simulated. When the lane is drawn, MuJoCo computes the poses of all
bodies, geoms, sites, cameras, lights and tendons from the positions (its kinematics). They are written into the scene
at once, so a lane needs no simulation of its own: each thread has one, which it loads state after state into and which
stays in the cache of its core. A lane is a few numbers, and a frame depends on nothing but the actions of its step.
"""

from collections.abc import Mapping
from dataclasses import replace

import mujoco
import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.compiling import kernel, kernel_holding_gil
from worldloom.kernels.intrinsics import fetch_add
from worldloom.kernels.outputs import STATE_OUTPUT_NAMES
from worldloom.kernels.tables import F32, F64, I32, I64
from worldloom.render.arena import PROCESS_FLOAT64, PROCESS_INT32, float64_index_of
from worldloom.render.scene import Scene
from worldloom.worlds.family import ActionError, CameraPlacement, Family, Spec, State, StepResult
from worldloom.worlds.mujoco.family import Mujoco
from worldloom.worlds.mujoco.models.cameras import write_camera_poses
from worldloom.worlds.mujoco.models.poses import PoseTables, PoseTarget, write_poses_of
from worldloom.worlds.mujoco.models.scene import ModelScene, pose_target
from worldloom.worlds.mujoco.simulation.c_calls import MESSAGE_BYTES, call_one, call_six
from worldloom.worlds.mujoco.simulation.data import CAM_XMAT, CAM_XPOS, field_addresses
from worldloom.worlds.mujoco.simulation.library import function_address, guard_addresses
from worldloom.worlds.mujoco.simulation.physics import WorkSharing
from worldloom.worlds.settings import SettingError

_NO_STEP_LIMIT = 1 << 62
"""`max_steps` of lanes whose episodes never end."""
_SIMULATED = ("control_steps", "max_steps", "noise")
"""Settings of worlds that are simulated."""
MAX_POSITION = 1e10
"""Largest position that MuJoCo accepts (mjMAXVAL)."""
_MIN_QUATERNION = 1e-15
"""Length below which MuJoCo cannot normalise a quaternion (mjMINVAL)."""
_DATA_BYTES = 1 << 20
"""Memory of a thread's simulation beside its arrays."""
_FIRST: I64 = np.zeros(1, np.int64)
"""The lane whose scales are those of all lanes."""
_COM_MODES = (mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM, mujoco.mjtCamLight.mjCAMLIGHT_TARGETBODYCOM)


class StateDrivenMujoco(Mujoco):
    """Lanes of a MuJoCo model whose positions are the actions of each step."""

    def _use_model(self, model: mujoco.MjModel, name: str) -> None:
        for setting in self.settings:
            if setting.name in _SIMULATED and self.setting_values[setting.name] != setting.default:
                raise SettingError(
                    f"setting {setting.name!r} is {self.setting_values[setting.name]!r} with the drive 'state', which "
                    "simulates nothing: expected it with drive 'control' only"
                )
        self.max_steps = _NO_STEP_LIMIT
        self._has_colors = bool(self.setting_values["colors"])
        self._set_scene(model, ModelScene(model, self.assets), name)
        self.cameras = tuple(replace(camera, outputs=STATE_OUTPUT_NAMES) for camera in self.cameras)
        self._scales: F32 = np.ones((1, self.rows_per_lane, 3), np.float32)
        self._poser = StatePoser(model, self._scene.pose_tables)
        self._quaternions = _quaternion_starts(model)
        self.actions = _action_specs(model, self._has_colors)
        self.observations = ()

    def state_fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the state of a lane: its positions, and the poses of its cameras once they have been computed."""
        model = self._model
        colors = {"geom_rgba": ("float32", (model.ngeom, 4))} if self._has_colors else {}
        return {
            "positions": ("float64", (self._poser.length,)),
            "camera_poses": ("float32", (model.ncam, 3, 4)),
            "is_posed": ("bool", ()),
            "is_static_written": ("bool", ()),
            **colors,
        }

    def memory_bytes(self, lanes: int) -> int:
        """Estimate the memory of a pool: the model, a simulation for each thread, and the numbers of each lane."""
        return int(Family.memory_bytes(self, lanes) + self._family_bytes() + self._poser.memory_bytes)

    def physical_counts(self) -> dict[str, int]:
        """Return nothing: states are set, not simulated."""
        return {}

    def free(self, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Do nothing: lanes have no meshes of their own."""

    def check_actions(self, actions: Mapping[str, np.ndarray]) -> None:
        """Raise ActionError for a quaternion of length 0, which is no rotation."""
        for name, (starts, owners) in self._quaternions.items():
            if name in actions:
                values = np.ascontiguousarray(actions[name]).reshape(len(actions[name]), -1)
                found = find_zero_quaternion(values, starts, _MIN_QUATERNION)
                if found >= 0:
                    lane, k = divmod(found, len(starts))
                    first = int(starts[k])
                    where = f"elements {first} to {first + 3} ({owners[k]})" if name == "qpos" else f"row {first // 4}"
                    raise ActionError(
                        f"action {name!r} has a quaternion of length 0 in lane {lane}, {where}: expected four numbers "
                        "that are not all 0, such as 1 0 0 0"
                    )

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        """Give lanes the model's default state."""
        state.positions[lanes] = self._poser.defaults
        if self._has_colors:
            state.geom_rgba[lanes] = self._model.geom_rgba
        state.is_posed[lanes] = False

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        """Set the state of each lane."""
        for name, part in self._poser.parts.items():
            state.positions[lanes, part] = actions[name].reshape(len(lanes), -1)
        if self._has_colors:
            state.geom_rgba[lanes] = actions["geom_rgba"][:, 0]
        state.is_posed[lanes] = False
        return StepResult(np.zeros((len(lanes), 1)), np.zeros(len(lanes), np.bool_))

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        """Raise KeyError: there are no observations but frames."""
        raise KeyError(name)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        """Write what does not move into rows that lack it, then the poses of lanes whose state was set."""
        is_new = ~state.is_static_written[lanes]
        if is_new.any():
            new = np.zeros(int(is_new.sum()), np.int64)
            self._scene.write_static(self._scales, new, scene, scene_lanes[is_new])
            state.is_static_written[lanes] = True
        is_changed = ~state.is_posed[lanes]
        if not is_changed.all():
            lanes, scene_lanes = lanes[is_changed], scene_lanes[is_changed]
        if len(lanes):
            poses = state.camera_poses
            self._poser.pose(state.positions, lanes, self._scales, scene_lanes, pose_target(scene), poses)
            if self._has_colors:
                self._scene.write_colors(state.geom_rgba, lanes, scene, scene_lanes)
            state.is_posed[lanes] = True

    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        """Return the pose and projection of a camera in lanes whose instances were written."""
        return self._scene.place_posed_camera(state.camera_poses, lanes, camera)


class StatePoser:
    """MuJoCo's kinematics of many states of one model, on as many threads as the work is worth."""

    def __init__(self, model: mujoco.MjModel, tables: PoseTables) -> None:
        self._model = model
        self._tables = tables
        self._sharing = WorkSharing()
        self._data = [mujoco.MjData(model) for _ in range(self._sharing.max_threads)]
        for data in self._data:
            mujoco.mj_forward(model, data)  # so that arrays which kinematics do not write have their values, too
        self._addresses: list[I64] = [field_addresses(data)[None] for data in self._data]
        sizes = {"qpos": model.nq, "mocap_pos": 3 * model.nmocap, "mocap_quat": 4 * model.nmocap}
        sizes = {name: size for name, size in sizes.items() if size}
        self._targets: list[I64] = [_element_addresses(data, sizes) for data in self._data]
        ends = np.cumsum([0, *sizes.values()]).tolist()
        self.parts = {name: slice(*ends[k : k + 2]) for k, name in enumerate(sizes)}
        """Columns of the positions of a state that are each of these arrays of an MjData."""
        self.length: int = ends[-1]
        """Number of columns."""
        self.defaults: F64 = np.concatenate(
            [np.zeros(0), *(np.ravel(getattr(mujoco.MjData(model), name)) for name in sizes)]
        )
        """Positions of a model that nothing was set of."""
        self._calls = _kinematics_calls(model, bool(len(tables.tendons)))

    @property
    def memory_bytes(self) -> int:
        """Memory of the simulations."""
        return sum(int(data.nbuffer) + _DATA_BYTES for data in self._data)

    def pose(
        self, positions: F64, lanes: I64, scales: F32, scene_lanes: I32, target: PoseTarget, camera_poses: F32
    ) -> None:
        """Compute the poses of lanes with these positions [lane, length], and write them into the scene.

        `camera_poses` [lane, camera, 3, 4] gets those of the cameras.
        """
        faults = np.zeros(len(lanes), np.int64)
        messages = np.zeros((len(lanes), MESSAGE_BYTES), np.uint8)

        def pose(thread: int, progress: I64) -> None:
            pose_states(
                lanes,
                positions,
                self._targets[thread],
                self._model._address,
                self._data[thread]._address,
                self._addresses[thread],
                self._calls,
                guard_addresses(),
                thread,
                progress,
                messages.ctypes.data,
                PROCESS_FLOAT64,
                PROCESS_INT32,
                self._tables,
                scales,
                _FIRST,
                scene_lanes,
                target,
                camera_poses,
                faults,
            )

        self._sharing.run(pose, len(lanes))
        if faults.any():
            text = bytes(messages[np.argmax(faults)]).split(b"\0")[0].decode(errors="replace")
            raise RuntimeError(f"MuJoCo cannot compute the poses of a state: {text}")


def _kinematics_calls(model: mujoco.MjModel, has_tendons: bool) -> I64:
    """Return the addresses of the functions that compute all poses which are drawn from positions.

    Centres of mass are for cameras and lights that follow them, and for tendons, which take their poses from them.
    """
    modes = np.concatenate([model.cam_mode, model.light_mode])
    needs_com = has_tendons or bool(np.isin(modes, [int(mode) for mode in _COM_MODES]).any())
    names = ["mj_kinematics", *["mj_comPos"] * needs_com, "mj_camlight", *["mj_tendon"] * has_tendons]
    return np.array([function_address(name) for name in names], np.int64)


def _element_addresses(data: mujoco.MjData, sizes: Mapping[str, int]) -> I64:
    """Return the address of each column of the positions of a state in an MjData, as indices into PROCESS_FLOAT64."""
    parts = [float64_index_of(getattr(data, name)) + np.arange(size) for name, size in sizes.items()]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _action_specs(model: mujoco.MjModel, has_colors: bool) -> tuple[Spec, ...]:
    """Return the actions of a state-driven world. One that is not sent has the model's own value."""
    data = mujoco.MjData(model)
    limits = -MAX_POSITION, MAX_POSITION
    specs = [Spec("qpos", "float64", (model.nq,), "Joint positions.", *limits, idle=_values(data.qpos))]
    if model.na:
        text = "Activations of actuators. No frame shows them: they are accepted as part of a state."
        specs.append(Spec("act", "float64", (model.na,), text, *limits))
    if model.nmocap:
        shape = (model.nmocap, 3)
        text = "Positions of the mocap bodies."
        specs.append(Spec("mocap_pos", "float64", shape, text, *limits, idle=_values(data.mocap_pos)))
        shape, text = (model.nmocap, 4), "Rotations of the mocap bodies, as quaternions."
        specs.append(Spec("mocap_quat", "float64", shape, text, *limits, idle=_values(data.mocap_quat)))
    if has_colors:
        text = (
            "Colours of the geoms, as in an MjModel: red, green, blue, opacity. 0.5 0.5 0.5 1 is the colour of the "
            "geom's material, if it has one. An opacity of 0 is invisible."
        )
        specs.append(Spec("geom_rgba", "float32", (model.ngeom, 4), text, 0, 1, idle=_values(model.geom_rgba)))
    return tuple(spec for spec in specs if spec.shape[0])


def _values(array: np.ndarray) -> tuple[float, ...]:
    return tuple(array.ravel().tolist())


def _quaternion_starts(model: mujoco.MjModel) -> dict[str, tuple[I64, list[str]]]:
    """Return for actions with quaternions the first element of each, and the owner of each."""
    free, ball = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)
    joints = np.flatnonzero(np.isin(model.jnt_type, (free, ball)))
    starts = model.jnt_qposadr[joints] + np.where(model.jnt_type[joints] == free, 3, 0)
    owners = [f"joint {model.joint(joint).name or joint!r}" for joint in joints.tolist()]
    mocap = 4 * np.arange(model.nmocap)
    found = {"qpos": (starts.astype(np.int64), owners), "mocap_quat": (mocap, [""] * model.nmocap)}
    return {name: pair for name, pair in found.items() if len(pair[0])}


@kernel_holding_gil
def find_zero_quaternion(values: F64, starts: I64, shortest: float) -> int:
    """Return the number of the first quaternion of values [n, m] that is shorter than this, or -1.

    Quaternions begin at the columns `starts`, and are counted row by row.
    """
    for row in range(values.shape[0]):
        for k in range(starts.size):
            length = 0.0
            for i in range(4):
                length += values[row, starts[k] + i] ** 2
            if length < shortest * shortest:
                return row * starts.size + k
    return -1


@kernel
def pose_states(
    lanes: I64,
    positions: F64,
    targets: I64,
    model: int,
    data: int,
    addresses: I64,
    calls: I64,
    guard: I64,
    thread: int,
    progress: I64,
    messages: int,
    numbers: F64,
    integers: I32,
    tables: PoseTables,
    scales: F32,
    scale_lane: I64,
    scene_lanes: I32,
    target: PoseTarget,
    camera_poses: F32,
    faults: I64,
) -> None:
    """Compute the poses of each lane by these calls, and write them into the scene and into `camera_poses`.

    `data` is the address of this thread's MjData, `addresses` [1, fields] are those of its arrays, and `targets` those
    of the columns of `positions` [lane, m], all as indices into `numbers`. `guard`, `progress` and `messages` are those
    of `worldloom.worlds.mujoco.simulation.kernels.step_lanes`. All lanes have the scales of the lane `scale_lane` [1].
    """
    previous_hook = call_one(guard[2], guard[1])
    threads = progress.shape[0] - 1
    done = 0
    for turn in range(threads):
        block = (thread + turn) % threads
        first, end = block * lanes.size // threads, (block + 1) * lanes.size // threads
        k = first + fetch_add(progress[block], 1)
        while k < end:
            lane = lanes[k]
            for column in range(targets.size):
                numbers[targets[column]] = positions[lane, column]
            message = messages + MESSAGE_BYTES * k
            for call in range(calls.size):
                if faults[k] == 0:
                    faults[k] = call_six(guard[0], calls[call], model, data, 0, 0, message)
            write_poses_of(numbers, integers, addresses, tables, scales, scale_lane, scene_lanes[k : k + 1], target)
            for camera in range(camera_poses.shape[1]):
                one = camera_poses[lane : lane + 1, camera]
                write_camera_poses(numbers, addresses, CAM_XPOS, CAM_XMAT, camera, one)
            done += 1
            k = first + fetch_add(progress[block], 1)
    call_one(guard[2], previous_hook)
    fetch_add(progress[threads], done)
