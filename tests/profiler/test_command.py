"""`worldloom profile` as people run it: sweeps, a server that runs already, wrong words, and Ctrl-C."""

import importlib.util
import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from scripts.support.server_process import WORLDLOOM
from tests.profiler.test_written import check_trace
from tests.support.image_files import read_png
from worldloom.profiler import command
from worldloom.profiler.measure import SweepServers, list_configurations, measure
from worldloom.server import cli
from worldloom.server.engine.timing import STAGES
from worldloom.worlds import registry

QUICK = ("--seconds", "0.05", "--renderer", "cpu")
SMALL = ("--lanes", "2,4", "--size", "8,16", *QUICK)


def profile(*words: object) -> int:
    return cli.main(["profile", *map(str, words)])


def written(folder: Path) -> Any:
    return json.loads((folder / "profile.json").read_text())


def test_a_sweep_writes_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # a narrow window folds long figures
    out = tmp_path / "new" / "folder"
    transports = "local,socket,shm,unix,tcp,tls"
    words = ("--outputs", "rgb,rgb+depth", "--transport", transports, "--family", "catch", "--out", out)
    assert profile("--lanes", "4", "--size", "8", *QUICK, *words) == 0
    text = capsys.readouterr()
    assert "measuring 12 configurations" in text.err
    told = written(out)
    asked = [
        (one["transport"], "+".join(one["outputs"]), one["lanes"], one["width"], one["renderer"])
        for one in told["configurations"]
    ]
    expected = [(one, outputs, 4, 8, "cpu") for outputs in ("rgb", "rgb+depth") for one in transports.split(",")]
    assert asked == expected
    for one in told["configurations"]:
        assert one["steps"] >= 3
        assert f"{one['frames_per_s']:,.0f}" in text.out
        assert set(one["stage_share"]) == set(STAGES)
        assert one["accounted"] == pytest.approx(sum(one["stage_share"].values()))
        assert one["stage_share"]["draw"] > 0
        assert one["stage_share"]["cull"] == 0
        assert (one["stage_share"]["send"] > 0) == (one["transport"] != "local")
        assert one["cpu_us_per_frame"]["client"] > 0
        assert (one["cpu_us_per_frame"]["server"] is None) == (one["transport"] == "local")
    check_trace(json.loads((out / "trace.json").read_text()))
    for name in ("throughput", "stages", "growth", "timeline"):
        assert read_png(out / f"{name}.png").size
    assert "</html>" in (out / "report.html").read_text()
    assert f"saved in {out}" in text.out


def test_without_the_extra_all_but_plots_and_report_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    words = ("--outputs", "rgb", "--transport", "local", "--family", "catch", "--out", tmp_path)
    assert profile("--lanes", "4", "--size", "8", *QUICK, *words) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["profile.json", "trace.json"]
    check_trace(json.loads((tmp_path / "trace.json").read_text()))
    told = capsys.readouterr().out.splitlines()
    assert told[-2:] == [
        f"saved in {tmp_path}: profile.json, trace.json",
        'Plots and the report need matplotlib: pip install "worldloom[report]"',
    ]


def test_the_stages_are_nearly_all_of_the_time() -> None:
    """By the client's own clock, with a server and without."""
    configurations = list_configurations(["maze"], [64], [(64, 64)], [("rgb",)], ["cpu"], ["local", "tcp"])
    with SweepServers(configurations) as servers:
        for one in configurations:
            measured = measure(one, servers.target(one.renderer, one.transport), {}, 1.0)
            assert 0.95 <= measured.accounted <= 1.05
            assert measured.seconds <= measured.wall_s


def test_the_fit_comes_with_several_lanes_and_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(*SMALL, "--transport", "local", "--outputs", "rgb", "--out", tmp_path, "size=5", "goals=2") == 0
    told = written(tmp_path)
    assert told["settings"] == {"maze": {"size": 5, "goals": 2}}
    [fit] = told["fits"]
    assert (fit["points"], fit["family"], fit["outputs"]) == (4, "maze", ["rgb"])
    assert min(fit["fixed_us"], fit["us_per_lane"], fit["ns_per_pixel"]) >= 0
    assert "a step takes: fixed + for each lane + for each pixel" in capsys.readouterr().out
    assert (len(told["cpu_fits"]["client"]), told["cpu_fits"]["server"]) == (1, [])


