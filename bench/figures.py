"""Figures that pages quote, taken from the last runs: `make figures`.

    python -m worldloom.bench.figures [--bench out/bench.json] [--ablation out/ablation.json] [--peers out/peers]

README.md and docs/mujoco.md hold them between marks. All runs must be there: figures of different versions or machines
do not belong in one table.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from worldloom.bench.measuring import table, write_page
from worldloom.bench.players import SAME_MACHINE

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = ("catch", "cartpole", "maze")
TASKS = ("cartpole swingup", "walker walk", "humanoid walk")
_TIER_ROWS = (
    ("in process", "local", (1, 16, 256, 1024), "simulation, drawing, frames as arrays"),
    ("same machine", SAME_MACHINE, (1, 16, 256, 1024), "the same in another process; frames in shared memory"),
    ("TCP", "tcp", (1024,), "the same with every pixel in a dm_env_rpc reply"),
)
"""Rows of the table: name, tier in the benchmarks, numbers of lanes, and contents of the number."""


class FiguresError(Exception):
    """Figures that are missing; the text says which run has them."""


def round_figure(value: float) -> str:
    """Return a rate with three significant digits: 158129 is "158,000"."""
    return f"{float(f'{value:.3g}'):,.0f}"


def read_json(path: Path, command: str) -> dict[str, Any]:
    """Read a file that a command writes."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FiguresError(f"{path} cannot be read ({error}): `{command}` writes it") from None
    return found


def read_bench(path: Path) -> dict[str, float]:
    """Return all figures of a run of `make bench`, by name."""
    rows = read_json(path, "make bench")["rows"]
    return {name: value for row in rows for name, value in row["figures"].items()}


def read_peers(folder: Path) -> dict[str, dict[str, float]]:
    """Return the frames a second of a run of `make bench-peers`: by comparison, then by implementation."""
    return {
        name: {
            side["name"]: median(side["frames_per_s"])
            for side in read_json(folder / f"{name}.json", "make bench-peers")["sides"]
        }
        for name in ("bigfish", "miniworld", "vizdoom", "vizdoom-few")
    }


def read_naive(path: Path) -> dict[str, float]:
    """Return the frames a second of the naive server in a run of `make ablation`, by family."""
    rates = read_json(path, "make ablation")["frames_per_s"]
    return {family: median(rates[family]["naive, gl"]) for family in FAMILIES}


def families_table(bench: Mapping[str, float], naive: Mapping[str, float]) -> list[str]:
    """Return the table of families and transports."""
    rows = [
        [
            f"{name}, {lanes} lane{'s' if lanes > 1 else ''}",
            *(round_figure(bench[f"{family}, {lanes} lanes, {tier}"]) for family in FAMILIES),
            includes,
        ]
        for name, tier, counts, includes in _TIER_ROWS
        for lanes in counts
    ]
    streams = [round_figure(bench[f"{family}, 64 streams"]) for family in FAMILIES]
    rows.append(["64 single streams over TCP", *streams, "a reply per frame; any dm_env_rpc client"])
    rows.append(
        [
            "a naive dm_env_rpc server, 64 streams",
            *(round_figure(naive[family]) for family in FAMILIES),
            "a thread per stream, one view at a time with OpenGL, protobuf objects",
        ]
    )
    return table(["", *FAMILIES, "the number includes"], rows)


def peers_table(peers: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the table of other environments."""
    fish, rooms, games, few = (peers[name] for name in ("bigfish", "miniworld", "vizdoom", "vizdoom-few"))
    two = round_figure(games["ViZDoom, basic, a game a core"])
    rows = [
        [
            "catch and EnvPool's Procgen Bigfish, 64 × 64",
            round_figure(fish["worldloom, catch"]),
            f"easy {round_figure(fish['EnvPool, Bigfish, easy'])}, hard {round_figure(fish['EnvPool, Bigfish, hard'])}",
        ],
        [
            "maze and MiniWorld-Maze, 80 × 60",
            round_figure(rooms["worldloom, maze"]),
            f"{round_figure(rooms['MiniWorld-Maze'])}, "
            f"in two processes {round_figure(rooms['MiniWorld-Maze, two processes'])}",
        ],
        [
            "maze and ViZDoom basic, 160 × 120",
            round_figure(games["worldloom, maze"]),
            f"{round_figure(games['ViZDoom, basic'])}; with two games alone {two}",
        ],
        ["the same with two of each", round_figure(few["worldloom, maze"]), two],
    ]
    return table(
        ["other environments, which show other scenes; in process, 64 of each", "worldloom", "the other"], rows
    )


def mujoco_table(bench: Mapping[str, float]) -> list[str]:
    """Return the table of dm_control's tasks."""
    kinds = ("few", "local", SAME_MACHINE, "default", "plain")
    heads = ["", "64 lanes", "1024 lanes", "same machine, 1024 lanes", "mujoco.Renderer", "plain"]
    return table(heads, [[task, *(round_figure(bench[f"{task}, {kind}"]) for kind in kinds)] for task in TASKS])


def readme_mujoco_table(bench: Mapping[str, float]) -> list[str]:
    """Return the shorter table of dm_control's tasks."""
    heads = [
        "dm_control's tasks, physics included, 64 × 64",
        "worldloom, 64 lanes",
        "1024 lanes",
        "mujoco.Renderer",
        "the same at its fastest settings, in two processes",
    ]
    kinds = ("few", "local", "default", "plain")
    return table(heads, [[task, *(round_figure(bench[f"{task}, {kind}"]) for kind in kinds)] for task in TASKS])


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m worldloom.bench.figures", description="Figures that pages quote.")
    made.add_argument("--bench", type=Path, default=ROOT / "out/bench.json", help="of `make bench` (%(default)s)")
    made.add_argument(
        "--ablation", type=Path, default=ROOT / "out/ablation.json", help="of `make ablation` (%(default)s)"
    )
    made.add_argument("--peers", type=Path, default=ROOT / "out/peers", help="of `make bench-peers` (%(default)s)")
    made.add_argument("--root", type=Path, default=ROOT, help="folder of README.md and docs (%(default)s)")
    return made


def main(arguments: list[str]) -> int:
    """Write the figures into the pages; nothing is written if one is missing."""
    chosen = parser().parse_args(arguments)
    try:
        bench = read_bench(chosen.bench)
        readme = [
            "",
            *families_table(bench, read_naive(chosen.ablation)),
            "",
            *peers_table(read_peers(chosen.peers)),
            "",
            *readme_mujoco_table(bench),
            "",
        ]
        mujoco = ["", *mujoco_table(bench), ""]
    except FiguresError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyError as error:
        print(f"the figure {error} is missing in the runs: a whole run of each command has it", file=sys.stderr)
        return 2
    write_page(chosen.root / "README.md", readme)
    write_page(chosen.root / "docs" / "mujoco.md", mujoco)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
