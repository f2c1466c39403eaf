"""The example with RLlib runs as its page says, in short. Runs in .venv-rllib."""

import re

from tests.examples.test_examples import run


def test_rllib_trains() -> None:
    printed = run("rllib_ppo.py", "--iterations", "2", warnings="ignore").splitlines()
    for iteration, line in enumerate(printed[-2:]):
        found = re.fullmatch(r" +(\d+) +([\d,]+) steps  mean return +(-?\d\.\d\d)", line)
        assert found
        assert int(found[1]) == iteration
        assert int(found[2].replace(",", "")) >= 4096 * (iteration + 1)
        assert -1.0 <= float(found[3]) <= 1.0
