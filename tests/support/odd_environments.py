"""Environments of Gymnasium that raise errors, truncate by themselves, or place targets before a picture."""

from asyncio import CancelledError
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces

POINT = """
<mujoco>
  <worldbody>
    <light pos="0 0 4"/>
    <geom name="ground" type="plane" size="4 4 1" rgba="0.3 0.3 0.3 1"/>
    <site name="target" type="sphere" size="0.3" pos="0 0 -3" rgba="0 1 0 1"/>
    <body pos="0 0 0.2">
      <joint name="x" type="slide" axis="1 0 0"/>
      <geom name="ball" type="sphere" size="0.2" rgba="1 0 0 1"/>
    </body>
  </worldbody>
  <actuator><motor joint="x"/></actuator>
</mujoco>
"""


class OwnError(BaseException):
    """An error that `except Exception` does not catch, and whose text cannot be made."""

    def __str__(self) -> str:
        raise OwnError


ERRORS: dict[str, BaseException | type[BaseException]] = {
    "exit": SystemExit(3),
    "own": OwnError,
    "cancelled": CancelledError,
    "interrupt": KeyboardInterrupt,
}
"""Errors that are not an Exception, or are easily mistaken for the user's."""


class Counting(gymnasium.Env[Any, Any]):
    """Counts its steps. `fault` says in which call, and in which step, the environments with an odd seed fail."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  # as Env declares it
    observation_space: spaces.Space[Any] = spaces.Dict(
        {"Count": spaces.Box(0, 100, (2,), np.float32), "parity": spaces.Discrete(2, start=3)}
    )
    action_space: spaces.Space[Any] = spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiBinary(2)))
    alive = 0
    """Environments that were made and not closed."""

    def __init__(self, render_mode: str | None = None, fault: str = "", speed: float = 1.0) -> None:
        self.render_mode = render_mode
        self._fault, self._speed, self._is_odd = fault, speed, False
        Counting.alive += 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._count = 0
        if seed is not None:
            self._is_odd = bool(seed % 2)
        if self._is_odd and self._fault == "reset":
            raise RuntimeError("no first state")
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self._count += 1
        if self._is_odd and self._count == 3:
            if self._fault == "step":
                raise RuntimeError("broken")
            if self._fault in ERRORS:
                raise ERRORS[self._fault]
            if self._fault == "shape":
                return {"Count": np.zeros(7, np.float32), "parity": 3}, 0.0, False, False, {}
            if self._fault == "reward":
                return self._observe(), "much", False, False, {}  # type: ignore[return-value]
            if self._fault in ("none", "3.5"):
                reward: Any = None if self._fault == "none" else self._fault
                return self._observe(), reward, False, False, {}
        return self._observe(), self._speed * self._count, self._count == 6, self._is_odd and self._count == 5, {}

    def render(self) -> Any:
        if self._fault == "render" and self._is_odd and self._count == 2:
            raise RuntimeError("no picture")
        return np.full((4, 6, 3), (self._count, 2 * self._count, 3 * self._count), np.uint8)

    def close(self) -> None:
        Counting.alive -= 1

    def _observe(self) -> dict[str, Any]:
        return {"Count": np.array([self._count, 1], np.float64), "parity": 3 + self._count % 2}


class Sampling(gymnasium.Env[Any, Any]):
    """Observes samples of a space; the reward is the sum of its action, which must lie in the other space."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        total = sum(float(leaf.sum()) for leaf in leaves(action))
        return self.observation_space.sample(), total, False, False, {}


def leaves(value: Any) -> list[np.ndarray]:
    """Return the arrays of a value of a space, in order."""
    if isinstance(value, dict):
        return [leaf for member in value.values() for leaf in leaves(member)]
    if isinstance(value, tuple):
        return [leaf for member in value for leaf in leaves(member)]
    return [np.asarray(value)]


class Endless(Counting):
    """An environment whose observations have no fixed shape."""

    observation_space = spaces.Sequence(spaces.Discrete(2))


class Point(gymnasium.Env[Any, Any]):
    """A ball on a rail, with a target that is placed when a picture is made, as those of gymnasium-robotics are."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.model = mujoco.MjModel.from_xml_string(POINT)
        self.data = mujoco.MjData(self.model)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[0] = self.np_random.uniform(-1, 1)
        mujoco.mj_forward(self.model, self.data)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, 5)
        # The position of the target enters the reward, so a picture that moved it would show in the numbers.
        return self._observe(), float(self.data.qpos[0] + self.data.site_xpos[0, 2]), False, False, {}

    def _observe(self) -> Any:
        return np.array([self.data.qpos[0], self.data.qvel[0]], np.float32)

    def _render_callback(self) -> None:
        self.model.site_pos[0] = (1, 0, 0.5)
        self.data.qpos[0] += 0.125
        mujoco.mj_forward(self.model, self.data)


def register() -> None:
    """Register these environments."""
    place = "tests.support.odd_environments"
    gymnasium.register("odd/Counting-v0", f"{place}:Counting")
    gymnasium.register("odd/Endless-v0", f"{place}:Endless")
    gymnasium.register("odd/Point-v0", f"{place}:Point", max_episode_steps=20)
