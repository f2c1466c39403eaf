"""A MuJoCo task of Gymnasium from pixels, by Gymnasium's AsyncVectorEnv or by EnvPool, each with its own renderer.

Both draw through EGL, as MuJoCo does by default: with shadows, reflections and multisampling. With Gymnasium, `plain`
leaves out what worldloom does not draw either and makes shapes coarse.
"""

import argparse
import ctypes
import os
import sys
from collections.abc import Sequence
from typing import Any

from .program import Stepper, options, run

_DIFFERENT_ACTIONS = 32
_LEFT_OUT = ("mjRND_SHADOW", "mjRND_REFLECTION")


def make_envs(args: argparse.Namespace) -> Stepper:
    """Make environments that step together, with random actions sampled beforehand."""
    os.environ["MUJOCO_GL"] = "egl"
    env, about = _make_envpool(args) if args.library == "envpool" else _make_async(args)
    env.action_space.seed(0)
    actions = [_sample(env.action_space, args.envs) for _ in range(_DIFFERENT_ACTIONS)]
    env.reset()
    steps = 0

    def step() -> int:
        nonlocal steps
        frames = env.step(actions[steps % _DIFFERENT_ACTIONS])[0]
        steps += 1
        return len(frames)

    return Stepper(step, about)


def _sample(space: Any, envs: int) -> Any:
    """Return an action for each environment; EnvPool's space is that of a single one."""
    import numpy as np

    sample = space.sample()
    return sample if len(sample) == envs and sample.ndim == 2 else np.stack([space.sample() for _ in range(envs)])


def _make_async(args: argparse.Namespace) -> tuple[Any, dict[str, str]]:
    """Make an environment in a process for each, whose observations are its frames, in shared memory."""
    os.environ["LP_NUM_THREADS"] = "0"  # there is a process for each core, and threads would get in their way
    import gymnasium
    from gymnasium.wrappers import AddRenderObservation

    env = gymnasium.make_vec(
        args.task,
        args.envs,
        vectorization_mode="async",
        wrappers=[*([_draw_plainly] if args.quality == "plain" else []), AddRenderObservation],
        render_mode="rgb_array",
        width=args.width,
        height=args.height,
    )
    return env, {"gymnasium": gymnasium.__version__}


def _draw_plainly(env: Any) -> Any:
    """Have an environment draw without shadows, reflections and multisampling, and with coarse shapes."""
    import mujoco

    unwrapped = env.unwrapped
    quality = unwrapped.model.vis.quality
    quality.shadowsize, quality.offsamples, quality.numslices, quality.numstacks = 0, 0, 10, 6
    mujoco.mj_forward(unwrapped.model, unwrapped.data)  # what the camera looks at is decided with the first frame
    unwrapped.render()
    for flag in _LEFT_OUT:
        unwrapped.mujoco_renderer.viewer.scn.flags[getattr(mujoco.mjtRndFlag, flag)] = 0
    return env


def _make_envpool(args: argparse.Namespace) -> tuple[Any, dict[str, str]]:
    """Make environments of EnvPool, with a thread for each core."""
    for name in ("libEGL.so.1", "libOpenGL.so.0"):
        ctypes.CDLL(name, ctypes.RTLD_GLOBAL)  # MuJoCo looks for them among the libraries that are loaded
    import envpool

    env = envpool.make_gymnasium(
        args.task,
        num_envs=args.envs,
        num_threads=len(os.sched_getaffinity(0)),
        seed=0,
        from_pixels=True,
        render_width=args.width,
        render_height=args.height,
    )
    return env, {"envpool": envpool.__version__}


def main(arguments: Sequence[str]) -> int:
    """Run with these arguments."""
    parser = options("A MuJoCo task of Gymnasium from pixels.", 64, 64)
    parser.add_argument("--task", required=True, help="id of the environment")
    parser.add_argument("--library", choices=("gymnasium", "envpool"), required=True, help="whose environments")
    parser.add_argument("--quality", choices=("default", "plain"), default="default", help="of frames (%(default)s)")
    return run(parser, make_envs, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
