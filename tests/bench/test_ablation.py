"""One run of the whole ablation, as small as can be, and what its tables say of given rates."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from worldloom.bench import ablation
from worldloom.bench.ablation import SIDE_VARIANTS, VARIANTS, Workload
from worldloom.bench.measuring import BEGIN, END

NAMES = [variant.name for variant in (*VARIANTS, *SIDE_VARIANTS)]


def test_each_row_is_compared_with_the_row_before_and_the_first() -> None:
    rates = {name: [10.0**k, 10.0**k, 1.0] for k, name in enumerate(NAMES)}
    lines = ablation.report(Workload("maze", 64, 256), rates)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    ladder, aside = rows[1 : 1 + len(VARIANTS)], rows[2 + len(VARIANTS) :]
    assert [row[0] for row in ladder + aside] == NAMES
    assert [row[2:] for row in ladder] == [
        ["1", "", "1.00 ×"],
        ["10", "10 ×", "10 ×"],
        ["100", "10 ×", "100 ×"],
        ["1,000", "10 ×", "1000 ×"],
        ["10,000", "10 ×", "10000 ×"],
        ["100,000", "10 ×", "100000 ×"],
        ["1,000,000", "10 ×", "1000000 ×"],
        ["10,000,000", "10 ×", "10000000 ×"],
    ]
    assert [row[3] for row in aside] == [
        "100000000 × naive, gl",
        "1000000000 × naive, gl",
        "1000000000 × naive, cpu",
        "10000000 × + a vector world",
    ]


@pytest.mark.gl
def test_a_small_run(tmp_path: Path) -> None:
    page, found = tmp_path / "page.md", tmp_path / "out" / "ablation.json"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    words = [
        "--family",
        "catch",
        "--streams",
        "2",
        "--lanes",
        "2",
        "--rounds",
        "1",
        "--seconds",
        "0.05",
        "--cores",
        "1",
    ]
    command = [sys.executable, "-m", "worldloom.bench.ablation", *words, "--page", str(page), "--json", str(found)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert page.read_text() == f"before\n{BEGIN}\n{result.stdout}{END}\nafter\n"
    assert "2 single streams over 4 connections, or a vector world of 2 lanes" in result.stdout
    assert f"python -m worldloom.bench.ablation {' '.join(words)}" in result.stdout
    assert ", 1 core in use; " in result.stdout
    rates = json.loads(found.read_text())["frames_per_s"]["catch"]
    assert list(rates) == NAMES
    assert all(rate > 0 for [rate] in rates.values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--family", "mazes"], "invalid choice: 'mazes'"),
        (["--rounds", "0"], "expected a number, 1 or more"),
        (["--seconds", "nan"], "expected seconds"),
        (["--lanes", "-1"], "expected a number, 1 or more"),
    ],
)
def test_wrong_options(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        ablation.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_more_cores_than_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert ablation.main(["--cores", "100000"]) == 2
    assert "--cores is 100000: expected 1 to " in capsys.readouterr().err
