"""Reader of the file of `worldloom serve --cogment`: a cogment.yaml of Cogment 0.3 with some additional keys.

Keys that only control code generation are accepted and ignored. An error names the file and line, and is raised before
the server starts.
"""

from pathlib import Path
from typing import Any, NamedTuple, get_args

from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.server.cogment.files.world_section import ActorClass, parse_world_config
from worldloom.server.cogment.files.yaml_file import Entry, read_yaml
from worldloom.server.cogment.settings import (
    BUILT_IN,
    ENDPOINT_FORM,
    HUMAN,
    SCHEME,
    AgentFailure,
    TrialSettings,
    parse_endpoint,
)
from worldloom.server.config import Limits

_KEYS = (
    *("import", "commands", "components", "trial", "environment", "actor_classes", "trial_params", "datalog"),
    *("deadline_s", "on_agent_failure", "max_trials"),
)
_CLASS_KEYS = ("id", "action", "observation", "feedback", "message", "config_type")
_PARAMS_KEYS = ("environment", "actors", "max_steps", "max_inactivity")
_UINT32 = 2**32 - 1
_MAX_DEADLINE_S = 86_400.0
_MAX_TRIALS = 1_000_000


class _Datalog(NamedTuple):
    file: Path | None = None
    endpoint: str | None = None


def read_trial_file(path: Path, limits: Limits) -> TrialSettings:
    """Return the settings in a file; raise ConfigError if it cannot be read or is invalid."""
    return parse_trial_settings(read_yaml(path, "--cogment"), limits)


def parse_trial_settings(file: Entry, limits: Limits) -> TrialSettings:
    """Parse a whole file."""
    parts = file.section(_KEYS, required=("actor_classes", "trial_params"))
    classes = _parse_classes(parts["actor_classes"])
    trial = parts["trial"].section(("config_type", "pre_hooks")) if "trial" in parts else {}
    datalog = _parse_datalog(parts["datalog"]) if "datalog" in parts else _Datalog()
    return TrialSettings(
        actor_classes=tuple(classes),
        params=_parse_params(parts["trial_params"], classes, limits),
        pre_hooks=tuple(_parse_endpoint(one) for one in trial["pre_hooks"].items()) if "pre_hooks" in trial else (),
        datalog_file=datalog.file,
        datalog_endpoint=datalog.endpoint,
        **_parse_limits(parts),
    )


def _parse_limits(parts: dict[str, Entry]) -> dict[str, Any]:
    """Return the limits that are given; the others keep their defaults."""
    found: dict[str, Any] = {}
    if "deadline_s" in parts:
        found["deadline_s"] = parts["deadline_s"].seconds(_MAX_DEADLINE_S)
    if "on_agent_failure" in parts:
        found["on_agent_failure"] = parts["on_agent_failure"].choice(get_args(AgentFailure))
    if "max_trials" in parts:
        found["max_trials"] = parts["max_trials"].integer(1, _MAX_TRIALS)
    return found


def _parse_classes(section: Entry) -> dict[str, bool]:
    """Return the ids of the actor classes, each with whether its observations have a delta type."""
    found: dict[str, bool] = {}
    for one in section.items():
        parts = one.section(_CLASS_KEYS, required=("id",))
        name = parts["id"].text()
        if name in found:
            parts["id"].raise_expected("a unique id")
        observation = (
            parts["observation"].section(("space", "delta", "delta_apply_fn")) if "observation" in parts else {}
        )
        found[name] = "delta" in observation
    if not found:
        section.raise_expected("at least one actor class, for example - {id: player}")
    return found


def _parse_params(section: Entry, classes: dict[str, bool], limits: Limits) -> TrialParams:
    parts = section.section(_PARAMS_KEYS, required=("actors",))
    params = TrialParams()
    _parse_actors(parts["actors"], classes, params)
    for name in ("max_steps", "max_inactivity"):
        if name in parts:
            setattr(params, name, parts[name].integer(0, _UINT32))
    environment = parts["environment"].section(("endpoint", "config")) if "environment" in parts else {}
    params.environment.endpoint = (
        _parse_endpoint(environment["endpoint"], BUILT_IN) if "endpoint" in environment else BUILT_IN
    )
    if params.environment.endpoint == BUILT_IN:
        if "config" not in environment:
            parts.get("environment", section).fail(
                "key 'config' is missing in trial_params.environment: expected for example "
                "config: {world: {family: catch}, actor_classes: {player: {observations: [eye.rgb]}}}"
            )
        names = [one.actor_class for one in params.actors]
        counted = [ActorClass(name, names.count(name), has_deltas) for name, has_deltas in classes.items()]
        params.environment.config.content = parse_world_config(environment["config"], counted, parts["actors"], limits)
    elif "config" in environment:
        params.environment.config.content = environment["config"].data()
    return params


def _parse_actors(section: Entry, classes: dict[str, bool], params: TrialParams) -> None:
    for one in section.items():
        parts = one.section(("actor_class", "endpoint", "config"), required=("actor_class", "endpoint"))
        actor = params.actors.add(
            actor_class=parts["actor_class"].choice(classes), endpoint=_parse_endpoint(parts["endpoint"], HUMAN)
        )
        if "config" in parts:
            actor.config.content = parts["config"].data()
    if not params.actors:
        section.raise_expected("at least one actor, for example - {actor_class: player, endpoint: human}")


def _parse_datalog(section: Entry) -> _Datalog:
    """Parse a sink, or a list of sinks of different types."""
    found = _Datalog()
    for sink in section.items() if section.is_list else [section]:
        kind = sink.section(("type", "path", "url"), required=("type",))["type"].choice(("file", "grpc", "none"))
        if (kind == "file" and found.file) or (kind == "grpc" and found.endpoint):
            sink.fail(f"{sink.path} is the second of type {kind}: expected at most one of each type")
        if kind == "file":
            parts = sink.section(("type", "path"), required=("path",))
            found = found._replace(file=_parse_path(parts["path"]))
        elif kind == "grpc":
            parts = sink.section(("type", "url"), required=("url",))
            found = found._replace(endpoint=_parse_endpoint(parts["url"], default_scheme=SCHEME))
    return found


def _parse_path(given: Entry) -> Path:
    """Return the path of a file that can be created."""
    path = Path(given.text())
    if "\0" in str(path) or path.is_dir() or not path.parent.is_dir():
        given.raise_expected("a file in an existing folder")
    return path


def _parse_endpoint(given: Entry, *keywords: str, default_scheme: str = "") -> str:
    """Return an endpoint or one of the keywords; `default_scheme` is put before an endpoint without one."""
    text = given.text()
    if text in keywords:
        return text
    try:
        return SCHEME + parse_endpoint(text if "://" in text else default_scheme + text)
    except ValueError:
        given.raise_expected(" or ".join((*keywords, ENDPOINT_FORM)))
