"""Any number of streams, worlds and requests, right and wrong, in any order: each is answered as the model says."""

from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from scripts import chaos
from scripts.support.protocol_driver import NONSENSE, ProtocolDriver
from scripts.support.protocol_model import KINDS, Kind
from worldloom.render.cpu import CPURenderer

number = st.integers(0, 19)
mostly = st.sampled_from([True] * 9 + [False])
seldom = st.sampled_from([False] * 5 + [True])
now = st.sampled_from([True, True, False])


class Streams(RuleBasedStateMachine):
    """Moves of the driver, in any order."""

    cpu: ClassVar[CPURenderer]

    def __init__(self) -> None:
        super().__init__()
        self.driver = ProtocolDriver(self.cpu)

    @initialize(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), places=st.lists(number, max_size=5))
    def begin(self, kinds: list[Kind], places: list[int]) -> None:
        self.driver.begin(kinds, places)

    @rule()
    def open(self) -> None:
        self.driver.open()

    @rule(who=number, kind=st.sampled_from(KINDS), is_right=mostly, at_once=now)
    def create(self, **given: Any) -> None:
        self.driver.create(**given)

    @rule(who=number, which=number, slot=st.none() | st.integers(0, 3), is_right=mostly, at_once=now)
    def join(self, **given: Any) -> None:
        self.driver.join(**given)

    @rule(who=number, wants_right=mostly, acts_right=mostly, is_seen=st.booleans(), at_once=now)
    def step(self, **given: Any) -> None:
        self.driver.step(**given)

    @rule(which=number, is_seen=st.booleans(), at_once=now)
    def step_everyone_in_a_world(self, **given: Any) -> None:
        self.driver.step_everyone_in_a_world(**given)

    @rule(is_seen=st.booleans())
    def step_everyone(self, is_seen: bool) -> None:
        self.driver.step_everyone(is_seen)

    @rule(who=number)
    def step_all_but_one(self, who: int) -> None:
        self.driver.step_all_but_one(who)

    @rule(who=number, width=st.none() | st.integers(0, 5), at_once=now)
    def reset(self, **given: Any) -> None:
        self.driver.reset(**given)

    @rule(
        who=number,
        which=number,
        max_steps=st.none() | st.integers(1, 4),
        seed=st.none() | st.integers(0, 5),
        is_right=mostly,
        changes_specs=seldom,
        at_once=now,
    )
    def reset_world(self, **given: Any) -> None:
        self.driver.reset_world(**given)

    @rule(who=number, happens=seldom, at_once=now)
    def leave(self, **given: Any) -> None:
        self.driver.leave(**given)

    @rule(who=number, which=number, happens=seldom, at_once=now)
    def destroy(self, **given: Any) -> None:
        self.driver.destroy(**given)

    @rule(who=number, at_once=now)
    def read(self, **given: Any) -> None:
        self.driver.read(**given)

    @rule(who=number, what=st.sampled_from(NONSENSE), at_once=now)
    def nonsense(self, **given: Any) -> None:
        self.driver.nonsense(**given)

    @rule(who=number, happens=seldom, at_once=now)
    def close(self, **given: Any) -> None:
        self.driver.close(**given)

    @rule()
    def tick(self) -> None:
        self.driver.tick()

    @invariant()
    def nobody_is_lost(self) -> None:
        self.driver.nobody_is_lost()

    def teardown(self) -> None:
        self.driver.teardown()


def test_streams_are_answered_as_the_model_says(cpu: CPURenderer) -> None:
    Streams.cpu = cpu
    run_state_machine_as_test(Streams, settings=settings(max_examples=60, stateful_step_count=60))


def test_a_short_chaos(capsys: Any) -> None:
    assert chaos.main(["--steps", "3000"]) == 0
    told = capsys.readouterr().out
    assert "every one as the model says" in told
    assert "waits that cross" in told
