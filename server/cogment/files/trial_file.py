"""Reader of the file of `worldloom serve --cogment`: a cogment.yaml of Cogment 0.3 with some additional keys.

Two layouts of that file exist. In one, `actor_classes` lists the classes and `trial_params.actors` the actors; in the
older one, which the manual of 0.3 has, `actors` lists both, and `environment.url` is the endpoint of the environment.
Keys that only control code generation are accepted and ignored. An error names the file and line, and is raised before
the server starts.
"""

from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_args

from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.server.cogment.files.message_types import MessageTypes
from worldloom.server.cogment.files.world_section import ActorClass, parse_world_config
from worldloom.server.cogment.files.yaml_file import Entry, read_yaml
from worldloom.server.cogment.settings import (
    BUILT_IN,
    ENDPOINT_FORM,
    HUMAN,
    SCHEME,
    ActorIds,
    AgentFailure,
    TrialSettings,
    parse_endpoint,
)
from worldloom.server.config import Limits
from worldloom.server.logs import Log

log = Log("trials")

_KEYS = (
    *("import", "commands", "components", "trial", "environment", "actor_classes", "actors", "trial_params", "datalog"),
    *("actor_ids", "deadline_s", "on_agent_failure", "max_trials"),
)
_CLASS_KEYS = ("action", "observation", "feedback", "message", "config_type")
_MAX_COUNT = 4096
"""Maximum of `count`, the number of equal actors."""
_PARAMS_KEYS = ("environment", "actors", "max_steps", "max_inactivity")
_UINT32 = 2**32 - 1
_MAX_DEADLINE_S = 86_400.0
_MAX_TRIALS = 1_000_000


class _Datalog(NamedTuple):
    file: Path | None = None
    endpoint: str | None = None


class _ActorClass(NamedTuple):
    has_deltas: bool
    """True if its observations have a delta type."""
    config_type: Entry | None
    """Message type of the configurations of its actors."""


_Classes: TypeAlias = dict[str, _ActorClass]


def read_trial_file(path: Path, limits: Limits) -> TrialSettings:
    """Return the settings in a file; raise ConfigError if it cannot be read or is invalid."""
    return parse_trial_settings(read_yaml(path, "--cogment"), limits, path.parent)


def parse_trial_settings(file: Entry, limits: Limits, folder: Path = Path()) -> TrialSettings:
    """Parse a whole file, whose imports are in a folder."""
    parts = file.section(_KEYS)
    has_old_layout = "actors" in parts
    if has_old_layout and "actor_classes" in parts:
        parts["actors"].fail("keys 'actors' and 'actor_classes' are given: expected one of them")
    if not has_old_layout:
        file.section(_KEYS, required=("actor_classes", "trial_params"))
    types = MessageTypes(folder, _values(parts, "import").get("proto"))
    params = TrialParams()
    if has_old_layout:
        actors = parts["actors"]
        classes = _parse_old_actors(actors, params)
    else:
        classes = _parse_classes(parts["actor_classes"])
        actors = parts["trial_params"].section(_PARAMS_KEYS, required=("actors",))["actors"]
        _parse_actors(actors, classes, types, params)
    _parse_params(parts, classes, actors, types, params, limits)
    trial = parts["trial"].section(("config_type", "pre_hooks")) if "trial" in parts else {}
    datalog = _parse_datalog(parts["datalog"]) if "datalog" in parts else _Datalog()
    _warn_of_order(params, classes, parts)
    return TrialSettings(
        actor_classes=tuple(classes),
        params=params,
        pre_hooks=tuple(_parse_endpoint(one) for one in trial["pre_hooks"].items()) if "pre_hooks" in trial else (),
        datalog_file=datalog.file,
        datalog_endpoint=datalog.endpoint,
        **_parse_limits(parts),
    )


