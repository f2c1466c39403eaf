"""Naive dm_env_rpc server: the simplest that does the same, as a baseline for ours.

    python -m worldloom.bench.naive_server [--renderer gl|cpu] [--listen HOST:PORT]

A thread for each stream, and in each a world and a renderer of its own. Lanes are stepped one after the other, each
view is drawn and read back by itself, and replies are built as protobuf objects with the protocol's own helpers.
Simulation and drawing are the very code that our server uses, and so are the settings and the specs. What it leaves
out: several agents in a world, worlds that streams share, shared memory, properties.
"""

import argparse
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc, tensor_utils

from worldloom.protos.errors import FailedPrecondition, InvalidArgument, RequestError, Unimplemented
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.gl.renderer import GLRenderer
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.server.config import Limits
from worldloom.server.dm_env_rpc.specs import agent_specs_message
from worldloom.server.dm_env_rpc.step_layout import step_layout
from worldloom.server.dm_env_rpc.tensors import ActionReader, settings_from
from worldloom.server.engine.memory import MemoryBudget
from worldloom.server.engine.observations import AgentSpecs, ObservationSpec, ReplyLayoutCache
from worldloom.server.engine.world_settings import parse_join_settings
from worldloom.worlds.lanes import RUNNING, idle_action
from worldloom.worlds.pool import Pool
from worldloom.worlds.registry import FamilyError, find_family
from worldloom.worlds.settings import SettingError

MOST_STREAMS, MOST_LANES = 256, 65_536
_LIMITS = Limits()
_RENDERERS: dict[str, Callable[[], Renderer]] = {"gl": GLRenderer, "cpu": lambda: CPURenderer(threads=1)}


class World:
    """Lanes of a family, and the specs of its one agent."""

    def __init__(self, given: Mapping[str, object], assets: AssetLibrary) -> None:
        own = {name: value for name, value in given.items() if name not in ("family", "seed", "lanes")}
        try:
            family = find_family(str(given.get("family")))(own, assets)
        except (FamilyError, SettingError) as error:
            raise InvalidArgument(str(error)) from error
        if family.agents > 1:
            raise InvalidArgument(f"{family.agents} agents: expected 1, which is all that this server can do")
        self.lanes = _whole(given, "lanes", 1, MOST_LANES) if "lanes" in given else None
        """Number of lanes; None where tensors have no leading dimension."""
        self.pool = Pool(family, Scene(assets))
        self.pool.add(
            family.lane_seeds(_whole(given, "seed", -(2**63), 2**64 - 1) if "seed" in given else 0, self.lanes or 1)
        )
        self.name = family.name

    def join(self, given: Mapping[str, object]) -> AgentSpecs:
        """Return the specs of actions and observations."""
        return AgentSpecs(
            self.pool,
            0,
            self.lanes,
            parse_join_settings(given, _LIMITS),
            ReplyLayoutCache(step_layout, _LIMITS, MemoryBudget(None)),
        )

    def restart(self) -> None:
        """Let the next step begin new episodes."""
        self.pool.interrupt(np.arange(self.lanes or 1))

    def step(self, actions: Mapping[str, np.ndarray]) -> None:
        """Step one lane after the other; `actions[name]` is [lanes, *shape]."""
        for lane in range(self.lanes or 1):
            self.pool.step(np.array([lane]), {name: action[lane : lane + 1, None] for name, action in actions.items()})

    @property
    def state(self) -> int:
        """Return the state for the agent. The lanes of a vector world have episodes of their own."""
        return RUNNING if self.lanes is not None else int(self.pool.status[0])

    def observe(self, one: ObservationSpec, specs: AgentSpecs, renderer: Renderer) -> np.ndarray:
        """Return an observation of all lanes."""
        lanes = [np.array([lane]) for lane in range(self.lanes or 1)]
        if one.is_frame:
            values = np.concatenate([self._draw(lane, one, specs, renderer) for lane in lanes])
        elif one.name in ("reward", "discount", "step_type"):
            values = getattr(self.pool, one.name)[: len(lanes)]
        else:
            values = np.concatenate([self.pool.observe(lane, one.name) for lane in lanes])
        return values.reshape(one.shape)

    def _draw(self, lane: np.ndarray, one: ObservationSpec, specs: AgentSpecs, renderer: Renderer) -> np.ndarray:
        """Draw one frame of one lane and read it back."""
        camera, output = one.name.split(".")
        size = {
            "width": specs.join_settings.width,
            "height": specs.join_settings.height,
            "samples": specs.join_settings.samples,
        }
        views = self.pool.views(lane, camera, outputs=1 << one.output, **size)
        offsets, size_bytes = lay_out(views)
        arena = allocate_arena(size_bytes)
        renderer.draw(self.pool.scene, views, arena, offsets)
        return get_frame(arena, views, offsets, 0, output)[None]


