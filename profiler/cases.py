"""What is measured: a case for each choice of family, lanes, size, outputs, renderer and transport."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

TRANSPORTS = ("local", "shm", "unix", "tcp")
"""An engine in this process; a server in another by shared memory, by a socket of this machine, by TCP."""
MOST_CASES = 2000
MOST_STEP_BYTES = 1 << 30
"""Of all pictures of a step."""
_PIXEL_BYTES = {"rgb": 3, "gray": 1, "depth": 4, "segmentation": 1}


@dataclass(frozen=True)
class Case:
    """One configuration."""

    family: str
    lanes: int
    width: int
    height: int
    outputs: tuple[str, ...]
    renderer: str
    transport: str

    @property
    def pixels(self) -> int:
        """Of one lane's picture."""
        return self.width * self.height

    @property
    def size(self) -> str:
        """Of a picture, in words."""
        return f"{self.width}²" if self.width == self.height else f"{self.width}×{self.height}"

    @property
    def shown(self) -> str:
        """Its outputs, in words."""
        return "+".join(self.outputs)

    @property
    def step_bytes(self) -> int:
        """Of all pictures of a step."""
        return self.lanes * self.pixels * sum(_PIXEL_BYTES[output] for output in self.outputs)

    @property
    def name(self) -> str:
        """All of it, in words."""
        return f"{self.family}, {self.lanes} lanes, {self.size} {self.shown}, {self.renderer}, {self.transport}"

    def group(self) -> tuple[str, str, str, str]:
        """What cases have in common whose cost differs by lanes and size alone."""
        return self.family, self.shown, self.renderer, self.transport


def make_cases(
    families: Sequence[str],
    lanes: Sequence[int],
    sizes: Sequence[tuple[int, int]],
    outputs: Sequence[tuple[str, ...]],
    renderers: Sequence[str],
    transports: Sequence[str],
) -> list[Case]:
    """Every combination; ValueError for more, or for larger ones, than can be."""
    count = len(families) * len(lanes) * len(sizes) * len(outputs) * len(renderers) * len(transports)
    if count > MOST_CASES:
        raise ValueError(f"{count} configurations: expected at most {MOST_CASES}; give fewer values of some flag")
    # Lanes innermost: what is compared is measured close together in time, as machines change their pace.
    combined = itertools.product(families, renderers, outputs, transports, sizes, lanes)
    cases = [
        Case(family, lane_count, width, height, shown, renderer, transport)
        for family, renderer, shown, transport, (width, height), lane_count in combined
    ]
    for case in cases:
        if case.step_bytes > MOST_STEP_BYTES:
            raise ValueError(
                f"{case.name}: {case.step_bytes:,} bytes of pictures a step: expected at most {MOST_STEP_BYTES:,}; "
                "give fewer --lanes or a smaller --size"
            )
    return cases
