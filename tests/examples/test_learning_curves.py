"""Pictures of learning curves show the numbers they were given, and runs of several seeds are summed up."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import learning_curves
from tests.support.image_files import read_png

BETWEEN = (-1.0, 1.0)


def rgb(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color[1:]))


def drawn(path: Path, curve: list[tuple[int, float]], random_return: float) -> np.ndarray:
    learning_curves.draw_learning_curves(path, {"PPO": curve}, random_return, BETWEEN, "mean return")
    return read_png(path)


def height_of(image: np.ndarray, color: str, x: float) -> float:
    """The return at which a column of the plot has this colour, x from 0 at its left to 1."""
    left, right = learning_curves.LEFT, image.shape[1] - learning_curves.RIGHT
    top, bottom = learning_curves.TOP, image.shape[0] - learning_curves.BOTTOM
    column = image[:, round(left + x * (right - left))]
    rows = np.flatnonzero((column == rgb(color)).all(axis=1))
    assert len(rows) > 0
    return float(1 - 2 * (rows.mean() - top) / (bottom - top))


def test_lines_are_where_the_numbers_are(tmp_path: Path) -> None:
    image = drawn(tmp_path / "curve.png", [(0, -0.9), (50_000, 0.3), (100_000, 0.3)], random_return=-0.6)
    pixel = 2 / (learning_curves.HEIGHT - learning_curves.TOP - learning_curves.BOTTOM)
    for x, expected in ((0.1, -0.66), (0.25, -0.3), (0.52, 0.3), (0.6, 0.3)):
        assert height_of(image, learning_curves.COLORS[0], x) == pytest.approx(expected, abs=2 * pixel)
    # The first dash: it begins at the left, where the curve has not come up to it yet.
    assert height_of(image, learning_curves.ORANGE, 0.005) == pytest.approx(-0.6, abs=2 * pixel)


@pytest.mark.parametrize("steps", [1, 32, 4096, 99_999, 100_000, 12_345_678])
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_any_curve_can_be_drawn(tmp_path: Path, steps: int, value: float) -> None:
    image = drawn(tmp_path / "curve.png", [(steps, value)], random_return=value)
    assert (image == rgb(learning_curves.INK)).all(axis=2).any()
    edge = np.concatenate([image[[0, -1]].reshape(-1, 3), image[:, [0, -1]].reshape(-1, 3)])
    assert (edge == 255).all()  # nothing is cut off


def test_each_curve_has_its_own_line(tmp_path: Path) -> None:
    curves = {f"seed {k}": [(0, value), (1000, value)] for k, value in enumerate((-0.5, 0.0, 0.5))}
    learning_curves.draw_learning_curves(tmp_path / "curves.png", curves, None, BETWEEN, "mean return")
    image = read_png(tmp_path / "curves.png")
    pixel = 2 / (learning_curves.HEIGHT - learning_curves.TOP - learning_curves.BOTTOM)
    for color, value in zip(learning_curves.COLORS, (-0.5, 0.0, 0.5), strict=True):
        assert height_of(image, color, 0.9) == pytest.approx(value, abs=2 * pixel)
    assert not (image == rgb(learning_curves.ORANGE)).all(axis=2).any()


LEARNER = """
import sys
if "--video" in sys.argv:
    open(sys.argv[sys.argv.index("--video") + 1], "w").write("video")
seed, folder = int(sys.argv[sys.argv.index("--seed") + 1]), sys.argv[sys.argv.index("--out") + 1]
with open(folder + "/curve.csv", "w") as file:
    print("steps,seconds,mean_return,random_return", file=file)
    print("100,1.5,,0.25", file=file)
    for k in range(1, 5):
        print(f"{100 + 100 * k},{k}.5,{0.125 * k * (1 + seed)},0.25", file=file)
"""


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of the command line, to add to."""
    (tmp_path / "learner.py").write_text(LEARNER)
    program = (str(tmp_path / "learner.py"),)
    runs = {
        "one": learning_curves.Run(program, (0.0, 2.0), target=0.9, has_video=True),
        "three times random": learning_curves.Run(program, (0.0, 2.0), random_multiple=3.0),
        "none": learning_curves.Run(program, (0.0, 2.0)),
    }
    monkeypatch.setattr(learning_curves, "RUNS", runs)
    given = ["learning_curves.py"]
    monkeypatch.setattr(sys, "argv", given)
    monkeypatch.chdir(tmp_path)
    return given


def test_runs_are_summed_up(flags: list[str]) -> None:
    flags += ["one", "--seeds", "0", "1", "2"]
    learning_curves.main()
    assert Path("out/learning/one.gif").exists()
    flags[1:] = ["three times random", "none", "--seeds", "1", "--pictures", "new"]
    Path("new").mkdir()
    Path("out/learning/learning_curves.json").rename("new/learning_curves.json")
    learning_curves.main()
    assert {path.suffix for path in Path("new").iterdir()} == {".json", ".png"}
    summary = json.loads(Path("new/learning_curves.json").read_text())
    assert [row["mean_return"] for row in summary["one"]] == [0.5, 1.0, 1.5]
    assert [row["seed"] for row in summary["one"]] == [0, 1, 2]
    assert [row["seconds_to_target"] for row in summary["one"]] == [None, 4.5, 3.5]
    assert [row["steps_to_target"] for row in summary["one"]] == [None, 500, 400]
    [row] = summary["three times random"]
    assert (row["target"], row["seconds_to_target"], row["random_return"]) == (0.75, 3.5, 0.25)
    [row] = summary["none"]
    assert (row["target"], row["seconds_to_target"], row["steps"]) == (None, None, 500)
    Path("out/learning/one.png").rename("new/one.png")
    for name in summary:
        assert read_png(Path(f"new/{name}.png")).shape[0] == learning_curves.HEIGHT


def test_rows_of_the_same_step_belong_together(tmp_path: Path) -> None:
    """As in the files of Stable-Baselines3: evaluations have rows of their own, without the time."""
    path = tmp_path / "progress.csv"
    path.write_text("loss,at,time,return\n,1,0.5,\n,2,,0.25\n,2,1.5,\n3.0,3,,0.5\n2.0,3,2.5,0.75\n")
    run = learning_curves.Run(("learner.py",), (0.0, 1.0), columns=("at", "time", "return"))
    assert run.read(path) == [
        {"steps": 2.0, "seconds": 1.5, "mean_return": 0.25},
        {"steps": 3.0, "seconds": 2.5, "mean_return": 0.75},
    ]


def test_an_unknown_task_is_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags += ["one", "two"]
    with pytest.raises(SystemExit):
        learning_curves.main()
    assert "unknown task 'two': expected any of one, three times random, none" in capsys.readouterr().err
    assert not Path("out").exists()
