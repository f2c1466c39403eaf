"""A few clients and one restart; `python -m scripts.restarts` is the long one."""

import pytest

from scripts import restarts


def test_clients_reconnect_to_a_restarted_server(capsys: pytest.CaptureFixture[str]) -> None:
    code = restarts.main(["--clients", "4", "--restarts", "1"])
    told = capsys.readouterr().out
    assert code == 0, told
    assert "4 of 4" in told
