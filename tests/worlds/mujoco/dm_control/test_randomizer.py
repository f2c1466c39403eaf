"""Random joint positions: the same bits as dm_control's own function, which draws one joint after the other."""

from typing import Any

import mujoco
import numpy as np
import pytest

from worldloom.worlds.mujoco.dm_control.suite import TASKS, JointRandomizer, randomizers, suite


@pytest.mark.parametrize("domain", TASKS)
def test_positions_and_the_random_generator_are_as_with_dm_control(domain: str) -> None:
    physics = suite.load(domain, TASKS[domain][0]).physics
    ours = JointRandomizer(physics.model.ptr)
    assert ours.is_applicable
    for seed in range(3):
        results = []
        for randomize in (randomizers.randomize_limited_and_rotational_joints, ours.randomize):
            random = np.random.RandomState(seed)
            physics.data.qpos[:] = 0.25
            randomize(physics, random)
            results.append((physics.data.qpos.tobytes(), random.random_sample()))
        assert results[0] == results[1]


def joints(*bodies: str) -> mujoco.MjModel:
    inner = "".join(f'<body pos="0 0 {k}">{body}<geom size=".1"/></body>' for k, body in enumerate(bodies))
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{inner}</worldbody></mujoco>")


@pytest.mark.parametrize(
    ("bodies", "is_applicable"),
    [
        (["<freejoint/>", "<freejoint/>", '<joint type="hinge" range="-10 10" limited="true"/>'], True),
        (['<joint type="slide"/>', "<freejoint/>", '<joint type="hinge"/>'], True),
        (['<joint type="hinge"/>', "<freejoint/>"], False),
        (['<joint type="ball"/>'], False),
    ],
)
def test_it_is_used_only_where_it_applies(bodies: list[str], is_applicable: bool) -> None:
    ours = JointRandomizer(joints(*bodies))
    assert ours.is_applicable == is_applicable
    theirs: Any = randomizers.randomize_limited_and_rotational_joints
    with ours.in_use():
        assert (randomizers.randomize_limited_and_rotational_joints != theirs) == is_applicable
    assert randomizers.randomize_limited_and_rotational_joints is theirs
