"""A fleet's objects in Ray: placement groups, server actors and the request to the autoscaler."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worldloom.extras import explain_missing_extra
from worldloom.fleet.ray_session import (
    NAMESPACE,
    list_actor_names,
    list_fleets,
    parse_server_name,
    ray,
    reconciler_name,
    server_name,
)
from worldloom.fleet.server_actor import ServerActor

with explain_missing_extra("worldloom.fleet", "fleet"):
    from ray._raylet import PlacementGroupID
    from ray.autoscaler.sdk import request_resources
    from ray.util.placement_group import (
        PlacementGroup,
        placement_group,
        placement_group_table,
        remove_placement_group,
    )
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

_NODE_ID_LABEL = "ray.io/node-id"
_ON_HEAD = {"node:__internal_head__": 0.001}
"""Resource of the head node alone. Affinity to a node would do, but Ray places actors without CPUs elsewhere if it is
soft, and a head node that was started anew has another id."""
_METHODS_AT_ONCE = 8
_CALLS_AT_ONCE = 64
_ASK_TIMEOUT_S = 2.0
_REMOVE_TIMEOUT_S = 20.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Placement:
    """A placement group: the resources of one server, once they are reserved on a node."""

    group: Any
    node_id: str | None
    """None until they are reserved."""


def reserve(fleet: str, number: int, resources: Mapping[str, float], avoid: Sequence[str]) -> Any:
    """Ask for the resources of a server on a node that is none of these; return the placement group at once."""
    selector = [{_NODE_ID_LABEL: f"!in({','.join(avoid)})"}] if avoid else None
    return placement_group(
        [dict(resources)],
        strategy="SPREAD",
        name=server_name(fleet, number),
        lifetime="detached",
        bundle_label_selector=selector,
    )


def wait_for_reservation(group: Any, timeout_s: float) -> bool:
    """Wait until a placement group has its resources; return False if that takes longer."""
    deadline_s = time.monotonic() + timeout_s
    while placement_group_table(group).get("state") != "CREATED":
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S / 5)
    return True


def list_placements(fleet: str) -> dict[int, Placement]:
    """Return the placement groups of a fleet, by the number of their server."""
    found = {}
    for entry in placement_group_table().values():
        number = parse_server_name(fleet, entry["name"])
        if number is not None and entry["state"] != "REMOVED":
            group = PlacementGroup(PlacementGroupID(bytes.fromhex(entry["placement_group_id"])))
            node = entry["bundles_to_node_id"].get(0) if entry["state"] == "CREATED" else None
            found[number] = Placement(group, node or None)
    return found


def release(group: Any) -> None:
    """Give the resources of a placement group back; Ray ends its actor with it."""
    remove_placement_group(group)


def create_server_actor(fleet: str, number: int, generation: int, resources: Mapping[str, float], group: Any) -> Any:
    """Create the actor of a server on the node that has its resources."""
    return (
        ray.remote(ServerActor)
        .options(
            name=server_name(fleet, number),
            namespace=NAMESPACE,
            lifetime="detached",
            max_restarts=0,  # the reconciler replaces it, perhaps elsewhere
            max_concurrency=_METHODS_AT_ONCE,
            num_cpus=resources["CPU"],
            num_gpus=resources.get("GPU", 0),
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
        )
        .remote(number, generation)
    )


def create_reconciler(reconciler: type, fleet: str, spec: Any, is_detached: bool) -> Any:
    """Create the reconciler of a fleet, on the head node: without that there is no Ray cluster anyway.

    ValueError if there is a fleet of that name.
    """
    return (
        ray.remote(reconciler)
        .options(
            name=reconciler_name(fleet),
            namespace=NAMESPACE,
            lifetime="detached" if is_detached else None,
            max_restarts=-1,
            max_concurrency=_CALLS_AT_ONCE,
            num_cpus=0,
            resources=_ON_HEAD,
        )
        .remote(spec)
    )


def find_server_actors(fleet: str) -> dict[int, Any]:
    """Return the handles of a fleet's server actors by number."""
    found = {}
    for name in list_actor_names():
        number = parse_server_name(fleet, name)
        if number is not None:
            try:
                found[number] = ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:  # it has just ended
                continue
    return found


def remove_all(fleet: str) -> None:
    """End all server actors of a fleet and give back their resources; wait until both are gone."""
    deadline_s = time.monotonic() + _REMOVE_TIMEOUT_S
    while True:
        actors, placements = find_server_actors(fleet), list_placements(fleet)
        if not actors and not placements:
            return
        for actor in actors.values():
            ray.kill(actor, no_restart=True)
        for placement in placements.values():
            release(placement.group)
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"actors of the fleet {fleet!r} did not end within {_REMOVE_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)


def request_from_autoscaler(fleet: str, bundles: Sequence[Mapping[str, float]]) -> None:
    """Ask Ray's autoscaler for the resources of this fleet and of all others: each request replaces the last."""
    others = []
    for name in list_fleets():
        if name != fleet:
            handle = ray.get_actor(reconciler_name(name), namespace=NAMESPACE)
            others += ray.get(handle.wanted_bundles.remote(), timeout=_ASK_TIMEOUT_S)
    request_resources(bundles=[*map(dict, bundles), *others])