def test_processor_time_is_that_of_the_side_that_spends_it() -> None:
    configurations = list_configurations(["maze"], [256], [(64, 64)], [("rgb",)], ["cpu"], ["tcp", "tls"])
    with SweepServers(configurations) as servers:
        for one in configurations:
            measured = measure(one, servers.target(one.renderer, one.transport), {}, 1.0)
            drawing_s = measured.stage_s["draw"]
            assert measured.server_cpu_s is not None
            # The engine's thread draws, other threads help; on a machine with other load it waits for a core, too.
            assert 0.3 * drawing_s < measured.server_cpu_s
            assert 0 < measured.client_cpu_s < 0.7 * measured.server_cpu_s


def test_a_sweep_with_tls_needs_openssl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert profile("--transport", "tls", "--lanes", "2", "--size", "8", *QUICK) != 0
    assert "transport tls: expected the program openssl" in capsys.readouterr().err


@pytest.mark.gl
def test_gl_tells_its_stages_apart(tmp_path: Path) -> None:
    words = ("--renderer", "gl,cpu", "--lanes", "4", "--size", "160x120", "--outputs", "rgb", "--transport", "local")
    assert profile(*words, "--seconds", "0.05", "--out", tmp_path) == 0
    gl, cpu = written(tmp_path)["configurations"]
    assert (gl["renderer"], cpu["renderer"], gl["width"], gl["height"]) == ("gl", "cpu", 160, 120)
    for stage in ("cull", "draw", "readback", "unpack"):
        assert gl["stage_share"][stage] > 0
    assert gl["device"] != cpu["device"]


def test_a_family_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from worldloom.worlds.catch.family import Catch\n\nclass Mine(Catch):\n    name = 'mine'\n"
    (tmp_path / "my_profiled.py").write_text(code)
    monkeypatch.setattr(registry, "_registry", registry.Registry(registry.installed_entry_points))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = ("--family", "my_profiled:Mine", "--transport", "local,tcp", "--outputs", "rgb")
    assert profile("--lanes", "2", "--size", "8", *QUICK, *words, "--out", "out") == 0
    assert {one["family"] for one in written(tmp_path / "out")["configurations"]} == {"mine"}


