"""`worldloom worlds` and `worldloom describe` say what there is, in lines that fit, and mistakes in one."""

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from worldloom.server import cli
from worldloom.worlds import registry
from worldloom.worlds.gym.permissions import allow_gym_ids, allow_gym_kwargs
from worldloom.worlds.randomisation.settings import VARIATION_SETTINGS

TOY = ("--family", "tests.support.toy:Toy")


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever terminal the tests run in."""
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registry", registry.Registry(list))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_what_the_operator_allows_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--family", "worldloom.worlds.gym.family:Gym", "--gym-id", "Ant-*", "--gym-kwarg", "brightness")
    out = run(capsys, "describe", "gym", *options)
    assert "Allowed here for id" in out
    assert "Ant-v4, Ant-v5" in out
    described = json.loads(run(capsys, "describe", "gym", "--json", *options))
    assert set(described["allowed"]["id"]) >= {"Ant-v4", "Ant-v5"}
    assert all(env_id.startswith("Ant-") for env_id in described["allowed"]["id"])
    assert {"brightness", "frame_skip"} <= set(described["allowed"]["kwargs"])
    allow_gym_ids([])
    allow_gym_kwargs([])


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err.rstrip()


def test_worlds_lists_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert "toy  Counts its steps.\n" in run(capsys, "worlds", *TOY)
    assert json.loads(run(capsys, "worlds", *TOY, "--json")) == [
        {"family": "toy", "text": "Counts its steps.", "problem": None}
    ]


def test_without_families_worlds_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "worlds") == "There are no families.\n"
    assert run(capsys, "worlds", "--json") == "[]\n"


def test_a_family_that_does_not_load_hides_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    offers = [
        EntryPoint("toy", "tests.support.toy:Toy", registry.GROUP),
        EntryPoint("lost", "no_such_module:Lost", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "_registry", registry.Registry(lambda: offers))
    text = " ".join(run(capsys, "worlds").split())
    assert "lost cannot be used: family 'lost'" in text
    assert "No module named 'no_such_module'" in text
    assert "toy Counts its steps." in text
    lost, toy = json.loads(run(capsys, "worlds", "--json"))
    assert (lost["family"], lost["text"]) == ("lost", None)
    assert "No module named" in lost["problem"]
    assert toy["problem"] is None
    assert "No module named" in refusal(capsys, "describe", "lost")


def test_describe_says_everything(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "describe", "toy", *TOY, "agents=2", "max_steps=9").splitlines()
    text = "\n".join(" ".join(line.split()) for line in lines)
    for line in (
        "toy\nCounts its steps.",
        "agents int 1 1 to 4 How many count. Here: 2.",
        "max_steps int 4 1 to 1000000 Steps after which an episode is interrupted. Here: 9.",
        "pace float 1.0 0 or more Metres a step.",
        "color str red red or blue Of the box.",
        "Actions of each of 2 agents\npush float32 [2] -1 to 1 Added up to the reward.",
        "count int64 [] 0 or more Steps so far.",
        "end int64 [] 1 to 6 The step at which it ends. Hidden: not visible in the frames.",
        "reward float32 []",
        "eye Straight at the box.",
        "top.rgb uint8 [height, width, 3] Colours, row 0 at the top.",
        "1 box",
    ):
        assert line in text


def test_describe_takes_settings_of_what_varies(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(run(capsys, "describe", "toy", *TOY, "vary_colors=0.5", "vary_colors_at=walk").split())
    assert "1: any colour. Here: 0.5." in text
    assert "within the same limits. Here vary_colors_at: walk." in text
    assert "variation.colors float32 [" in text
    assert "variation.camera" not in text
    expected = "setting 'vary_colors' is 2.0: expected a number from 0 to 1"
    assert expected in refusal(capsys, "describe", "toy", *TOY, "vary_colors=2")


def test_describe_lists_what_varies_before_required_settings_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "describe", "gym", "--family", "worldloom.worlds.gym.family:Gym").splitlines()
    words = {word for line in lines for word in line.replace(",", " ").replace(":", " ").split()}
    assert words >= {setting.name for setting in VARIATION_SETTINGS}


def test_describe_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    described = json.loads(run(capsys, "describe", "toy", "--json", *TOY, "agents=3"))
    assert (described["family"], described["agents"]) == ("toy", 3)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 300])
def test_lines_fit_the_window(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    longest = max(len(line) for line in run(capsys, "describe", "toy", *TOY).splitlines())
    assert longest <= min(max(width, 50), 120)  # types and ranges are not broken into lines: they take up to 50


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["describe", "tyo", *TOY], "unknown family 'tyo' (did you mean 'toy'?): expected one of toy"),
        (["describe", "toy", *TOY, "agents=9"], "setting 'agents' is 9: expected an integer from 1 to 4"),
        (["describe", "toy", *TOY, "agens=2"], "unknown setting 'agens' (did you mean 'agents'?): expected some of"),
        (["describe", "toy", *TOY, "agents"], "setting 'agents': expected NAME=VALUE, such as agents=1"),
        (["describe", "toy", "--family", "toy"], "family 'toy': expected MODULE:CLASS, such as"),
        (["worlds", "--family", "nowhere:Toy"], "cannot import 'nowhere': ModuleNotFoundError"),
        (
            ["worlds", *TOY, "--family", "tests.support.toy:SameName"],
            "tests.support.toy:SameName is a family named 't",
        ),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_a_mistake_is_one_clear_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, *words).startswith(f"worldloom {words[0]}: {line}")


def test_a_family_in_this_folder_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kites_here.py").write_text(
        "from tests.support.toy import Toy\nclass Kite(Toy):\n    name, text = 'kite', 'Flies.'\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])  # the command puts this folder in front
    assert "kite  Flies.\n" in run(capsys, "worlds", "--family", "kites_here:Kite")
