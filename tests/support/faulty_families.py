"""Families that do what they should not, when they are told to."""

import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tests.support.toy import Toy
from worldloom.kernels.tables import I32, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.family import Outcome, Placement, Spec, State
from worldloom.worlds.settings import Setting, SettingError


class Faulty(Toy):
    """Fails in the call that `fault` names. Episodes end by themselves after their second step."""

    name = "faulty"
    settings = (*Toy.settings, Setting("group", 0, "Worlds with another number are in another pool.", 0, 9))  # type: ignore[assignment]
    fault: ClassVar[str] = ""

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        super().reset(state, lanes, seeds)
        state.end[lanes] = 2
        self._fail("reset")

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> Outcome:
        outcome = super().step(state, lanes, actions)
        self._fail("step")
        wrong: dict[str, Any] = {
            "reward shape": Outcome(np.zeros((len(lanes), self.agents + 1), np.float32), outcome.ended),
            "reward is text": Outcome(np.full((len(lanes), self.agents), "x"), outcome.ended),
            "ended shape": Outcome(outcome.reward, np.zeros(len(lanes) + 1, np.bool_)),
            "no outcome": None,
        }
        made: Outcome = wrong.get(self.fault, outcome)
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

    def look(self, state: State, lanes: I64, camera: str, agent: int) -> Placement:
        self._fail("look")
        place = super().look(state, lanes, camera, agent)
        if self.fault == "pose shape":
            return place._replace(pose=np.zeros((len(lanes) + 1, 3, 4), np.float32))
        if self.fault == "pose is no number":
            return place._replace(pose=np.full((len(lanes), 3, 4), np.nan, np.float32))
        return place._replace(near=-1.0) if self.fault == "near plane behind" else place

    def dress(self, state: State, lanes: I64, scene: Scene, scene_lanes: I32) -> None:
        self._fail("dress")
        super().dress(state, lanes, scene, scene_lanes)
        scene.instances.mesh[scene.rows(scene_lanes)[:, 1]] = 10_000 if self.fault == "mesh that is not there" else -1

    def _fail(self, where: str) -> None:
        if self.fault == where:
            raise RuntimeError(f"as told, in {where}")


class Unborn(Toy):
    """Cannot be made."""

    name = "unborn"

    def __init__(self, given: Mapping[str, object], assets: AssetLibrary) -> None:
        raise RuntimeError("as told")


class Choosy(Toy):
    """Takes no zero, and has other actions if `steered` says so."""

    name = "choosy"
    settings = (*Toy.settings, Setting("steered", False, "Whether it is steered as well."))  # type: ignore[assignment]

    def __init__(self, given: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(given, assets)
        steer = Spec("steer", "int32", (), "Nothing.", -9, -3)
        self.actions = (
            Spec("push", "float32", (2,), "Added up to the reward.", 0.25, 1.0),
            *((steer,) if self.given["steered"] else ()),
        )

    def step(self, state: State, lanes: I64, actions: Mapping[str, np.ndarray]) -> Outcome:
        outcome = super().step(state, lanes, actions)
        if "steer" not in actions:
            return outcome
        return Outcome((outcome.reward + actions["steer"]).astype(np.float32), outcome.ended)


class Slow(Toy):
    """Takes as long to be made as nobody opens the gate; with `agents` of 4 it then fails."""

    name = "slow"
    began: ClassVar[threading.Event] = threading.Event()
    gate: ClassVar[threading.Event] = threading.Event()

    def __init__(self, given: Mapping[str, object], assets: AssetLibrary) -> None:
        super().__init__(given, assets)
        self.began.set()
        assert self.gate.wait(20)
        if self.agents == 4:
            raise SettingError("setting 'agents' is 4: expected fewer, for this test")
        if self.agents == 3:
            raise KeyError("a bug")
