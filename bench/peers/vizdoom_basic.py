"""ViZDoom's basic scenario: Doom's engine, each game in a process that this one talks to."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .program import Stepper, options, run

_SIZES = {(160, 120): "RES_160X120", (320, 240): "RES_320X240"}
_ACTIONS = ([1, 0, 0], [0, 1, 0], [0, 0, 1])


def make_envs(args: argparse.Namespace) -> Stepper:
    """Make games that step one after the other, restarted when their episode ends."""
    import vizdoom

    size = _SIZES.get((args.width, args.height))
    if size is None:
        known = ", ".join(f"{width} × {height}" for width, height in _SIZES)
        sys.exit(f"{args.width} × {args.height} pixels: expected one of {known}")
    games = []
    for seed in range(args.envs):
        game = vizdoom.DoomGame()
        game.load_config(str(Path(vizdoom.scenarios_path) / "basic.cfg"))
        game.set_window_visible(False)
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_screen_resolution(getattr(vizdoom.ScreenResolution, size))
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        game.set_seed(seed)
        game.init()
        games.append(game)
    steps = 0

    def step() -> int:
        nonlocal steps
        game = games[steps % len(games)]
        game.make_action(_ACTIONS[steps % len(_ACTIONS)])
        if game.is_episode_finished():
            game.new_episode()
        _frame = game.get_state().screen_buffer
        steps += 1
        return 1

    return Stepper(step, {"vizdoom": vizdoom.__version__})


def main(arguments: Sequence[str]) -> int:
    """Run with these arguments."""
    return run(options("ViZDoom, basic.", 160, 120), make_envs, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
