"""Datasets that are collected on a real fleet: rows are those of one collector, whatever is lost on the way."""

import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray")

from scripts.support.ray_cluster import RayCluster
from tests.fleet.conftest import find_processes, kill, wait_until
from worldloom.data import Collector, DatasetError, PolicyError, Progress
from worldloom.data.check import check_dataset
from worldloom.data.fleet_collection import PartEvent, collect_on_fleet, divide_lanes
from worldloom.data.fleet_parts import FleetCollection
from worldloom.data.fleet_servers import FleetView, NodeServer
from worldloom.data.layout import Description
from worldloom.data.whole import WholeDataset
from worldloom.fleet import Fleet, QuotaExceeded

PROGRAM = "worldloom.data.part_process"
SMALL: dict[str, Any] = {
    "lanes": 5,
    "steps": 400,
    "width": 12,
    "height": 10,
    "shadows": True,
    "seed": 11,
    "shard_mb": 0.01,
}
PARTS, SERVERS = 3, 2
POLICIES = """
import os, time
calls = 0

def act(observations, generator):
    if os.path.exists("slow"):
        time.sleep(0.03)
    frames = observations["eye.rgb"]
    return frames.reshape(len(frames), -1).sum(axis=1, dtype="int64") % 3 - 1

def fail(observations, generator):
    global calls
    calls += 1
    if calls == 30:
        raise ValueError("the network is tired")
    return act(observations, generator)
"""


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with RayCluster(2), Fleet(SERVERS, 1, quotas={"small": 4}) as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current directory, with a module of policies."""
    path = tmp_path_factory.mktemp("fleet")
    (path / "fleet_policies.py").write_text(POLICIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield path


class Events(list[PartEvent]):
    """Events of parts, in order."""

    def of(self, what: str) -> list[PartEvent]:
        return [one for one in self if one.what == what]


@pytest.fixture(scope="module")
def undisturbed(fleet: Fleet, folder: Path) -> tuple[Path, Events, list[Progress], int]:
    """A dataset in whose collection nothing was lost, with what was told, and the lanes that counted meanwhile."""
    events, told, counted = Events(), [], []

    def note(progress: Progress) -> None:
        told.append(progress)
        counted.append(sum(one.lanes for one in fleet.status().learners))

    collect_on_fleet(
        fleet, "whole", "catch", policy="fleet_policies:act", parts=PARTS, on_progress=note, on_part=events.append,
        **SMALL,
    )  # fmt: skip
    return folder / "whole", events, told, max(counted)


def read_tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def read_rows(directory: Path) -> dict[str, np.ndarray]:
    found = WholeDataset(directory)
    names = [column.name for column in found.description.columns]
    return found.read(names, slice(0, found.description.lanes), slice(0, found.description.steps))


def test_rows_are_those_of_one_collector(undisturbed: Any) -> None:
    """With a policy that draws no random numbers, which each collector draws for its own lanes."""
    directory, _, _, _ = undisturbed
    Collector("one", "catch", policy="fleet_policies:act", **SMALL).run()
    found, expected = read_rows(directory), read_rows(Path("one"))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    checked = check_dataset(directory)
    assert (checked.problems, checked.notes, checked.is_complete, checked.rows) == ([], [], True, 400)


def test_frames_stay_on_their_node_and_progress_is_summed(fleet: Fleet, undisturbed: Any) -> None:
    _, events, told, counted = undisturbed
    assert {one.report.transport for one in events.of("collecting")} == {"socket"}
    assert len(events.of("complete")) == PARTS
    assert len({one.server.node_id for one in events.of("started")}) == SERVERS
    assert counted == SMALL["lanes"]
    rows = [one.rows for one in told]
    assert rows == sorted(rows)
    assert {one.all_rows for one in told} == {400}
    wait_until(lambda: not any(one.lanes for one in fleet.status().learners), "the release of the lanes")
    assert not find_processes(PROGRAM)


def test_lost_servers_and_collectors_change_no_byte(fleet: Fleet, undisturbed: Any) -> None:
    slow, events = Path("slow"), Events()
    slow.touch()

    def disturb(progress: Progress) -> None:
        running = events.of("collecting")
        if slow.exists() and progress.rows and len(running) == SERVERS:
            server = next(one.pid for one in fleet.status().servers if one.server == running[0].server.name)
            for pid in (server, running[1].report.pid):
                kill(pid)
            slow.unlink()

    arguments = {**SMALL, "policy": "fleet_policies:act", "parts": PARTS}
    collect_on_fleet(fleet, "lost", "catch", on_progress=disturb, on_part=events.append, **arguments)
    lost = {one.place.path: one.report for one in events.of("failed") + events.of("moved")}
    # Another part may have begun on the server before its loss was noticed.
    assert lost.keys() >= {one.place.path for one in events.of("started")[:SERVERS]}
    assert "the collector was ended by signal 9" in {one.error for one in lost.values()}
    assert read_tree(Path("lost")) == read_tree(undisturbed[0])


def test_a_killed_program_leaves_no_collector_and_goes_on_with_its_own_directories(
    fleet: Fleet, undisturbed: Any
) -> None:
    import ray

    slow = Path("slow")
    slow.touch()
    command = [sys.executable, "-c", "import sys; from worldloom.server.cli import main; sys.exit(main(sys.argv[1:]))"]
    command += ["collect", "--fleet", fleet.name, "-o", "own"]
    words = ["catch", "--own-directories", "--parts", "3", "--policy", "fleet_policies:act"]
    words += ["--lanes", "5", "--steps", "400", "--size", "12x10", "--shadows", "--seed", "11", "--shard-mb", "0.01"]
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    process = subprocess.Popen([*command, *words], env=environment)
    wait_until(lambda: list(Path("own").glob("parts/*/index.jsonl")), "the first shard")
    process.kill()
    process.wait()
    wait_until(lambda: not find_processes(PROGRAM), "the end of the collectors")
    slow.unlink()
    with pytest.raises(DatasetError, match="was collected on a fleet: expected --fleet NAME"):
        Collector("own", resume=True).run()
    with pytest.raises(DatasetError, match="parts is 2: expected 3, as the collection began"):
        collect_on_fleet(fleet, "own", resume=True, parts=2)
    progress = collect_on_fleet(fleet, "own", resume=True)
    assert 0 < progress.first_rows < progress.rows == 400
    description = json.loads(Path("own/dataset.json").read_bytes())
    assert {one["node"] for one in description["parts"]} == {socket.gethostname()}
    assert read_tree(Path("own/parts")) == read_tree(undisturbed[0] / "parts")
    assert check_dataset("own").problems == []


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("fleet_policies:fail", r"parts/00\d \(lanes \d to \d\), server-\d+ on .*failed at step 29.* is tired"),
        ("no_such_module:act", r"^server-\d+ on .*there is no module 'no_such_module'.* that every node can import"),
    ],
)  # fmt: skip
def test_a_wrong_policy_is_told_with_its_server(fleet: Fleet, folder: Path, policy: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        collect_on_fleet(fleet, policy.partition(":")[2], "catch", policy=policy, parts=PARTS, **SMALL)
    assert not find_processes(PROGRAM)


def test_a_quota_is_kept(fleet: Fleet, folder: Path) -> None:
    with pytest.raises(QuotaExceeded, match="5 lanes for 'small': expected 4 at most"):
        collect_on_fleet(fleet, "small", "catch", learner="small", **SMALL)
    assert not Path("small").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_step": print}, "on_step is given: expected none"),
        ({"policy": print}, "expected a name or MODULE:CALLABLE"),
        ({"parts": 6}, "parts is 6: expected 5 at most"),
        ({"parts": 0}, "parts is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"learner": "*"}, "learner is"),
    ],
)
def test_wrong_arguments_leave_nothing(fleet: Fleet, folder: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, PolicyError), match=message):
        collect_on_fleet(fleet, "wrong", "catch", **{**SMALL, **arguments})
    assert not Path("wrong").exists()


@given(st.integers(1, 10**6), st.integers(1, 50))
def test_parts_have_all_lanes_once_and_about_as_many_each(lanes: int, parts: int) -> None:
    places = divide_lanes(lanes, [""] * min(lanes, parts))
    assert places[0].first_lane == 0
    for one, following in itertools.pairwise(places):
        assert one.first_lane + one.lanes == following.first_lane
    assert places[-1].first_lane + places[-1].lanes == lanes
    sizes = {one.lanes for one in places}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) > 0
    assert len({one.path for one in places}) == len(places)


def test_a_part_on_its_own_disk_waits_for_its_node_and_begins_again_elsewhere_when_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Ray, and with a clock that is set: the nodes of the cluster here are one machine."""
    now_s = 1000.0
    monkeypatch.setattr("worldloom.data.fleet_parts.time.monotonic", lambda: now_s)
    Collector(tmp_path, "catch", lanes=2, steps=4, width=8, height=8).run()
    path = tmp_path / "dataset.json"
    description = replace(Description.from_json(path.read_bytes(), path), parts=divide_lanes(2, ["a", "b"]))
    servers = SimpleNamespace(view=FleetView)
    parts = FleetCollection(tmp_path, description, servers, {}, None, None)  # type: ignore[arg-type]  # no Ray is needed
    part = parts._parts[0]
    on_b = NodeServer("server-1", "192.0.2.2:1", "192.0.2.2", "id", "b")
    on_a = replace(on_b, name="server-2", host="a")
    with_node, without_node = FleetView((), {"a": "1", "b": "2"}), FleetView((), {"b": "2"})
    assert parts._choose_server(part, [on_b, on_a], with_node) is on_a
    now_s = 1500.0
    assert parts._choose_server(part, [on_b], with_node) is None, "its node has no server now"
    now_s = 1559.0
    assert parts._choose_server(part, [on_b], without_node) is None, "its node may come back"
    before = path.read_bytes()
    now_s = 1561.0
    assert parts._choose_server(part, [], without_node) is None
    assert path.read_bytes() == before
    assert parts._choose_server(part, [on_b], without_node) is on_b
    assert [one.node for one in Description.from_json(path.read_bytes(), path).parts] == ["b", "b"]
