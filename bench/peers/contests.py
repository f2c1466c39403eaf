"""Who is measured beside whom, and the table of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from worldloom.bench.measuring import ratio, table

OURS = "ours"


@dataclass(frozen=True)
class Side:
    """Environments of one kind."""

    name: str
    includes: str
    program: str
    """A module of this folder."""
    words: tuple[str, ...] = ()
    """What it is told, beside the number and the size of its environments."""
    processes: int = 1
    """Environments are shared out among so many; each process has a core of its own if there are several."""
    envs: int | None = None
    """None: as many as the others of the contest."""


@dataclass(frozen=True)
class Contest:
    """Ours, and others at the same size."""

    name: str
    title: str
    width: int
    height: int
    ours: Side
    theirs: tuple[Side, ...]
    envs: int | None = None
    """None: as many as the command says."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """All of them."""
        return (self.ours, *self.theirs)

    def envs_of(self, side: Side, envs: int) -> int:
        """How many environments a side has."""
        return side.envs or self.envs or envs

    def key(self, side: Side, envs: int) -> str:
        """What tells a side from all others of all contests."""
        return f"{side.name}, {self.width} × {self.height}, {self.envs_of(side, envs)}"

    def commands(self, side: Side, envs: int) -> list[list[str]]:
        """What each process of a side is told."""
        count = self.envs_of(side, envs)
        size = ["--width", str(self.width), "--height", str(self.height), *side.words]
        if side.processes == 1:
            return [["--envs", str(count), *size]]
        shares = [count // side.processes + (number < count % side.processes) for number in range(side.processes)]
        return [["--envs", str(share), *size, "--core", str(core)] for core, share in enumerate(shares) if share]


def _ours(family: str) -> Side:
    return Side(
        f"worldloom, {family}",
        "simulation, drawing, arrays as a learner gets them; one process, a thread a core",
        OURS,
        ("--family", family),
    )


_TWO_GAMES = Side(
    "ViZDoom, basic, a game a core",
    "Doom's engine, one room, frames copied into arrays; two processes with one game each, pinned",
    "vizdoom_basic",
    processes=2,
    envs=2,
)
CONTESTS = (
    Contest(
        "bigfish",
        "Two dimensions: catch beside Procgen's Bigfish",
        64,
        64,
        _ours("catch"),
        tuple(
            Side(
                f"EnvPool, Bigfish, {mode.lower()}",
                "simulation and 2D sprites in C++, frames as arrays; one process, a thread a core",
                "bigfish",
                ("--mode", mode),
            )
            for mode in ("Easy", "Hard")
        ),
    ),
    Contest(
        "miniworld",
        "First person: maze beside MiniWorld-Maze",
        80,
        60,
        _ours("maze"),
        (
            Side(
                "MiniWorld-Maze",
                "simulation in Python, OpenGL with four samples a pixel, read back into arrays; one process",
                "miniworld_maze",
            ),
            Side(
                "MiniWorld-Maze, two processes",
                "the same in two processes, pinned to a core each",
                "miniworld_maze",
                processes=2,
            ),
        ),
    ),
    Contest(
        "vizdoom",
        "First person: maze beside ViZDoom",
        160,
        120,
        _ours("maze"),
        (
            Side(
                "ViZDoom, basic",
                "the same in two processes that step their games one after the other",
                "vizdoom_basic",
                processes=2,
            ),
            _TWO_GAMES,
        ),
    ),
    Contest(
        "vizdoom-few",
        "The same with two environments, where there is next to nothing to batch",
        160,
        120,
        _ours("maze"),
        (_TWO_GAMES,),
        envs=2,
    ),
    Contest(
        "mujoco",
        "For reference: cartpole beside MuJoCo's renderer",
        64,
        64,
        _ours("cartpole"),
        (
            Side(
                "mujoco.Renderer, cartpole",
                "simulation, OpenGL without shadows, reflections and multisampling, coarse shapes, read back into "
                "arrays; two processes",
                "mujoco_cartpole",
                processes=2,
            ),
        ),
    ),
)


def report(contests: Sequence[Contest], envs: int, middle: Mapping[str, float]) -> list[str]:
    """A table for each contest."""
    lines: list[str] = []
    for contest in contests:
        ours = middle[contest.key(contest.ours, envs)]
        rows = []
        for side in contest.sides:
            rate = middle[contest.key(side, envs)]
            beside = "" if side is contest.ours else ratio(ours, rate)
            rows.append([side.name, str(contest.envs_of(side, envs)), f"{rate:,.0f}", beside, side.includes])
        heads = [
            f"{contest.width} × {contest.height} rgb",
            "environments",
            "frames/s",
            "worldloom to it",
            "what it includes",
        ]
        lines += [f"### {contest.title}", "", *table(heads, rows), ""]
    return lines
