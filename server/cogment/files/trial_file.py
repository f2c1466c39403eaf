"""The file of `worldloom serve --cogment`: a cogment.yaml of the 0.3 layout, and what worldloom adds to it.

Keys that only say how code is generated are taken and left alone. A mistake is told with its file and line, and nothing
starts.
"""

from pathlib import Path
from typing import Any, NamedTuple, get_args

from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.server.cogment.files.world_section import ActorClass, read_world_config
from worldloom.server.cogment.files.yaml_file import Entry, read_yaml
from worldloom.server.cogment.orchestrator.connections import EXPECTED, SCHEME, target_of
from worldloom.server.cogment.settings import BUILT_IN, HUMAN, AgentFailure, TrialSettings
from worldloom.server.config import Limits

_KEYS = (
    *("import", "commands", "components", "trial", "environment", "actor_classes", "trial_params", "datalog"),
    *("deadline_s", "on_agent_failure", "max_trials"),
)
_CLASS_KEYS = ("id", "action", "observation", "feedback", "message", "config_type")
_PARAMS_KEYS = ("environment", "actors", "max_steps", "max_inactivity")
_UINT32 = 2**32 - 1
_LONGEST_DEADLINE_S = 86_400.0
_MOST_TRIALS = 1_000_000


class _Datalog(NamedTuple):
    file: Path | None = None
    endpoint: str | None = None


def read_trial_file(path: Path, limits: Limits) -> TrialSettings:
    """What a file says. One that cannot be read or taken raises ConfigError."""
    return take_trials(read_yaml(path, "--cogment"), limits)


def take_trials(file: Entry, limits: Limits) -> TrialSettings:
    """What the whole of a file says."""
    parts = file.section(_KEYS, required=("actor_classes", "trial_params"))
    classes = _read_classes(parts["actor_classes"])
    trial = parts["trial"].section(("config_type", "pre_hooks")) if "trial" in parts else {}
    datalog = _read_datalog(parts["datalog"]) if "datalog" in parts else _Datalog()
    return TrialSettings(
        actor_classes=tuple(classes),
        params=_read_params(parts["trial_params"], classes, limits),
        pre_hooks=tuple(_endpoint(one) for one in trial["pre_hooks"].items()) if "pre_hooks" in trial else (),
        datalog_file=datalog.file,
        datalog_endpoint=datalog.endpoint,
        **_read_limits(parts),
    )


def _read_limits(parts: dict[str, Entry]) -> dict[str, Any]:
    """Those that are given; the others have their defaults."""
    found: dict[str, Any] = {}
    if "deadline_s" in parts:
        found["deadline_s"] = parts["deadline_s"].seconds(_LONGEST_DEADLINE_S)
    if "on_agent_failure" in parts:
        found["on_agent_failure"] = parts["on_agent_failure"].choice(get_args(AgentFailure))
    if "max_trials" in parts:
        found["max_trials"] = parts["max_trials"].whole(1, _MOST_TRIALS)
    return found


def _read_classes(section: Entry) -> dict[str, bool]:
    """The ids of the actor classes, and whether their observations have a type for deltas."""
    found: dict[str, bool] = {}
    for one in section.items():
        parts = one.section(_CLASS_KEYS, required=("id",))
        name = parts["id"].text()
        if name in found:
            parts["id"].refuse("an id of its own")
        seen = parts["observation"].section(("space", "delta", "delta_apply_fn")) if "observation" in parts else {}
        found[name] = "delta" in seen
    if not found:
        section.refuse("at least one actor class, such as - {id: player}")
    return found


def _read_params(section: Entry, classes: dict[str, bool], limits: Limits) -> TrialParams:
    parts = section.section(_PARAMS_KEYS, required=("actors",))
    params = TrialParams()
    _read_actors(parts["actors"], classes, params)
    for name in ("max_steps", "max_inactivity"):
        if name in parts:
            setattr(params, name, parts[name].whole(0, _UINT32))
    environment = parts["environment"].section(("endpoint", "config")) if "environment" in parts else {}
    params.environment.endpoint = (
        _endpoint(environment["endpoint"], BUILT_IN) if "endpoint" in environment else BUILT_IN
    )
    if params.environment.endpoint == BUILT_IN:
        if "config" not in environment:
            parts.get("environment", section).fail(
                "key 'config' is missing in trial_params.environment: expected such as "
                "config: {world: {family: catch}, actor_classes: {player: {observations: [eye.rgb]}}}"
            )
        chosen = [one.actor_class for one in params.actors]
        counted = [ActorClass(name, chosen.count(name), has_deltas) for name, has_deltas in classes.items()]
        params.environment.config.content = read_world_config(environment["config"], counted, parts["actors"], limits)
    elif "config" in environment:
        params.environment.config.content = environment["config"].data()
    return params


def _read_actors(section: Entry, classes: dict[str, bool], params: TrialParams) -> None:
    for one in section.items():
        parts = one.section(("actor_class", "endpoint", "config"), required=("actor_class", "endpoint"))
        actor = params.actors.add(
            actor_class=parts["actor_class"].choice(classes), endpoint=_endpoint(parts["endpoint"], HUMAN)
        )
        if "config" in parts:
            actor.config.content = parts["config"].data()
    if not params.actors:
        section.refuse("at least one actor, such as - {actor_class: player, endpoint: human}")


def _read_datalog(section: Entry) -> _Datalog:
    """A sink, or a list of sinks of different types."""
    found = _Datalog()
    for sink in section.items() if section.is_list else [section]:
        kind = sink.section(("type", "path", "url"), required=("type",))["type"].choice(("file", "grpc", "none"))
        if (kind == "file" and found.file) or (kind == "grpc" and found.endpoint):
            sink.fail(f"{sink.called} is the second of type {kind}: expected one of each at most")
        if kind == "file":
            parts = sink.section(("type", "path"), required=("path",))
            found = found._replace(file=_path(parts["path"]))
        elif kind == "grpc":
            parts = sink.section(("type", "url"), required=("url",))
            found = found._replace(endpoint=_endpoint(parts["url"], scheme=SCHEME))
    return found


def _path(given: Entry) -> Path:
    """A file that can be made."""
    path = Path(given.text())
    if "\0" in str(path) or path.is_dir() or not path.parent.is_dir():
        given.refuse("a file in a folder that is there")
    return path


def _endpoint(given: Entry, *also: str, scheme: str = "") -> str:
    """An endpoint, or one of some words; `scheme` is what goes without saying."""
    text = given.text()
    if text in also:
        return text
    try:
        return SCHEME + target_of(text if "://" in text else scheme + text)
    except ValueError:
        given.refuse(" or ".join((*also, EXPECTED)))
