"""Families that fail on purpose, for tests of how the engine deals with it."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tests.support.toy import Toy
from worldloom.kernels.tables import I32, I64, U8
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import Camera, CameraPlacement, Spec, State, StepResult
from worldloom.worlds.settings import Setting, SettingError


class Faulty(Toy):
    """A family that fails in the call, or in the way, that `fault` names. Episodes terminate at their second step."""

    name = "faulty"
    settings = (*Toy.settings, Setting("group", 0, "Worlds with another number are in another pool.", 0, 9))  # type: ignore[assignment]
    fault: ClassVar[str] = ""
    error: ClassVar[type[BaseException]] = RuntimeError

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        super().reset(state, lanes, seeds)
        state.end[lanes] = 2
        self._fail("reset")

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        result = super().step(state, lanes, actions)
        self._fail("step")
        wrong: dict[str, Any] = {
            "reward shape": StepResult(np.zeros((len(lanes), self.agents + 1), np.float32), result.terminated),
            "reward is text": StepResult(np.full((len(lanes), self.agents), "x"), result.terminated),
            "ended shape": StepResult(result.reward, np.zeros(len(lanes) + 1, np.bool_)),
            "no result": None,
        }
        made: StepResult = wrong.get(self.fault, result)
        return made

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        self._fail("observe")
        values = super().observe(state, lanes, name, agent)
        wrong: dict[str, Any] = {
            "observation shape": values[:, None],
            "observation length": np.concatenate([values, values]),
            "observation dtype": values.astype(np.int32),
            "observation is a list": values.tolist(),
            "no observation": None,
        }
        made: np.ndarray = wrong.get(self.fault, values)
        return made

    def place_camera(self, state: State, lanes: I64, camera: str, agent: int) -> CameraPlacement:
        self._fail("place_camera")
        place = super().place_camera(state, lanes, camera, agent)
        if self.fault == "pose shape":
            return place._replace(pose=np.zeros((len(lanes) + 1, 3, 4), np.float32))
        if self.fault == "pose is no number":
            return place._replace(pose=np.full((len(lanes), 3, 4), np.nan, np.float32))
        return place._replace(near=-1.0) if self.fault == "near plane behind" else place

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        self._fail("write_instances")
        super().write_instances(state, lanes, scene, scene_lanes)
        scene.instances.mesh[scene.rows(scene_lanes)[:, 1]] = 10_000 if self.fault == "mesh that is not there" else -1

    def _fail(self, where: str) -> None:
        if self.fault == where:
            raise self.error(f"deliberate fault in {where}")


class Photographed(Toy):
    """A family that supplies its pictures: all pixels of one are its lane in the pool and its count of steps.

    `clock` is asked when one is made; `broken` are lanes that have none.
    """

    name = "photographed"
    cameras = (Camera("eye", "A photograph.", outputs=("rgb", "gray"), is_drawn=False),)  # type: ignore[assignment]
    clock: ClassVar[Callable[[], object]] = staticmethod(lambda: None)
    broken: ClassVar[frozenset[int]] = frozenset()
    made: ClassVar[int] = 0

    def picture(self, state: State, lanes: I64, camera: str, agent: int, width: int, height: int) -> U8:
        type(self).made += len(lanes)
        for _ in lanes:
            type(self).clock()
        if self.broken.intersection(lanes.tolist()):
            raise OSError("deliberate fault in picture")
        shades = np.stack([lanes, state.count[lanes], lanes], axis=-1).astype(np.uint8)
        return np.broadcast_to(shades[:, None, None], (len(lanes), height, width, 3)).copy()


class Unspeakable(Exception):  # noqa: N818  # its name is what is tested
    """An exception that has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unborn(Toy):
    """A family that cannot be built."""

    name = "unborn"

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        raise RuntimeError("deliberate fault")


class Choosy(Toy):
    """A family whose actions exclude 0, with one more action if `steered` is set."""

    name = "choosy"
    settings = (*Toy.settings, Setting("steered", False, "Whether it is steered as well."))  # type: ignore[assignment]

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        steer = Spec("steer", "int32", (), "Nothing.", -9, -3)
        self.actions = (
            Spec("push", "float32", (2,), "Added up to the reward.", 0.25, 1.0),
            *((steer,) if self.setting_values["steered"] else ()),
        )

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        result = super().step(state, lanes, actions)
        if "steer" not in actions:
            return result
        return StepResult((result.reward + actions["steer"]).astype(np.float32), result.terminated)


class Slow(Toy):
    """A family whose construction waits for the event `gate`; it then fails with `agents` of 3 or 4."""

    name = "slow"
    began: ClassVar[threading.Event] = threading.Event()
    gate: ClassVar[threading.Event] = threading.Event()

    def __init__(self, settings: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(settings, assets)
        self.began.set()
        assert self.gate.wait(20)
        if self.agents == 4:
            raise SettingError("setting 'agents' is 4: expected fewer, for this test")
        if self.agents == 3:
            raise KeyError("a bug")


class Picky(Toy):
    """A family that fails for some actions.

    At 0.5 it fails in the step, after it has changed the state of all lanes; at 0.25 when it is observed; at 0.125 when
    it is drawn.
    """

    name = "picky"

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> StepResult:
        result = super().step(state, lanes, actions)
        if (actions["push"] == 0.5).any():
            raise KeyError("no such push in /home/someone/private/table.py")
        return result

    def observe(self, state: State, lanes: I64, name: str, agent: int) -> np.ndarray:
        if (state.pushed[lanes, 0, 0] == 0.25).any():
            raise ValueError("a push that cannot be observed")
        return super().observe(state, lanes, name, agent)

    def write_instances(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        super().write_instances(state, lanes, scene, scene_lanes)
        wrong = state.pushed[lanes, 0, 0] == 0.125
        scene.instances.mesh[scene.rows(scene_lanes)[:, 1]] = np.where(wrong, 10_000, -1)  # no such mesh
