"""MuJoCo's own renderer on a cart with a pole, by EGL, with everything off that worldloom does not draw either.

At its defaults it draws shadows, reflections and four samples a pixel, and takes many times as long.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from .program import Stepper, options, run

_MODEL = """
<mujoco>
  <option timestep="0.01"/>
  <visual>
    <quality shadowsize="0" offsamples="0" numslices="8" numstacks="4"/>
    <global offwidth="{width}" offheight="{height}"/>
  </visual>
  <worldbody>
    <light pos="0 -3 5" dir="0 0.5 -1" castshadow="false"/>
    <camera name="eye" pos="0 -4 1" xyaxes="1 0 0 0 0.1 1"/>
    <geom type="plane" size="4 4 0.1" rgba="0.3 0.4 0.5 1"/>
    <geom type="capsule" fromto="-2 0 1 2 0 1" size="0.02" rgba="0.6 0.6 0.6 1" contype="0" conaffinity="0"/>
    <body pos="0 0 1">
      <joint name="slider" type="slide" axis="1 0 0" limited="true" range="-1.8 1.8" damping="0.001"/>
      <geom type="box" size="0.2 0.15 0.1" mass="1" rgba="0.8 0.5 0.2 1" contype="0" conaffinity="0"/>
      <body>
        <joint type="hinge" axis="0 1 0" damping="0.001"/>
        <geom type="capsule" fromto="0 0 0 0 0 1" size="0.045" mass="0.1" rgba="0.3 0.6 0.9 1" contype="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slider" gear="10" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>
"""
_PLAIN = ("mjRND_SHADOW", "mjRND_REFLECTION", "mjRND_SKYBOX", "mjRND_FOG", "mjRND_HAZE")


def make_envs(args: argparse.Namespace) -> Stepper:
    """Make a state for each environment, drawn one after the other by one renderer."""
    os.environ["MUJOCO_GL"] = "egl"
    import mujoco
    import numpy as np

    model = mujoco.MjModel.from_xml_string(_MODEL.format(width=args.width, height=args.height))
    renderer = mujoco.Renderer(model, args.height, args.width)
    for flag in _PLAIN:
        renderer.scene.flags[getattr(mujoco.mjtRndFlag, flag)] = 0
    states = [mujoco.MjData(model) for _ in range(args.envs)]
    forces = np.random.default_rng(0).uniform(-1, 1, 1024)
    frame = np.empty((args.height, args.width, 3), np.uint8)
    steps = 0

    def step() -> int:
        nonlocal steps
        state = states[steps % len(states)]
        state.ctrl[0] = forces[steps % len(forces)]
        mujoco.mj_step(model, state)
        renderer.update_scene(state, "eye")
        renderer.render(out=frame)
        steps += 1
        return 1

    return Stepper(step, {"mujoco": mujoco.__version__})


def main(arguments: Sequence[str]) -> int:
    """Run with these arguments."""
    return run(options("A cart with a pole by MuJoCo.", 64, 64), make_envs, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
