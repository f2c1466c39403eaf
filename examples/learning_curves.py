"""Learning curves: train with several seeds one after the other, and draw what was learnt, a picture for each task.

    python examples/learning_curves.py                                # everything, an hour or so on two cores
    python examples/learning_curves.py catch sb3-catch --seeds 0 1 2

The curves of each run are written to --out, pictures, videos and a summary to --pictures. Pictures are drawn by
matplotlib: `pip install 'worldloom[report]'`.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

WIDTH, HEIGHT, DPI = 1000, 560, 100
"""Pixels of the image, and how many of them are an inch."""
LEFT, RIGHT, TOP, BOTTOM = 96, 60, 72, 84
"""Pixels around the axes, for texts."""
INK, FAINT, ORANGE = "#2d3241", "#e2e5ec", "#cc5c20"
COLORS = ("#2662be", "#2f9e6e", "#8a4fbf")
"""Colours of the curves; a fourth has the first again."""

Curve = Sequence[tuple[float, float]]
"""Steps so far and the mean return then, from first to last."""


def draw_learning_curves(
    path: str | Path,
    curves: Mapping[str, Curve],
    random_return: float | None,
    between: tuple[float, float],
    title: str,
) -> None:
    """Draw mean returns over the steps that were taken for them.

    Args:
        path: The image to write.
        curves: The curves by name.
        random_return: The mean return of a random agent, drawn as a dashed level if given.
        between: The returns at the bottom and at the top.
        title: What is drawn.
    """
    least, greatest = between
    digits = 2 if greatest <= 10 else 0
    figure = Figure((WIDTH / DPI, HEIGHT / DPI), dpi=DPI)
    axes = figure.add_axes(
        (LEFT / WIDTH, BOTTOM / HEIGHT, (WIDTH - LEFT - RIGHT) / WIDTH, (HEIGHT - TOP - BOTTOM) / HEIGHT)
    )
    if random_return is not None:
        label = f"random: {random_return:.{digits}f}"
        axes.axhline(random_return, color=ORANGE, linestyle="--", linewidth=2, label=label)
    for color, (name, curve) in zip(cycle(COLORS), curves.items(), strict=False):
        steps, returns = zip(*curve, strict=True)
        axes.plot(steps, returns, color=color, linewidth=2.5, label=f"{name}: {returns[-1]:.{digits}f}")
    axes.set_xlim(0, max(curve[-1][0] for curve in curves.values()))
    axes.set_ylim(least, greatest)
    axes.set_yticks([least + (greatest - least) * k / 4 for k in range(5)])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color=FAINT)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
    axes.set_xlabel("steps of all lanes together", color=INK)
    axes.set_title(title, loc="left", color=INK, fontsize=12, pad=30)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1), ncols=1 + len(curves), frameon=False)
    figure.savefig(path)


@dataclass(frozen=True)
class Run:
    """A learner on a task: its program, and what is expected of it."""

    program: tuple[str, ...]
    between: tuple[float, float]  # the returns at the bottom and at the top of the picture
    target: float | None = None  # the mean return to reach
    random_multiple: float | None = None  # or this many times that of random actions
    columns: tuple[str, str, str] = ("steps", "seconds", "mean_return")  # of the CSV file
    has_video: bool = False  # of the policy that the first seed has trained

    def read(self, path: Path) -> list[dict[str, float]]:
        """Return the learning curve in a CSV file, whose rows of the same step belong together."""
        merged: dict[str, dict[str, str]] = {}
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                merged.setdefault(row[self.columns[0]], {}).update({key: text for key, text in row.items() if text})
        rows = [row for row in merged.values() if self.columns[2] in row]
        names = ("steps", "seconds", "mean_return")
        curve = [{name: float(row[key]) for name, key in zip(names, self.columns, strict=True)} for row in rows]
        for point, row in zip(curve, rows, strict=True):
            if "random_return" in row:
                point["random_return"] = float(row["random_return"])
        return curve


RUNS = {
    "catch": Run(("ppo.py", "catch", "--minutes", "2"), (-1.0, 1.0), target=0.95),
    "dmc-cartpole-swingup": Run(
        ("ppo.py", "dmc-cartpole-swingup", "--minutes", "10"), (0.0, 1000.0), target=700.0, has_video=True
    ),
    "maze": Run(("ppo.py", "maze", "--minutes", "20"), (0.0, 8.0), random_multiple=3.0, has_video=True),
    "dmc-walker-walk": Run(("ppo.py", "dmc-walker-walk", "--minutes", "10"), (0.0, 1000.0)),
    "sb3-catch": Run(
        ("sb3_catch.py",),
        (-1.0, 1.0),
        target=0.9,
        columns=("time/total_timesteps", "time/time_elapsed", "eval/mean_reward"),
    ),
}


def train(name: str, run: Run, seed: int, folder: Path, video: Path | None) -> list[dict[str, float]]:
    """Run a learner in a process of its own, and return its learning curve."""
    program, *arguments = run.program
    if video is not None:
        arguments += ["--video", str(video)]
    command = [sys.executable, str(Path(__file__).parent / program), *arguments]
    log_path = folder / "log.txt"
    print(f"{name}, seed {seed}: {log_path}", flush=True)
    with log_path.open("w") as log:
        subprocess.run([*command, "--seed", str(seed), "--out", str(folder)], check=True, stdout=log)
    [path] = folder.glob("*.csv")
    return run.read(path)


def summarise(run: Run, seed: int, curve: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the end of a curve, and when it reached its target."""
    last = curve[-1]
    target = run.target
    if run.random_multiple is not None:
        target = run.random_multiple * last["random_return"]
    reached = next((point for point in curve if target is not None and point["mean_return"] >= target), None)
    return {
        "seed": seed,
        **last,
        "target": target,
        "steps_to_target": reached and reached["steps"],
        "seconds_to_target": reached and reached["seconds"],
    }


def main() -> None:
    """Train the chosen tasks with each seed; write their pictures and a summary."""
    parser = argparse.ArgumentParser(description="Train with several seeds, and draw the learning curves.")
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"any of {', '.join(RUNS)}; default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds; default: 0 1 2")
    parser.add_argument("--out", type=Path, default=Path("out/learning"), help="folder; default: out/learning")
    parser.add_argument(
        "--pictures", type=Path, help="folder of pictures, videos and learning_curves.json; default: --out"
    )
    args = parser.parse_args()
    if unknown := set(args.tasks) - set(RUNS):
        parser.error(f"unknown task {sorted(unknown)[0]!r}: expected any of {', '.join(RUNS)}")
    pictures = args.pictures or args.out
    pictures.mkdir(parents=True, exist_ok=True)
    summary_path = pictures / "learning_curves.json"
    summary = json.loads(summary_path.read_text()) if summary_path.exists() else {}
    for name in args.tasks or RUNS:
        run, curves = RUNS[name], {}
        for seed in args.seeds:
            folder = args.out / f"{name}-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            video = pictures / f"{name}.gif" if run.has_video and seed == args.seeds[0] else None
            curves[seed] = train(name, run, seed, folder, video)
        summary[name] = [summarise(run, seed, curve) for seed, curve in curves.items()]
        draw_learning_curves(
            pictures / f"{name}.png",
            {f"seed {seed}": [(point["steps"], point["mean_return"]) for point in c] for seed, c in curves.items()},
            curves[args.seeds[0]][-1].get("random_return"),
            run.between,
            f"{name}: mean return",
        )
        summary_path.write_text(json.dumps(summary, indent=2) + "\n")
        for row in summary[name]:
            print(f"{name}: {row}", flush=True)


if __name__ == "__main__":
    main()
