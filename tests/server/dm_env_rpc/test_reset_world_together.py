"""ResetWorld in every combination of who calls and what two others in the world do meanwhile.

The world is the toy family's, whose episodes end with their first step here: that is how one agent's sequence can be
over while another's runs.
"""

import itertools

import numpy as np
import pytest

from scripts.support.engine_streams import FIRST, INTERRUPTED, LAST, RUNNING, TERMINATED, EngineHarness, Stream, refused
from scripts.support.messages import RequestFailed
from worldloom.render.cpu import CPURenderer
from worldloom.worlds.registry import Registry

CALLERS = ("unjoined", "elsewhere", "joined", "joined and not begun", "joined and terminated")
NOT_RUNNING = ("not begun", "terminated")
PEERS = (
    *("idle", "has stepped", *NOT_RUNNING, "steps later"),
    *("leaves", "vanishes", "resets alone", "calls too", "sees the world destroyed"),
)
SEEN = ("count", "reward", "discount", "step_type")


@pytest.fixture(scope="module")
def harness(cpu: CPURenderer, fresh_registry: Registry) -> EngineHarness:
    fresh_registry.add("tests.support.toy:Toy")
    return EngineHarness(cpu)


class Scene:
    """A caller and two others, each in the place its word says. `answered` is what the caller was told, if anything."""

    def __init__(self, harness: EngineHarness, caller: str, peers: tuple[str, str]) -> None:
        self.harness = harness
        self.outsider = harness.stream()
        self.world = self.outsider.create("toy", agents=4, longest=1)
        self.elsewhere = self.outsider.create("toy", longest=1)
        self.caller = harness.stream()
        self.peers = [harness.stream() for _ in peers]
        self.words = dict(zip(self.peers, peers, strict=True))
        self.inside: list[Stream] = []
        self._begin(caller)
        self.count = self._count()

    def _begin(self, caller: str) -> None:
        """Those whose sequence shall be over go first; whoever joins them at their last step is still running."""
        if caller == "elsewhere":
            self.caller.join(self.elsewhere)
            self.caller.step()
        word_of = dict(self.words)
        if caller.startswith("joined"):
            word_of[self.caller] = caller.removeprefix("joined and ")
        over = [stream for stream, word in word_of.items() if word == "terminated"]
        later = [stream for stream, word in word_of.items() if word == "not begun"]
        runs = [stream for stream in word_of if stream not in over and stream not in later]
        self._join(over)
        self.harness.step_all(*over)
        self._join(runs)
        told = self.harness.step_all(*over, *runs)
        assert [one.state for one in told] == [TERMINATED] * len(over) + [RUNNING] * len(runs)
        self._join(later)

    def _join(self, streams: list[Stream]) -> None:
        for stream in streams:
            stream.join(self.world)
        self.inside += streams

    def _count(self) -> int:
        """The steps of the episode, for whoever sees it one last time."""
        world = self.harness.engine.directory.worlds[self.world]
        return int(np.asarray(world.pool.state.count[world.lanes])[0])

    def post_steps(self, streams: list[Stream]) -> None:
        """Some step before the reset is called for: in an earlier tick, unless the world would then go on."""
        for stream in streams:
            stream.post_step(*SEEN)
        if len(streams) < len(self.inside):
            assert all(stream.waits for stream in streams)

    def act(self, peer: Stream) -> bool:
        """What this one does while the reset waits; whether the world is gone by that."""
        word = self.words[peer]
        if word == "steps later":
            peer.post_step(*SEEN)
            self.harness.settle()
            self.check_cut(peer)
        elif word == "leaves":
            peer.leave()
            self.inside.remove(peer)
        elif word == "vanishes":
            peer.close()
            self.inside.remove(peer)
        elif word == "resets alone":
            peer.reset()
        elif word == "calls too":
            peer.post_reset_world(self.world)
            self.harness.settle()
        elif word == "sees the world destroyed":
            self.outsider.destroy(self.world)
            return True
        return False

    def check_cut(self, peer: Stream) -> None:
        """The world as it was, one last time."""
        told = peer.step_reply()
        assert told.state == INTERRUPTED
        assert int(told.observations["count"]) == self.count
        assert (float(told.observations["reward"]), float(told.observations["discount"])) == (0, 1)
        assert int(told.observations["step_type"]) == LAST


