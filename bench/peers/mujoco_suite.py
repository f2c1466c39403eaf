"""MuJoCo's own renderer on a task of the dm_control suite, by way of EGL.

`default` is what one gets without asking: shadows, reflections, four samples a pixel. `plain` leaves out what ours does
not draw either and makes shapes coarse. Only physics and pictures are counted: dm_control's rewards and observations
would take as long again.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from .pace import Player, options, run

_LEFT_OUT = ("mjRND_SHADOW", "mjRND_REFLECTION")


def make(chosen: argparse.Namespace) -> Player:
    """A state for each environment, one after the other through one renderer."""
    os.environ["MUJOCO_GL"] = "egl"
    plain = chosen.quality == "plain"
    if plain:
        os.environ["LP_NUM_THREADS"] = "0"  # a process has one core, and threads would only get in each other's way
    import mujoco
    import numpy as np
    from dm_control import suite

    env = suite.load(chosen.domain, chosen.task, task_kwargs={"random": 0})
    model, steps_each = env.physics.model.ptr, round(env.control_timestep() / env.physics.timestep())
    if plain:
        quality = model.vis.quality
        quality.shadowsize, quality.offsamples, quality.numslices, quality.numstacks = 0, 0, 10, 6
    renderer = mujoco.Renderer(model, chosen.height, chosen.width)
    if plain:
        for flag in _LEFT_OUT:
            renderer.scene.flags[getattr(mujoco.mjtRndFlag, flag)] = 0
    states = []
    for _ in range(chosen.envs):
        env.reset()
        state = mujoco.MjData(model)
        state.qpos[:], state.qvel[:] = env.physics.data.qpos, env.physics.data.qvel
        states.append(state)
    spec = env.action_spec()
    actions = np.random.default_rng(0).uniform(spec.minimum, spec.maximum, (1024, *spec.shape))
    frame = np.empty((chosen.height, chosen.width, 3), np.uint8)
    steps = 0

    def step() -> int:
        nonlocal steps
        state = states[steps % len(states)]
        state.ctrl[:] = actions[steps % len(actions)]
        mujoco.mj_step(model, state, steps_each)
        renderer.update_scene(state, 0)
        renderer.render(out=frame)
        steps += 1
        return 1

    return Player(step, {"mujoco": mujoco.__version__})


def main(words: Sequence[str]) -> int:
    """Run as the words say."""
    parser = options("A task of the dm_control suite by MuJoCo.", 64, 64)
    parser.add_argument("--domain", required=True, help="such as walker")
    parser.add_argument("--task", required=True, help="such as walk")
    parser.add_argument("--quality", choices=("default", "plain"), default="default", help="of the pictures")
    return run(parser, make, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