class Session:
    """One stream, its world and its renderer."""

    def __init__(self, renderer: Renderer, assets: AssetLibrary, making: threading.Lock) -> None:
        self._renderer = renderer
        self._assets, self._making = assets, making
        self._world: World | None = None
        self._specs: AgentSpecs | None = None

    def answer(self, request: rpc.EnvironmentRequest) -> rpc.EnvironmentResponse:
        """Return the response to a request."""
        kind = request.WhichOneof("payload")
        response = rpc.EnvironmentResponse()
        try:
            handle = getattr(self, f"_{kind}", None)
            if handle is None:
                raise Unimplemented(f"{kind or 'no payload'}: expected a message that this server knows")
            getattr(response, kind).CopyFrom(handle(getattr(request, kind)))
        except RequestError as refusal:
            response.error.code, response.error.message = refusal.code, str(refusal)
        return response

    def _create_world(self, request: rpc.CreateWorldRequest) -> rpc.CreateWorldResponse:
        if self._world is not None:
            raise FailedPrecondition(f"this stream has made {self._world.name} already: expected one world a stream")
        with self._making:  # families add to the assets, which are the same for all
            self._world = World(settings_from(request.settings), self._assets)
        return rpc.CreateWorldResponse(world_name=self._world.name)

    def _join_world(self, request: rpc.JoinWorldRequest) -> rpc.JoinWorldResponse:
        self._specs = self._made().join(settings_from(request.settings))
        return rpc.JoinWorldResponse(specs=agent_specs_message(self._specs))

    def _step(self, request: rpc.StepRequest) -> rpc.StepResponse:
        world, specs = self._made(), self._joined()
        wanted = [_known(specs.observations, uid) for uid in request.requested_observations]
        actions = {spec.name: idle_action(spec, world.lanes or 1) for spec in specs.actions.values()}
        for uid, tensor in request.actions.items():
            spec = _known(specs.actions, uid)
            actions[spec.name] = ActionReader(spec, world.lanes).read(tensor)
        world.step(actions)
        response = rpc.StepResponse(state=world.state)
        for one in wanted:
            values = world.observe(one, specs, self._renderer)
            response.observations[one.uid].CopyFrom(tensor_utils.pack_tensor(values))
        return response

    def _reset(self, _request: rpc.ResetRequest) -> rpc.ResetResponse:
        specs = self._joined()
        self._made().restart()
        return rpc.ResetResponse(specs=agent_specs_message(specs))

    def _reset_world(self, _request: rpc.ResetWorldRequest) -> rpc.ResetWorldResponse:
        self._made().restart()
        return rpc.ResetWorldResponse()

    def _leave_world(self, _request: rpc.LeaveWorldRequest) -> rpc.LeaveWorldResponse:
        self._specs = None
        return rpc.LeaveWorldResponse()

    def _destroy_world(self, _request: rpc.DestroyWorldRequest) -> rpc.DestroyWorldResponse:
        self._world = self._specs = None
        return rpc.DestroyWorldResponse()

    def _made(self) -> World:
        if self._world is None:
            raise FailedPrecondition("this stream has no world: expected CreateWorld first")
        return self._world

    def _joined(self) -> AgentSpecs:
        if self._specs is None:
            raise FailedPrecondition("this stream has joined no world: expected JoinWorld first")
        return self._specs


class Environment(dm_env_rpc_pb2_grpc.EnvironmentServicer):  # type: ignore[misc]  # generated, without types
    """The gRPC service, called on a thread for each stream."""

    def __init__(self, make_renderer: Callable[[], Renderer]) -> None:
        self._make_renderer = make_renderer
        self._assets = AssetLibrary()
        self._making = threading.Lock()

    def Process(  # noqa: N802  # as the protocol has it
        self, requests: Iterator[rpc.EnvironmentRequest], _context: object
    ) -> Iterator[rpc.EnvironmentResponse]:
        """Answer a stream's requests in order."""
        with closing(self._make_renderer()) as renderer:
            session = Session(renderer, self._assets, self._making)
            for request in requests:
                yield session.answer(request)


def _whole(given: Mapping[str, object], name: str, least: int, most: int) -> int:
    value = given[name]
    if type(value) is not int or not least <= value <= most:
        raise InvalidArgument(f"setting {name!r} is {str(value)[:100]}: expected an integer from {least} to {most}")
    return value


def _known(offered: Mapping[int, Any], uid: int) -> Any:
    if uid not in offered:
        raise InvalidArgument(f"{uid} is not offered: expected some of {', '.join(map(str, offered))}")
    return offered[uid]


def main(words: list[str]) -> int:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m worldloom.bench.naive_server", description="A naive server.")
    parser.add_argument("--renderer", choices=sorted(_RENDERERS), default="gl", help="what draws (%(default)s)")
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:0", help="address (%(default)s)")
    chosen = parser.parse_args(words)
    options = [("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(MOST_STREAMS), options=options)
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Environment(_RENDERERS[chosen.renderer]), server)
    port = server.add_insecure_port(chosen.listen)
    server.start()
    print(f"listening on {chosen.listen.rpartition(':')[0]}:{port}", flush=True)
    server.wait_for_termination()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