def check(harness: EngineHarness, caller: str, peers: tuple[str, str]) -> None:
    scene = Scene(harness, caller, peers)
    blocks = [peer for peer in scene.peers if scene.words[peer] not in (*NOT_RUNNING, "has stepped")]
    stepped = [peer for peer in scene.peers if scene.words[peer] == "has stepped"]
    scene.post_steps(stepped)
    scene.caller.post_reset_world(scene.world)
    harness.settle()
    for peer in stepped:
        scene.check_cut(peer)
    waiting_too: list[Stream] = []
    for peer in list(blocks):
        assert bool(scene.caller.replies) == (not blocks)
        if scene.words[peer] == "idle":
            continue
        if scene.act(peer):
            check_gone(scene, [scene.caller, *waiting_too])
            return
        if scene.words[peer] == "calls too":
            waiting_too.append(peer)
        blocks.remove(peer)
        for one in waiting_too:
            assert bool(one.replies) == (not blocks)
    if blocks:
        assert all(scene.words[peer] == "idle" for peer in blocks)
        assert scene.caller.waits
        for peer in blocks:
            peer.post_step(*SEEN)
        harness.settle()
        for peer in blocks:
            scene.check_cut(peer)
    for one in (scene.caller, *waiting_too):
        one.take("reset_world")
    check_begins_anew(scene)


def check_begins_anew(scene: Scene) -> None:
    """Everyone in the world begins the next sequence, and nobody hears of the last one again."""
    for told in scene.harness.step_all(*scene.inside, see=SEEN):
        assert told.state == RUNNING
        assert int(told.observations["count"]) == 0
        assert int(told.observations["step_type"]) == FIRST
    for told in scene.harness.step_all(*scene.inside):
        assert told.state == TERMINATED


def check_gone(scene: Scene, waiting: list[Stream]) -> None:
    """Whoever waited has been told that the world is gone; so is whoever asks."""
    for one in waiting:
        with refused("NOT_FOUND", "gone"):
            one.take("reset_world")
    for stream in scene.inside:
        with refused("NOT_FOUND", "gone"):
            stream.step()


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("first", PEERS)
def test_every_combination(harness: EngineHarness, caller: str, first: str) -> None:
    for second in PEERS:
        try:
            check(harness, caller, (first, second))
        except (AssertionError, RequestFailed) as error:
            raise AssertionError(f"caller {caller}; the others: {first}, {second}") from error


@pytest.mark.parametrize("words", list(itertools.combinations_with_replacement(PEERS[:5], 2)))
def test_the_request_and_all_steps_may_come_in_one_tick(harness: EngineHarness, words: tuple[str, str]) -> None:
    """Whoever runs is cut, before or after the call; whoever does not begins at once, if all have stepped."""
    for caller_first in (True, False):
        scene = Scene(harness, "unjoined", words)
        if caller_first:
            scene.caller.post_reset_world(scene.world)
        for peer in scene.peers:
            peer.post_step(*SEEN)
        if not caller_first:
            scene.caller.post_reset_world(scene.world)
        harness.settle()
        scene.caller.take("reset_world")
        running = [peer for peer in scene.peers if scene.words[peer] not in NOT_RUNNING]
        for peer in running:
            scene.check_cut(peer)
            peer.post_step(*SEEN)
        harness.settle()
        for peer in scene.peers:
            told = peer.step_reply()
            assert (told.state, int(told.observations["count"]), int(told.observations["step_type"])) == (
                RUNNING,
                0,
                FIRST,
            )
