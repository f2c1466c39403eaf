"""The programs of docs/learners.md run as they stand; that of RLlib in its own environment."""

import importlib.util

import pytest

from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs/learners.md"
HAS_RAY = importlib.util.find_spec("ray") is not None
PROGRAMS = [
    pytest.param(line, code, id=f"line {line}") for line, code in blocks(PAGE, "python") if ("ray." in code) == HAS_RAY
]


@pytest.mark.filterwarnings("ignore")  # of the libraries, which warn of their own future
@pytest.mark.parametrize(("line", "code"), PROGRAMS)
def test_programs_run(line: int, code: str) -> None:
    exec(compile("\n" * (line - 1) + code, PAGE, "exec"), {"__name__": "__main__"})


def test_every_library_has_its_program() -> None:
    shown = "".join(code for _, code in blocks(PAGE, "python"))
    for name in ("stable_baselines3", "torchrl", "ray.rllib", "pettingzoo", "gymnasium.make_vec", "torch.nn"):
        assert name in shown
    lengths = [len(code.splitlines()) for _, code in blocks(PAGE, "python")]
    assert max(lengths) <= 12