def _values(parts: dict[str, Entry], name: str) -> dict[str, Entry]:
    """Return the values of a section that may have any keys."""
    given = parts[name].mapping() if name in parts else {}
    return {key: value for key, (_, value) in given.items() if not value.is_empty}


def _warn_of_order(params: TrialParams, classes: _Classes, parts: dict[str, Entry]) -> None:
    in_file = [actor.actor_class for actor in params.actors]
    by_class = [name for name in classes for _ in range(in_file.count(name))]
    if in_file != by_class and "actor_ids" not in parts:
        log.warning(
            "actor ids differ from the order of the file",
            ids=", ".join(by_class[:20]),
            file=", ".join(in_file[:20]),
            expected="actors of a class together, or actor_ids: class_order or file_order to choose",
        )


def _parse_limits(parts: dict[str, Entry]) -> dict[str, Any]:
    """Return the limits that are given; the others keep their defaults."""
    found: dict[str, Any] = {}
    if "deadline_s" in parts:
        found["deadline_s"] = parts["deadline_s"].seconds(_MAX_DEADLINE_S)
    if "actor_ids" in parts:
        found["actor_ids"] = parts["actor_ids"].choice(get_args(ActorIds))
    if "on_agent_failure" in parts:
        found["on_agent_failure"] = parts["on_agent_failure"].choice(get_args(AgentFailure))
    if "max_trials" in parts:
        found["max_trials"] = parts["max_trials"].integer(1, _MAX_TRIALS)
    return found


def _parse_classes(section: Entry) -> _Classes:
    """Return the actor classes by id."""
    found: _Classes = {}
    for one in section.items():
        parts = one.section(("id", *_CLASS_KEYS), required=("id",))
        name = parts["id"].text()
        if name in found:
            parts["id"].raise_expected("a unique id")
        found[name] = _parse_class(parts)
    if not found:
        section.raise_expected("at least one actor class, for example - {id: player}")
    return found


def _parse_class(parts: dict[str, Entry]) -> _ActorClass:
    observation = parts["observation"].section(("space", "delta", "delta_apply_fn")) if "observation" in parts else {}
    return _ActorClass("delta" in observation, parts.get("config_type"))


def _parse_old_actors(section: Entry, params: TrialParams) -> _Classes:
    """Add the actors of the older layout to the parameters; return their classes by id."""
    found: _Classes = {}
    for name, (_, one) in section.mapping().items():
        parts = one.section(("instances", *_CLASS_KEYS), required=("instances",))
        found[name] = _parse_class(parts)
        for instance in parts["instances"].items():
            given = instance.section(("type", "url", "count"), required=("type",))
            is_human = given["type"].choice((HUMAN, "agent")) == HUMAN
            if is_human and "url" in given:
                given["url"].fail(f"key 'url' in {instance.path}: expected none, since a human has no endpoint")
            endpoint = HUMAN if is_human else _parse_url(instance.section(tuple(given), required=("url",))["url"])
            for _ in range(given["count"].integer(0, _MAX_COUNT) if "count" in given else 1):
                params.actors.add(actor_class=name, endpoint=endpoint)
    if not params.actors:
        section.raise_expected("at least one actor, for example player: {instances: [{type: human, count: 1}]}")
    return found


