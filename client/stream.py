"""A vector world as a stream of steps: actions go, observations come, over whichever way was chosen."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from numpy.typing import ArrayLike

from worldloom.client.errors import BadReply, NoSharedMemory, ServerError
from worldloom.client.links import LOCAL, MOST_REPLY_BYTES, Access, is_on_this_machine, open_link
from worldloom.client.replies import Arrays, StepReader
from worldloom.client.requests import StepWriter, ask_for, write_step
from worldloom.client.shared_memory import SharedPictures
from worldloom.client.specs import Spec, read_specs
from worldloom.client.world import World

Transport: TypeAlias = Literal["auto", "grpc", "shm"]
ALWAYS = ("reward", "discount", "step_type")
_SHARED = "@shm"
_PICTURES = (".rgb", ".gray", ".depth", ".segmentation")


class Stream:
    """A world of so many lanes, joined; `names` are the observations to see beyond reward, discount and step_type."""

    def __init__(
        self,
        address: str,
        names: Sequence[str],
        *,
        world: Mapping[str, Any],
        joining: Mapping[str, Any],
        transport: Transport,
        access: Access,
        renderer: str,
        timeout_s: float,
    ) -> None:
        if transport not in get_args(Transport):
            raise ValueError(f"transport is {transport!r}: expected one of {', '.join(get_args(Transport))}")
        if address == LOCAL and transport != "auto":
            raise ValueError(f"transport is {transport!r} for {LOCAL!r}: expected auto, since nothing is transported")
        self._names = tuple(dict.fromkeys((*ALWAYS, *names)))
        self._joining = {**joining, "max_reply_bytes": MOST_REPLY_BYTES}
        self._shared: SharedPictures | None = None
        self._is_local = address == LOCAL
        self._is_shared = False
        """Whether the step under way asked for pictures in shared memory."""
        self.world = World(open_link(address, access, renderer, timeout_s), world)
        try:
            self._join(address, transport)
        except BaseException:
            self.world.close()
            raise

    @property
    def transport(self) -> str:
        """How pictures come: `local`, `shm` or `grpc`."""
        if self._shared is not None:
            return "shm"
        return LOCAL if self._is_local else "grpc"

    def begin(self, seed: int | None) -> None:
        """Send for the first observations of new episodes."""
        self.world.forget_waiting()
        self.world.reset(seed)
        self.world.post(write_step([], self._ask()))

    def send(self, actions: Mapping[str, ArrayLike]) -> None:
        """Send for the next observations; BadAction before anything is sent."""
        written = self._writer.write(actions)
        self.world.post(write_step(written, self._ask()))

    def receive(self) -> Arrays:
        """The observations that were sent for."""
        reply = self.world.take()
        if self._shared is None or not self._is_shared:
            return self._read_in_reply(reply)
        found = self._read_with_places(reply)
        places = {name.removesuffix(_SHARED): found.pop(name) for name in list(found) if name.endswith(_SHARED)}
        return found | self._shared.read(places, self.observations)

    def _ask(self) -> bytes:
        self._is_shared = self._shared is not None and self._shared.take_turn()
        return self._ask_with_places if self._is_shared else self._ask_in_reply

    def _join(self, address: str, transport: Transport) -> None:
        if transport == "shm":
            self._join_shared()
        elif transport == "auto" and address != LOCAL and is_on_this_machine(address):
            try:
                self._join_shared()
            except NoSharedMemory:
                self._join_plainly()
        else:
            self._join_plainly()

    def _join_plainly(self) -> None:
        self._shared = None
        self._take_specs(self.world.join({**self._joining, "observations": list(self._names)}))

    def _join_shared(self) -> None:
        """Join with pictures in shared memory; NoSharedMemory if that is all that cannot be had."""
        pictures = [name for name in self._names if name.endswith(_PICTURES)]
        if not pictures:
            raise NoSharedMemory(f"no pictures to share among {', '.join(self._names)}: expected such as eye.rgb")
        names = [*self._names, *(f"{name}{_SHARED}" for name in pictures)]
        try:
            specs = self.world.join({**self._joining, "shm": True, "observations": names})
        except ServerError as error:
            self._join_plainly()  # else it is something else that is wrong, and told so
            self.world.leave()
            raise NoSharedMemory(f"no shared memory with {self.world.name}: {error}") from error
        self._take_specs(specs)
        try:
            self._shared = SharedPictures(
                str(self.world.read("shm.name")),
                int(self.world.read("shm.size_bytes")),
                int(self.world.read("shm.slots")),
                str(self.world.read("shm.token")),
            )
        except (OSError, ServerError) as error:
            self.world.leave()
            raise NoSharedMemory(
                f"the server's shared memory cannot be opened ({error}): expected a server on this machine, run by the "
                "same user"
            ) from error

    def _take_specs(self, specs: rpc.ActionObservationSpecs) -> None:
        self.actions: dict[str, Spec] = read_specs(specs.actions.items())
        offered = read_specs(specs.observations.items())
        missing = [name for name in self._names if name not in offered]
        if missing:
            raise BadReply(f"the server offers no {missing[0]!r}: expected {', '.join(self._names)}")
        self.observations = {name: offered[name] for name in self._names}
        self._writer = StepWriter(self.actions)
        in_reply = {spec.uid: spec for spec in self.observations.values()}
        placed = [offered.get(f"{name}{_SHARED}", spec) for name, spec in self.observations.items()]
        with_places = {spec.uid: spec for spec in placed}
        self._ask_in_reply, self._read_in_reply = ask_for(in_reply), StepReader(in_reply).read
        self._ask_with_places, self._read_with_places = ask_for(with_places), StepReader(with_places).read


def outcome(seen: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reward, terminated and truncated, as Gymnasium has them."""
    is_last = seen["step_type"] == 2
    terminated = is_last & (seen["discount"] == 0.0)
    return seen["reward"].astype(np.float64), terminated, is_last & ~terminated
