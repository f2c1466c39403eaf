"""A driver of an engine and of the model of its protocol, side by side: what one answers, the other must say."""

from collections.abc import Callable
from typing import Any

import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2
from google.rpc import code_pb2

from scripts.support.engine_streams import EngineHarness, Stream
from scripts.support.messages import packed
from scripts.support.protocol_model import MAX_LANES, MAX_WORLDS, RUNNING, Client, Kind, Model, World
from worldloom.render.renderer import Renderer

SEEN = ("reward", "discount", "step_type")
PICTURES = ("eye.rgb", "eye.depth")
MOST_STREAMS = 6
NOT_THERE = 13
"""Number that picks a world which does not exist."""
NONSENSE = (
    (b"", "INVALID_ARGUMENT"),
    (b"\x1a\x7f", "INVALID_ARGUMENT"),
    (rpc.EnvironmentRequest(extension={"type_url": "x/y"}).SerializeToString(), "UNIMPLEMENTED"),
)


class ProtocolDriver:
    """An engine with streams, and the model of the protocol that every answer is compared with.

    Requests are posted; those posted since the last tick are taken by one tick, in order. Streams and worlds are chosen
    by any number.
    """

    def __init__(self, renderer: Renderer) -> None:
        self.harness = EngineHarness(renderer, max_worlds=MAX_WORLDS, max_lanes=MAX_LANES)
        self.model = Model()
        self.streams: dict[Client, Stream] = {}
        self.worlds: list[World] = []
        """All there ever were whose names are known."""
        self.told: dict[Client, int] = {}
        """The state that each client was told last, if it is in a world."""
        self.posted: list[tuple[Client, Callable[[], None]]] = []
        self.steps = 0
        """Steps that were answered."""

    def begin(self, kinds: list[Kind], places: list[int]) -> None:
        """Some worlds, and some streams in them: what takes many requests to come by chance."""
        for kind in kinds:
            self.open()
            self.create(0, kind, True, True)
        for who, which in enumerate(places):
            self.open()
            self.join(who, which, None, True, True)

    def open(self) -> None:
        if len(self.streams) < MOST_STREAMS:
            client = Client()
            self.streams[client] = self.harness.stream()

    def create(self, who: int, kind: Kind, is_right: bool, at_once: bool) -> None:
        wrong = {} if is_right else {"max_steps": 0}
        request = rpc.CreateWorldRequest(settings=packed({**kind.settings, **wrong}))
        self.post(who, {"create_world": request}, lambda client: self.model.create(client, kind, is_right), at_once)

    def join(self, who: int, which: int, slot: int | None, is_right: bool, at_once: bool) -> None:
        world = self.pick(which)
        given = {"width": 4 if is_right else 0, "height": 4} | ({} if slot is None else {"agent": slot})
        request = rpc.JoinWorldRequest(world_name=world.name if world else "nowhere", settings=packed(given))
        self.post(who, {"join_world": request}, lambda client: self.model.join(client, world, slot, is_right), at_once)

    def step(self, who: int, wants_right: bool, acts_right: bool, is_seen: bool, at_once: bool) -> None:
        self.post_step(self.idle(who, inside=True), wants_right, acts_right, is_seen)
        self.tick_if(at_once)

    def step_everyone_in_a_world(self, which: int, is_seen: bool, at_once: bool) -> None:
        world = self.pick(which)
        self.post_steps([client for client, _ in world.agents.values()] if world else [], is_seen)
        self.tick_if(at_once)

    def step_everyone(self, is_seen: bool) -> None:
        self.post_steps([client for client in self.streams if client.world is not None], is_seen)
        self.tick()

    def step_all_but_one(self, who: int) -> None:
        clients = [client for client in self.streams if client.world is not None]
        self.post_steps([client for number, client in enumerate(clients) if number != who % len(clients)], False)
        self.tick()

    def reset(self, who: int, width: int | None, at_once: bool) -> None:
        request = rpc.ResetRequest(settings={} if width is None else packed({"width": width}))
        self.post(who, {"reset": request}, lambda client: self.model.reset(client, width != 0), at_once)

    def reset_world(
        self, who: int, which: int, is_right: bool, changes_specs: bool, at_once: bool, **given: Any
    ) -> None:
        world, client = self.pick(which), self.idle(who)
        if client is None:
            return
        if client.world not in (None, world):
            self.tick()  # where waits cross, one request at a time
        specs = {}
        if changes_specs and world is not None:
            specs = {"columns": 7} if world.kind.settings["family"] == "catch" else {"goals": 2}
        wrong = {} if is_right else {"lanes": 2}
        settings = {name: value for name, value in {**given, **specs, **wrong}.items() if value is not None}
        request = rpc.ResetWorldRequest(world_name=world.name if world else "nowhere", settings=packed(settings))
        self.post_as(
            client,
            rpc.EnvironmentRequest(reset_world=request),
            lambda: self.model.reset_world(client, world, given["max_steps"], is_right, bool(specs)),
        )
        self.tick_if(at_once or client.world not in (None, world))

    def leave(self, who: int, happens: bool, at_once: bool) -> None:
        if happens:
            self.post(who, {"leave_world": rpc.LeaveWorldRequest()}, self.model.leave, at_once)

    def destroy(self, who: int, which: int, happens: bool, at_once: bool) -> None:
        world = self.pick(which)
        request = rpc.DestroyWorldRequest(world_name=world.name if world else "nowhere")
        if happens:
            self.post(who, {"destroy_world": request}, lambda client: self.model.destroy(client, world), at_once)

    def read(self, who: int, at_once: bool) -> None:
        request = rpc.EnvironmentRequest()
        key = properties_pb2.ReadPropertyRequest(key="world.seed")
        request.extension.Pack(properties_pb2.PropertyRequest(read_property=key))
        self.post(who, {"extension": request.extension}, self.model.read, at_once)

    def nonsense(self, who: int, what: tuple[bytes, str], at_once: bool) -> None:
        client = self.idle(who)
        if client is not None:
            self.posted.append((client, lambda: self.model.nonsense(client, what[1])))
            self.streams[client].post_bytes(what[0])
            self.tick_if(at_once)

    def close(self, who: int, happens: bool, at_once: bool) -> None:
        """Anyone may go at any time, whatever it waits for."""
        open_ones = [client for client in self.streams if not self.has_posted(client)]
        if happens and open_ones:
            client = open_ones[who % len(open_ones)]
            self.posted.append((client, lambda: self.model.close(client)))
            self.harness.post(self.streams[client].session.close)
            self.tick_if(at_once)

    def tick(self) -> None:
        """Take all that was posted, and see that everyone was told what the model says, and nobody else anything."""
        for _, follow in self.posted:
            follow()
        posted, self.posted = self.posted, []
        self.model.go_on()
        self.harness.tick()
        self.harness.settle()
        for client in list(self.streams):
            self.check_answers(client)
        for client, _ in posted:
            if client.is_closed:
                del self.streams[client]
                self.told.pop(client, None)

    def nobody_is_lost(self) -> None:
        if not self.posted:
            directory = self.harness.engine.directory
            assert set(directory.worlds) == {world.name for world in self.model.worlds}
            there = [agent for world in directory.worlds.values() for agent in world.agents.values()]
            assert sorted(agent.state for agent in there) == sorted(one.state for one in self.model.everyone_in())

    def teardown(self) -> None:
        self.tick()
        for client in list(self.streams):
            self.harness.post(self.streams[client].session.close)
        self.harness.tick()
        last = self.harness.stream()
        for world in self.model.worlds:
            last.destroy(world.name)
        self.harness.check_empty()
        assert self.harness.engine.counters.streams == 1

    def post(self, who: int, payload: dict[str, Any], follow: Callable[[Client], None], at_once: bool) -> None:
        inside = {"join_world": False, "reset": True, "leave_world": True, "extension": True}
        client = self.idle(who, inside.get(next(iter(payload))))
        if client is not None:
            self.post_as(client, rpc.EnvironmentRequest(**payload), lambda: follow(client))
            self.tick_if(at_once)

    def post_as(self, client: Client, request: rpc.EnvironmentRequest, follow: Callable[[], None]) -> None:
        self.posted.append((client, follow))
        self.streams[client].post(request)

    def post_step(self, client: Client | None, wants_right: bool, acts_right: bool, is_seen: bool) -> None:
        if client is None:
            return
        stream = self.streams[client]
        names = [*SEEN, *(PICTURES if is_seen else ())]
        uids = [uid for uid, spec in stream.specs.observations.items() if spec.name in names]
        actions = {} if acts_right else {99: tensor_utils.pack_tensor(np.int32(1))}
        request = rpc.StepRequest(actions=actions, requested_observations=uids + ([] if wants_right else [4711]))
        self.post_as(
            client, rpc.EnvironmentRequest(step=request), lambda: self.model.step(client, wants_right, acts_right)
        )
        if self.model.is_crossed:
            self.tick()

    def post_steps(self, clients: list[Client], is_seen: bool) -> None:
        for client in clients:
            if not client.is_busy and not client.is_closed and not self.has_posted(client):
                self.post_step(client, True, True, is_seen)

    def tick_if(self, at_once: bool) -> None:
        if at_once or self.model.is_crossed:
            self.tick()

    def idle(self, who: int, inside: bool | None = None) -> Client | None:
        """Someone who waits for nothing, and who is in a world or not, if that matters and unless it is unlikely."""
        idle = [client for client in self.streams if not client.is_busy and not self.has_posted(client)]
        fitting = [client for client in idle if inside in (None, client.world is not None)]
        chosen = idle if who == NOT_THERE else fitting
        return chosen[who % len(chosen)] if chosen else None

    def has_posted(self, client: Client) -> bool:
        return any(one is client for one, _ in self.posted)

    def pick(self, which: int) -> World | None:
        """A world that is there, or sometimes one that is not."""
        there = [world for world in self.model.worlds if world.name]
        if which == NOT_THERE or not there:
            gone = [world for world in self.worlds if world.is_gone]
            return gone[which % len(gone)] if gone else None
        return there[which % len(there)]

    def check_answers(self, client: Client) -> None:
        replies = self.streams[client].replies
        expected, client.expected = client.expected, []
        came, should_come = [describe(reply) for reply in replies], [answer[:2] for answer in expected]
        assert came == should_come, f"{came} came: expected {should_come}"
        for reply, answer in zip(replies, expected, strict=True):
            kind = answer[0]
            if kind == "create_world":
                world = next(made for who, made in self.model.created if who is client and not made.name)
                world.name = reply.create_world.world_name
                self.worlds.append(world)
            elif kind in ("join_world", "reset"):
                self.streams[client].specs = getattr(reply, kind).specs
                self.told[client] = 0
            elif kind == "reset_world" and client.agent is not None and not client.agent.believes_to_run:
                self.told[client] = 0
            elif kind == "step":
                assert self.told[client] == RUNNING or reply.step.state == RUNNING, "a sequence did not begin"
                self.told[client] = reply.step.state
                self.steps += 1
                self.check_step(self.streams[client], reply, answer)
        replies.clear()

    def check_step(self, stream: Stream, reply: rpc.EnvironmentResponse, answer: tuple[Any, ...]) -> None:
        _, _, step_types, discounts = answer
        stream.replies.clear()
        stream.replies.append(reply)
        seen = stream.step_reply().observations
        assert np.atleast_1d(seen["step_type"]).tolist() == step_types
        assert np.atleast_1d(seen["discount"]).tolist() == discounts


def describe(reply: rpc.EnvironmentResponse) -> tuple[Any, ...]:
    """Return the parts of a reply that are compared: its kind, and the code or the state."""
    kind = reply.WhichOneof("payload")
    if kind == "error":
        return kind, code_pb2.Code.Name(reply.error.code)
    return (kind, reply.step.state) if kind == "step" else (kind,)
