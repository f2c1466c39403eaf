"""Many small pictures as one.

Many worlds as one Gymnasium vector environment.
"""

import math
import operator
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

from worldloom.client import specs as spaces
from worldloom.client.errors import CannotConnect, ClientError
from worldloom.client.links import Access
from worldloom.client.specs import describe
from worldloom.client.stream import Stream, Transport, outcome
from worldloom.client.world import refuse_settings


def tile(pictures: np.ndarray) -> np.ndarray:
    """Pictures [n, height, width, 3] in rows, as near to a square as it goes; what is left over is black."""
    count, height, width, channels = pictures.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    sheet = np.zeros((rows * columns, height, width, channels), pictures.dtype)
    sheet[:count] = pictures
    by_rows = sheet.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return by_rows.reshape(rows * height, columns * width, channels)


_RETRY_EVERY_S = 0.1

Observations = dict[str, np.ndarray]
StepResult = tuple[Observations, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class VectorEnv(gymnasium.vector.VectorEnv[Observations, Mapping[str, ArrayLike], np.ndarray]):
    """`num_envs` lanes of a family, behind one stream to a server.

    Observations are dicts keyed by the full name, actions dicts keyed by the action's name. A lane whose episode has
    ended begins the next with the following step, which ignores its action and brings no reward (NEXT_STEP).
    Observations are the caller's own: they can be written, and keep what they hold for as long as they are kept.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]  # the base class did not say so
        "autoreset_mode": AutoresetMode.NEXT_STEP,
        "render_modes": ["rgb_array"],
    }

    def __init__(
        self,
        address: str,
        family: str,
        num_envs: int,
        *,
        width: int = 64,
        height: int = 64,
        samples: int = 1,
        observations: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        render_mode: Literal["rgb_array"] | None = None,
        transport: Transport = "auto",
        renderer: Literal["auto", "gl", "cpu"] = "auto",
        token: str | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        """Make a world and join it.

        Args:
            address: `HOST:PORT` or `unix:PATH` of a server, or `local` for an engine in this process.
            family: What kind of world; `worldloom worlds` lists them.
            num_envs: Lanes.
            width: Of the pictures, in pixels.
            height: Of the pictures, in pixels.
            samples: Samples a pixel, 1 or 4.
            observations: What to see, such as `eye.rgb`, which is the default.
            settings: The family's own; `worldloom describe FAMILY` lists them.
            seed: What chance comes from until `reset` says otherwise; drawn by lot unless given.
            render_mode: `rgb_array` has a picture for `render` drawn with each step if `observations` has none.
            transport: `shm` has pictures in shared memory, `grpc` in the replies; `auto` takes the former where it can.
            renderer: What draws, if the address is `local`.
            token: What the server was given with --token-file.
            tls_ca: File of certificates in PEM that the server's is signed with; it makes the connection TLS.
            tls_cert: File with this client's own certificate, where the server wants one.
            tls_key: File with its key.
            timeout_s: Seconds that the server may take to answer.
        """
        refuse_settings(settings, {"family": "family", "lanes": "num_envs", "seed": "seed"})
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}: expected 'rgb_array' or None")
        if isinstance(observations, str):
            raise TypeError(f"observations is {observations!r}: expected a list of names, such as [{observations!r}]")
        names = tuple(dict.fromkeys(("eye.rgb",) if observations is None else observations))
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}: expected seconds, more than 0")
        self.address = address
        self._last: np.ndarray | None = None
        self.num_envs = _integer("num_envs", num_envs, 1, 2**31 - 1)
        self._names = names
        self._seed = None if seed is None else _integer("seed", seed, 0, 2**64 - 1)
        self._rendered = next((name for name in names if name.endswith(".rgb")), None)
        if self._rendered is None and render_mode is not None:
            self._rendered = "eye.rgb"
        self.render_mode = None if self._rendered is None else "rgb_array"
        self._how: dict[str, Any] = {
            "names": names if self._rendered is None else (*names, self._rendered),
            "world": {"family": family, "lanes": self.num_envs, **(settings or {})},
            "joining": {"width": width, "height": height, "samples": samples},
            "transport": transport,
            "access": Access(token, tls_ca, tls_cert, tls_key),
            "renderer": renderer,
            "timeout_s": timeout_s,
        }
        self._connect()
        specs = self._stream.observations
        self.single_action_space = spaces.action_space(self._stream.actions.values(), self.num_envs)
        self.single_observation_space = spaces.observation_space([specs[name] for name in names], self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]  # an attribute in the base class
        """Of all lanes. Made when it is asked for: its bounds take several times the memory of the pictures."""
        return batch_space(self.single_observation_space, self.num_envs)

    @property
    def transport(self) -> str:
        """The way that was chosen: `local`, `shm` or `grpc`."""
        return self._stream.transport

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin new episodes in all lanes. A seed is for all of them together, and starts chance over."""
        if options:
            raise ValueError(f"options are {options!r}: expected none; lanes are reset all at once, or by themselves")
        taken = None if seed is None else _integer("seed", seed, 0, 2**64 - 1)
        super().reset(seed=taken)
        self._check_open()
        self._is_reset = self._is_stepping = False
        self._stream.begin(taken)
        seen = self._receive()
        self._is_reset = True
        return self._of(seen), {}

    def step(self, actions: Mapping[str, ArrayLike]) -> StepResult:
        """One step of all lanes. What is wrong with the actions is told before anything is sent."""
        self.send(actions)
        return self.recv()

    def send(self, actions: Mapping[str, ArrayLike]) -> None:
        """The first half of a step: it is under way when this returns."""
        self._check_open()
        if not self._is_reset:
            raise gymnasium.error.ResetNeeded("a step before the first reset: expected env.reset() first")
        if self._is_stepping:
            raise ClientError("a step while another is under way: expected env.recv() first")
        self._stream.send(actions)
        self._is_stepping = True

    def recv(self) -> StepResult:
        """The second half: waits for what the step brought."""
        self._check_open()
        if not self._is_stepping:
            raise ClientError("nothing to receive: expected env.send(actions) first")
        try:
            seen = self._receive()
        except ClientError:
            self._is_stepping = False
            raise
        self._is_stepping = False  # unless someone interrupts the wait: then it can be received later
        return self._of(seen), *outcome(seen), {}

    def render(self) -> np.ndarray:  # type: ignore[override]  # one picture instead of many
        """All lanes in one picture [height, width, 3], as the last step or reset showed them."""
        if self._rendered is None:
            raise ClientError(
                "nothing to render: expected an rgb picture in `observations`, or render_mode='rgb_array'"
            )
        if self._last is None:
            raise gymnasium.error.ResetNeeded("nothing to render yet: expected env.reset() first")
        return tile(self._last)

    def reconnect(self, wait_s: float = 0.0) -> None:
        """After a loss: a new world with the same settings, which begins with `reset`.

        While there is no server, try again for so long.
        """
        before = self._stream
        self._finalizer()
        until_s = time.monotonic() + wait_s
        while not self._is_connected(is_last_try=time.monotonic() + _RETRY_EVERY_S > until_s):
            time.sleep(_RETRY_EVERY_S)
        for what in ("actions", "observations"):
            was, now = (describe(getattr(one, what)) for one in (before, self._stream))
            if was != now:
                self.close()
                raise ClientError(f"the server at {self.address} now has {what} {now}: expected {was}; make a new env")
        self.closed = False

    def close_extras(self, **kwargs: Any) -> None:
        """Destroy the world and end the connection."""
        self._last = None
        self._finalizer()

    def __enter__(self) -> "VectorEnv":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        family = self._how["world"]["family"]
        return f"VectorEnv({self.address!r}, {family!r}, num_envs={self.num_envs}, transport={self.transport!r})"

    def _connect(self) -> None:
        how = dict(self._how)
        if self._seed is not None:
            how["world"] = {**how["world"], "seed": self._seed}
        self._stream = Stream(self.address, **how)
        # Also when this is forgotten, or the process ends.
        self._finalizer = weakref.finalize(self, self._stream.world.close)
        self._is_reset = False
        self._is_stepping = False
        self._last = None

    def _is_connected(self, is_last_try: bool) -> bool:
        try:
            self._connect()
        except CannotConnect:
            if is_last_try:
                raise
            return False
        return True

    def _receive(self) -> Observations:
        seen = self._stream.receive()
        if self._rendered is not None:
            self._last = seen[self._rendered]
        return seen

    def _of(self, seen: Observations) -> Observations:
        return {name: seen[name] for name in self._names}

    def _check_open(self) -> None:
        if self.closed:
            raise ClientError("this env was closed: expected env.reconnect(), or a new one")


def _integer(name: str, given: Any, least: int, most: int) -> int:
    try:
        if isinstance(given, bool | np.bool_):
            raise TypeError
        value = operator.index(given)
    except TypeError:
        hint = ", which the lanes' own seeds are made from" if name == "seed" else ""
        raise TypeError(f"{name} is {given!r}: expected one integer{hint}") from None
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}: expected an integer from {least} to {most}")
    return value
