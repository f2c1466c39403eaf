"""A real Ray cluster of several nodes on this machine, in a folder of its own."""

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",  # Ray would write a token into the user's home otherwise
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_raylet_start_wait_time_s": "120",
}
START_TIMEOUT_S = 90.0
_STDERR = 2


class RayCluster:
    """A Ray cluster of nodes with one processor each, to which this process is connected until `close`.

    Raylets report on stderr that they were killed. That goes into a file of the folder.
    """

    def __init__(self, nodes: int = 3) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wlray"))  # short, as the path of a socket has 107 bytes at most
        self._before = dict(os.environ)
        os.environ.pop("RAY_ADDRESS", None)
        os.environ.update(ENVIRONMENT, RAY_TMPDIR=str(self.folder))
        self._kept_stderr = os.dup(_STDERR)
        with open(self.folder / "stderr", "w") as sink:
            os.dup2(sink.fileno(), _STDERR)
        try:
            import ray
            from ray.cluster_utils import Cluster

            self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
            self.workers = [self.add_node() for _ in range(nodes - 1)]
            """Nodes beside the head, which can be removed."""
            self._cluster.wait_for_nodes(START_TIMEOUT_S)
            ray.init(address=self._cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        except BaseException:
            self._restore()
            raise

    def add_node(self) -> Any:
        """Add a node, and return it."""
        return self._cluster.add_node(num_cpus=1, wait=False)

    def kill_node(self, node: Any) -> None:
        """Kill a node's processes of Ray, as a machine that fails."""
        self.workers.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """End all nodes, and remove the folder."""
        import ray

        ray.shutdown()
        self._cluster.shutdown()
        self._restore()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _restore(self) -> None:
        os.dup2(self._kept_stderr, _STDERR)
        os.close(self._kept_stderr)
        os.environ.clear()
        os.environ.update(self._before)
        shutil.rmtree(self.folder, ignore_errors=True)
