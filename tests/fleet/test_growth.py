"""A fleet grows and shrinks with Ray's autoscaler, which starts and ends nodes on this machine.

`ray.cluster_utils.AutoscalingCluster` ends every Ray on the machine (`ray stop --force`), and reads a file that is not
in Ray's wheel. So its configuration is here, and Ray is started by its own command.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.conftest import TIMEOUT_S, find_processes, kill, wait_until
from worldloom.fleet import Fleet, FleetError

ray = pytest.importorskip("ray")
START = "import sys; from ray.scripts.scripts import main; sys.exit(main())"


def configuration(gcs_address: str) -> dict[str, Any]:
    node = {"resources": {"CPU": 1}, "node_config": {}}
    lists = ("cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands", "setup_commands")
    commands = ("head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
    return {
        "cluster_name": "growing",
        "max_workers": 2,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.2,  # longer than an actor takes to start on a busy machine
        "provider": {
            "type": "fake_multinode",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "foreground_node_launch": True,
            "gcs_address": gcs_address,
        },
        "available_node_types": {
            "head": {**node, "max_workers": 0},
            "worker": {**node, "min_workers": 0, "max_workers": 2},
        },
        "head_node_type": "head",
        "file_mounts_sync_continuously": False,
        **{name: {} for name in ("head_node", "worker_nodes", "auth", "docker", "file_mounts")},
        **{name: [] for name in (*lists, *commands)},
    }


@pytest.fixture
def growing_ray(ray_folder: Path) -> Iterator[None]:
    """A Ray with one node of one processor, and an autoscaler that may add two of them."""
    from worldloom.fleet.ray_session import connect_to_ray

    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    file = ray_folder / "autoscaler.json"
    file.write_text(json.dumps(configuration(f"{ray.util.get_node_ip_address()}:{port}")))
    options = (f"--port={port}", "--num-cpus=1", "--include-dashboard=false", f"--autoscaling-config={file}")
    environment = {**os.environ, "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
    with open(ray_folder / "output", "w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", START, "start", "--head", "--block", "--object-store-memory=100000000", *options],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def has_started() -> bool:
        assert process.poll() is None, (ray_folder / "output").read_text()
        try:
            connect_to_ray(None, may_start=False)
        except FleetError:
            return False
        return True

    wait_until(has_started, "the start of Ray")
    yield
    ray.shutdown()
    process.terminate()
    process.wait(TIMEOUT_S)
    for pid in find_processes(str(ray_folder)):  # of nodes that the autoscaler has started
        kill(pid)
    wait_until(lambda: not find_processes(str(ray_folder)), "the end of Ray")


@pytest.mark.usefixtures("growing_ray")
def test_nodes_come_and_go_with_the_servers() -> None:
    def processors() -> float:
        return float(ray.cluster_resources().get("CPU", 0))

    with Fleet(1, 1) as fleet:
        fleet.scale(2, wait_s=TIMEOUT_S)
        assert processors() >= 2, "it may start more than it needs, and ends them again"
        fleet.scale(1)
        wait_until(lambda: processors() == 1, "the end of the node")
        assert fleet.status().ready == 1
