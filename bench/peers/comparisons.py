"""Comparisons of worldloom with peers: what is measured beside what, and the tables of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from worldloom.bench.measuring import ratio, table

WORLDLOOM = "worldloom_env"
"""Program of worldloom."""


@dataclass(frozen=True)
class Implementation:
    """Environments of one kind."""

    name: str
    includes: str
    program: str
    """Module of this folder."""
    arguments: tuple[str, ...] = ()
    """Arguments beside the number and size of its environments."""
    processes: int = 1
    """Processes that share the environments; each is pinned to a core if there are several."""
    envs: int | None = None
    """Number of environments; None for that of the comparison."""
    at_least: float | None = None
    """Target for worldloom's frames a second, as a multiple of this one's."""


@dataclass(frozen=True)
class Comparison:
    """Worldloom and others, with frames of the same size."""

    name: str
    title: str
    width: int
    height: int
    ours: Implementation
    others: tuple[Implementation, ...]
    envs: int | None = None
    """Number of environments; None for that of the command line."""

    @property
    def implementations(self) -> tuple[Implementation, ...]:
        """Worldloom first, then the others."""
        return (self.ours, *self.others)

    def envs_of(self, one: Implementation, envs: int) -> int:
        """Return the number of environments of an implementation."""
        return one.envs or self.envs or envs

    def key(self, one: Implementation, envs: int) -> str:
        """Return a key that is unique over all comparisons; equal runs share it."""
        return f"{one.name}, {self.width} × {self.height}, {self.envs_of(one, envs)}"

    def commands(self, one: Implementation, envs: int) -> list[list[str]]:
        """Return the arguments of each process of an implementation."""
        count = self.envs_of(one, envs)
        size = ["--width", str(self.width), "--height", str(self.height), *one.arguments]
        if one.processes == 1:
            return [["--envs", str(count), *size]]
        shares = [count // one.processes + (number < count % one.processes) for number in range(one.processes)]
        return [["--envs", str(share), *size, "--core", str(core)] for core, share in enumerate(shares) if share]


def _ours(family: str) -> Implementation:
    return Implementation(
        f"worldloom, {family}",
        "simulation, drawing, arrays as a learner gets them; one process, a thread a core",
        WORLDLOOM,
        ("--family", family),
    )


_TWO_GAMES = Implementation(
    "ViZDoom, basic, a game a core",
    "Doom's engine, one room, frames copied into arrays; two processes with one game each, pinned",
    "vizdoom_basic",
    processes=2,
    envs=2,
)
COMPARISONS = (
    Comparison(
        "bigfish",
        "Two dimensions: catch beside Procgen's Bigfish",
        64,
        64,
        _ours("catch"),
        tuple(
            Implementation(
                f"EnvPool, Bigfish, {mode.lower()}",
                "simulation and 2D sprites in C++, frames as arrays; one process, a thread a core",
                "bigfish",
                ("--mode", mode),
                at_least=2,
            )
            for mode in ("Easy", "Hard")
        ),
    ),
    Comparison(
        "miniworld",
        "First person: maze beside MiniWorld-Maze",
        80,
        60,
        _ours("maze"),
        (
            Implementation(
                "MiniWorld-Maze",
                "simulation in Python, OpenGL with four samples a pixel, read back into arrays; one process",
                "miniworld_maze",
            ),
            Implementation(
                "MiniWorld-Maze, two processes",
                "the same in two processes, pinned to a core each",
                "miniworld_maze",
                processes=2,
            ),
        ),
    ),
    Comparison(
        "vizdoom",
        "First person: maze beside ViZDoom",
        160,
        120,
        _ours("maze"),
        (
            Implementation(
                "ViZDoom, basic",
                "the same in two processes that step their games one after the other",
                "vizdoom_basic",
                processes=2,
                at_least=1.5,
            ),
            replace(_TWO_GAMES, at_least=1.5),
        ),
    ),
    Comparison(
        "vizdoom-few",
        "The same with two environments, where there is next to nothing to batch",
        160,
        120,
        _ours("maze"),
        (replace(_TWO_GAMES, at_least=0.6),),
        envs=2,
    ),
    Comparison(
        "mujoco",
        "For reference: cartpole beside MuJoCo's renderer",
        64,
        64,
        _ours("cartpole"),
        (
            Implementation(
                "mujoco.Renderer, cartpole",
                "simulation, OpenGL without shadows, reflections and multisampling, coarse shapes, read back into "
                "arrays; two processes",
                "mujoco_cartpole",
                processes=2,
            ),
        ),
    ),
)


def report(comparisons: Sequence[Comparison], envs: int, middle: Mapping[str, float]) -> list[str]:
    """Return a Markdown table for each comparison."""
    lines: list[str] = []
    for comparison in comparisons:
        ours = middle[comparison.key(comparison.ours, envs)]
        rows = []
        for one in comparison.implementations:
            rate = middle[comparison.key(one, envs)]
            times = "" if one is comparison.ours else ratio(ours, rate)
            target = f"≥ {one.at_least:g} ×" if one.at_least is not None else ""
            if one.at_least is not None and ours < one.at_least * rate:
                target += " **missed**"
            rows.append([one.name, str(comparison.envs_of(one, envs)), f"{rate:,.0f}", times, target, one.includes])
        heads = [
            f"{comparison.width} × {comparison.height} rgb",
            "environments",
            "frames/s",
            "worldloom to it",
            "target",
            "what it includes",
        ]
        lines += [f"### {comparison.title}", "", *table(heads, rows), ""]
    return lines
