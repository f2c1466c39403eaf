"""One fault of each kind under an env that steps; `python -m scripts.fleet_faults` has a hundred."""

import pytest

pytest.importorskip("ray")

from scripts import fleet_faults

KINDS = ["server killed", "server frozen", "network cut", "node killed", "reconciler killed"]


def test_an_env_goes_on_whatever_fails(capsys: pytest.CaptureFixture[str]) -> None:
    code = fleet_faults.main(["--faults", str(len(KINDS)), "--kinds", *KINDS])
    told = capsys.readouterr().out
    assert code == 0, told
    for kind in KINDS:
        assert f"{kind} × 1" in told
