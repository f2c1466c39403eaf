"""MuJoCo's own renderer on a task of the dm_control suite, by EGL.

`default` has MuJoCo's defaults: shadows, reflections, four samples a pixel. `plain` leaves out what worldloom does not
draw either and makes shapes coarse. Only physics and frames are measured: dm_control's rewards and observations would
take as long again.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from .program import Stepper, options, run

_LEFT_OUT = ("mjRND_SHADOW", "mjRND_REFLECTION")


def make_envs(args: argparse.Namespace) -> Stepper:
    """Make a state for each environment, drawn one after the other by one renderer."""
    os.environ["MUJOCO_GL"] = "egl"
    plain = args.quality == "plain"
    if plain:
        os.environ["LP_NUM_THREADS"] = "0"  # a process has one core, and threads would only get in each other's way
    import mujoco
    import numpy as np
    from dm_control import suite

    env = suite.load(args.domain, args.task, task_kwargs={"random": 0})
    model, steps_each = env.physics.model.ptr, round(env.control_timestep() / env.physics.timestep())
    if plain:
        quality = model.vis.quality
        quality.shadowsize, quality.offsamples, quality.numslices, quality.numstacks = 0, 0, 10, 6
    renderer = mujoco.Renderer(model, args.height, args.width)
    if plain:
        for flag in _LEFT_OUT:
            renderer.scene.flags[getattr(mujoco.mjtRndFlag, flag)] = 0
    states = []
    for _ in range(args.envs):
        env.reset()
        state = mujoco.MjData(model)
        state.qpos[:], state.qvel[:] = env.physics.data.qpos, env.physics.data.qvel
        states.append(state)
    if args.states:
        return _draw_states(mujoco, model, renderer, np.load(args.states), args)
    spec = env.action_spec()
    actions = np.random.default_rng(0).uniform(spec.minimum, spec.maximum, (1024, *spec.shape))
    frame = np.empty((args.height, args.width, 3), np.uint8)
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

    return Stepper(step, {"mujoco": mujoco.__version__})


def _draw_states(mujoco: Any, model: Any, renderer: Any, states: Any, args: argparse.Namespace) -> Stepper:
    """Draw given states one after the other, with kinematics alone."""
    data = mujoco.MjData(model)
    frame = renderer.render()
    drawn = 0

    def draw() -> int:
        nonlocal drawn
        data.qpos[:] = states[drawn % len(states)]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        mujoco.mj_tendon(model, data)
        renderer.update_scene(data, 0)
        renderer.render(out=frame)
        drawn += 1
        return 1

    return Stepper(draw, {"mujoco": mujoco.__version__})


def main(arguments: Sequence[str]) -> int:
    """Run with these arguments."""
    parser = options("A task of the dm_control suite by MuJoCo.", 64, 64)
    parser.add_argument("--domain", required=True, help="such as walker")
    parser.add_argument("--task", required=True, help="such as walk")
    parser.add_argument("--quality", choices=("default", "plain"), default="default", help="quality of the frames")
    parser.add_argument("--states", help="an .npy file of joint positions, which are drawn and not simulated")
    return run(parser, make_envs, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