def _parse_params(
    parts: dict[str, Entry], classes: _Classes, actors: Entry, types: MessageTypes, params: TrialParams, limits: Limits
) -> None:
    """Add all but the actors to the parameters."""
    keys = _PARAMS_KEYS if "actors" not in parts else tuple(key for key in _PARAMS_KEYS if key != "actors")
    given = parts["trial_params"].section(keys) if "trial_params" in parts else {}
    for name in ("max_steps", "max_inactivity"):
        if name in given:
            setattr(params, name, given[name].integer(0, _UINT32))
    described = _values(parts, "environment")
    environment = given["environment"].section(("endpoint", "config")) if "environment" in given else {}
    if "url" in described and "endpoint" in environment:
        described["url"].fail("environment.url and trial_params.environment.endpoint are given: expected one of them")
    params.environment.endpoint = BUILT_IN
    if "endpoint" in environment:
        params.environment.endpoint = _parse_endpoint(environment["endpoint"], BUILT_IN)
    elif "url" in described:
        params.environment.endpoint = _parse_url(described["url"])
    if params.environment.endpoint != BUILT_IN:
        if "config" in environment:
            config_type = described.get("config_type", described.get("config"))
            content = types.encode(environment["config"], config_type, "environment.config_type")
            params.environment.config.content = content
        return
    if "config" not in environment:
        given.get("environment", parts.get("trial_params", actors)).fail(
            "key 'config' is missing in trial_params.environment: expected for example "
            "config: {world: {family: catch}, actor_classes: {player: {observations: [eye.rgb]}}}"
        )
    names = [one.actor_class for one in params.actors]
    counted = [ActorClass(name, names.count(name), one.has_deltas) for name, one in classes.items()]
    params.environment.config.content = parse_world_config(environment["config"], counted, actors, limits)


def _parse_actors(section: Entry, classes: _Classes, types: MessageTypes, params: TrialParams) -> None:
    for one in section.items():
        parts = one.section(("actor_class", "endpoint", "config"), required=("actor_class", "endpoint"))
        actor = params.actors.add(
            actor_class=parts["actor_class"].choice(classes), endpoint=_parse_endpoint(parts["endpoint"], HUMAN)
        )
        if "config" in parts:
            type_key = f"config_type of actor class {actor.actor_class!r}"
            actor.config.content = types.encode(parts["config"], classes[actor.actor_class].config_type, type_key)
    if not params.actors:
        section.raise_expected("at least one actor, for example - {actor_class: player, endpoint: human}")


def _parse_datalog(section: Entry) -> _Datalog:
    """Parse a sink, or a list of sinks of different types."""
    found = _Datalog()
    for sink in section.items() if section.is_list else [section]:
        parts = sink.section(("type", "path", "file", "url", "fields"), required=("type",))
        kind = parts["type"].choice(("file", "raw", "grpc", "none"))
        if (kind in ("file", "raw") and found.file) or (kind == "grpc" and found.endpoint):
            sink.fail(f"{sink.path} is the second of type {kind}: expected at most one of each type")
        if kind == "file":
            parts = sink.section(("type", "path"), required=("path",))
            found = found._replace(file=_parse_path(parts["path"]))
        elif kind == "raw":
            parts = sink.section(("type", "file", "fields"), required=("file",))
            fields = parts["fields"].section(("exclude",)) if "fields" in parts else {}
            if "exclude" in fields and fields["exclude"].items():
                fields["exclude"].fail(
                    f"{fields['exclude'].path} is given: expected none, since all fields are recorded"
                )
            found = found._replace(file=_parse_path(parts["file"]))
        elif kind == "grpc":
            parts = sink.section(("type", "url"), required=("url",))
            found = found._replace(endpoint=_parse_url(parts["url"]))
    return found


def _parse_path(given: Entry) -> Path:
    """Return the path of a file that can be created."""
    path = Path(given.text())
    if "\0" in str(path) or path.is_dir() or not path.parent.is_dir():
        given.raise_expected("a file in an existing folder")
    return path


def _parse_url(given: Entry) -> str:
    """Return an endpoint that may be without its scheme."""
    return _parse_endpoint(given, default_scheme=SCHEME)


def _parse_endpoint(given: Entry, *keywords: str, default_scheme: str = "") -> str:
    """Return an endpoint or one of the keywords; `default_scheme` is put before an endpoint without one."""
    text = given.text()
    if text in keywords:
        return text
    try:
        return SCHEME + parse_endpoint(text if "://" in text else default_scheme + text)
    except ValueError:
        given.raise_expected(" or ".join((*keywords, ENDPOINT_FORM)))