def test_the_defaults_end_within_two_minutes() -> None:
    given = command.DEFAULTS
    configurations = list_configurations(
        *(given[name] for name in ("family", "lanes", "size", "outputs", "renderer", "transport"))
    )
    assert len(configurations) * (1.2 * command.SECONDS + command._OVERHEAD_S) < 110
    assert len({one.group() for one in configurations}) == 6


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--lanes", "0"), "--lanes: expected whole numbers from 1 to 65536, got '0'"),
        (("--lanes", "16,many"), "--lanes: expected whole numbers from 1 to 65536, got 'many'"),
        (("--lanes", "16,"), "--lanes: expected whole numbers from 1 to 65536, got ''"),
        (("--size", "64x"), "--size: expected sizes such as 64 or 160x120"),
        (("--size", "9999"), "each side from 1 to 4096 pixels, got '9999'"),
        (("--outputs", "rgb,color"), "--outputs: expected some of rgb, gray, depth, segmentation"),
        (("--renderer", "vulkan"), "--renderer: expected some of auto, gl, cpu, got 'vulkan'"),
        (("--transport", "pigeon"), "--transport: expected some of local, socket, shm, unix, tcp, tls, got 'pigeon'"),
        (("--seconds", "nan"), "--seconds: expected a number above 0, at most 3600, got 'nan'"),
    ],
)
def test_wrong_values_are_refused(words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        profile(*words)
    assert ended.value.code == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--family", "mase"), "unknown family 'mase' (did you mean 'maze'?)"),
        (("size=4000",), "size"),
        (("colour=red",), "colour"),
        (("--lanes", "65536", "--size", "512"), "bytes of frames a step: expected at most 1,073,741,824"),
        (("--lanes", ",".join(map(str, range(1, 300)))), "configurations: expected at most 2000"),
        (("--token-file", "token"), "--token-file: expected --attach ADDRESS with it"),
        (("--attach", "local"), "--attach local: expected HOST:PORT or unix:PATH"),
        (("--attach", "127.0.0.1:1", "--lanes", "4"), "--lanes is for a sweep: expected none with --attach"),
        (("--attach", "127.0.0.1:1", "size=9"), "'size=9' is for a sweep"),
        (("--attach", "nonsense"), "nonsense"),
        (("--attach", "127.0.0.1:1", "--token-file", "/nowhere/token"), "--token-file /nowhere/token cannot be read"),
    ],
)
def test_what_cannot_be_is_told(words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(*words) == 1
    text = capsys.readouterr()
    assert text.out == ""
    assert text.err.startswith("worldloom profile: ")
    assert text.err.count("\n") == 1
    assert complaint in text.err


def test_no_graphics_device(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "list_devices", list)
    assert profile("--renderer", "gl") == 1
    error = capsys.readouterr().err
    assert "--renderer gl: no graphics device was found." in error
    assert "Or use --renderer cpu" in error


def test_a_folder_that_cannot_be_written_is_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert profile(*SMALL, "--out", tmp_path / "file" / "out") == 1
    text = capsys.readouterr()
    assert f"--out {tmp_path / 'file' / 'out'}: cannot write there" in text.err
    assert text.out == ""


def test_a_case_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail_once(configuration: Any, *given: Any) -> Any:
        if configuration.lanes == 2:
            raise RuntimeError("out of\npaper")
        return measure(configuration, *given)

    monkeypatch.setattr(command, "measure", fail_once)
    words = ("--lanes", "2,4", "--size", "8", "--outputs", "rgb", "--transport", "local", *QUICK)
    assert profile(*words, "--out", tmp_path) == 1
    assert "not measured: maze, 2 lanes, 8² rgb, cpu, local: out of paper" in capsys.readouterr().out
    told = written(tmp_path)
    assert (len(told["configurations"]), len(told["failed"]), told["is_complete"]) == (1, 1, False)
    assert profile(*words, "--lanes", "2") == 1
    assert "nothing was measured: maze, 2 lanes, 8² rgb, cpu, local: out of paper" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    words = ["--renderer", "cpu", "--transport", "local,tcp", "--lanes", "2", "--size", "8", "--outputs", "rgb"]
    words += ["--seconds", "0.2", "--family", ",".join(["catch", "maze", "cartpole"]), "--out", str(tmp_path / "out")]
    command_line = [str(WORLDLOOM), "profile", *words]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _until_a_world_is_served(process.pid)
        process.send_signal(signal.SIGINT)
        told, problems = process.communicate(timeout=60)
    assert process.returncode == 130, problems
    assert "Traceback" not in problems
    assert re.search(r"interrupted: [1-5] of 6 configurations were measured", told)
    assert not written(tmp_path / "out")["is_complete"]
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_its_servers_too(number: signal.Signals) -> None:
    words = ["--renderer", "cpu", "--transport", "tcp", "--lanes", "2", "--size", "8", "--outputs", "rgb"]
    command_line = [str(WORLDLOOM), "profile", *words, "--seconds", "20", "--family", "catch"]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        server = Path(f"/proc/{_until_a_world_is_served(process.pid)}")
        time.sleep(0.5)  # within the call that starts a process, Python has no handle to end it by
        process.send_signal(number)
        _, problems = process.communicate(timeout=60)
    assert process.returncode == 128 + number, problems
    assert "Traceback" not in problems
    assert not server.exists()


def _until_a_world_is_served(pid: int) -> int:
    """Wait until it has started its server, when configurations without one are measured; return the server's pid."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    for _ in range(3000):
        if found := children.read_text().split():
            return int(found[0])
        time.sleep(0.02)
    raise AssertionError("no server was started")
