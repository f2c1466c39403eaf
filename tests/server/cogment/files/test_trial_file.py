"""The file of `--cogment`: what it becomes, and that every mistake is told with its file and line."""

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dm_env_rpc.v1 import tensor_utils
from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos.worldloom import trials_pb2 as content
from worldloom.server.cogment.files import trial_file
from worldloom.server.cogment.files.trial_file import read_trial_file
from worldloom.server.cogment.files.yaml_file import YamlError
from worldloom.server.cogment.settings import TrialSettings
from worldloom.server.config import Limits
from worldloom.server.options import ConfigError

MAZE = """\
actor_classes:
  - id: player
    action: {space: worldloom.trials.Action}
    observation:
      space: worldloom.trials.Observation
      delta: worldloom.trials.ObservationDelta
      delta_apply_fn: {python: deltas.apply}
  - id: guide
trial_params:
  environment:
    endpoint: worldloom
    config:
      world:
        family: maze
        size: 7
        speed: 1
        seed: 18446744073709551615
      actor_classes:
        player:
          join: {width: 32, height: 24}
          observations: [eye.rgb, reward]
        guide:
          observations: [map.segmentation]
          deltas: false
  actors:
    - actor_class: guide
      endpoint: human
    - actor_class: player
      endpoint: grpc://agents:9001
      config: !!binary aGVsbG8=
    - {actor_class: player, endpoint: "grpc://[::1]:9001"}
  max_steps: 100
  max_inactivity: 5
"""
REAL = """\
import:
  proto: [data.proto, sub/other.proto]
  python: [delta]
commands:
  start: docker-compose up
components: {orchestrator: {version: v0.3}}
trial:
  config_type: game.TrialConfig
  pre_hooks:
    - grpc://supervisor:9000
environment:
  config_type: game.EnvConfig
actor_classes:
  - id: plane
    action: {space: game.PlaneAction}
    observation: {space: game.Observation, delta: game.Delta, delta_apply_fn: {python: delta.apply}}
    feedback: {space: game.Feedback}
    message: {space: game.Message}
    config_type: game.PlaneConfig
trial_params:
  environment:
    endpoint: grpc://env:9000
    config: !!binary AAECAw==
  actors:
    - actor_class: plane
      endpoint: human
      config:
datalog:
  type: grpc
  url: logger:9000
"""


def read(folder: Path, text: str) -> TrialSettings:
    path = folder / "trial.yaml"
    path.write_text(text, encoding="utf-8")
    return read_trial_file(path, Limits())


def mistake(folder: Path, text: str) -> str:
    with pytest.raises(YamlError) as caught:
        read(folder, text)
    told = str(caught.value)
    assert "\n" not in told
    return told.removeprefix(f"{folder}/")


def plain(tensors: Any) -> dict[str, object]:
    return {name: tensor_utils.unpack_tensor(tensor) for name, tensor in tensors.items()}


def test_a_world_of_this_server(tmp_path: Path) -> None:
    settings = read(tmp_path, MAZE)
    assert settings.actor_classes == ("player", "guide")
    params = settings.params
    assert (params.max_steps, params.max_inactivity) == (100, 5)
    assert [(one.actor_class, one.endpoint) for one in params.actors] == [
        ("guide", "human"),
        ("player", "grpc://agents:9001"),
        ("player", "grpc://[::1]:9001"),
    ]
    assert params.actors[1].config.content == b"hello"
    assert [one.HasField("config") for one in params.actors] == [False, True, False]
    assert params.environment.endpoint == "worldloom"
    config = content.EnvironmentConfig.FromString(params.environment.config.content)
    assert plain(config.world_settings) == {"family": "maze", "size": 7, "speed": 1.0, "seed": 2**64 - 1}
    player, guide = config.actor_classes
    assert (player.id, plain(player.join_settings)) == ("player", {"width": 32, "height": 24})
    assert list(player.requested_observations) == ["eye.rgb", "reward"]
    assert player.deltas
    assert (guide.id, list(guide.requested_observations), guide.deltas) == ("guide", ["map.segmentation"], False)
    assert (settings.pre_hooks, settings.datalog_file, settings.datalog_endpoint) == ((), None, None)


def test_a_file_of_the_real_layout(tmp_path: Path) -> None:
    settings = read(tmp_path, REAL)
    assert settings.actor_classes == ("plane",)
    assert settings.pre_hooks == ("grpc://supervisor:9000",)
    assert settings.datalog_endpoint == "grpc://logger:9000"
    assert settings.params.environment.endpoint == "grpc://env:9000"
    assert settings.params.environment.config.content == bytes(range(4))
    assert not settings.params.actors[0].HasField("config")
    assert settings == TrialSettings(
        ("plane",), settings.params, ("grpc://supervisor:9000",), datalog_endpoint="grpc://logger:9000"
    )


def test_what_worldloom_adds(tmp_path: Path) -> None:
    more = (
        "deadline_s: 2\non_agent_failure: idle\nmax_trials: 3\n"
        "datalog:\n- {type: file, path: log.bin}\n- {type: grpc, url: 'grpc://log:1'}\n- {type: none}\n"
    )
    settings = read(tmp_path, MAZE + more)
    assert (settings.deadline_s, settings.on_agent_failure, settings.max_trials) == (2.0, "idle", 3)
    assert (settings.datalog_file, settings.datalog_endpoint) == (Path("log.bin"), "grpc://log:1")


def test_the_environment_is_ours_where_no_other_is_named(tmp_path: Path) -> None:
    assert read(tmp_path, MAZE.replace("    endpoint: worldloom\n", "")) == read(tmp_path, MAZE)


def test_as_many_agents_as_actors(tmp_path: Path) -> None:
    assert (
        "agents"
        not in content.EnvironmentConfig.FromString(
            read(tmp_path, MAZE).params.environment.config.content
        ).world_settings
    )  # a hook may still change how many there are
    told = mistake(tmp_path, MAZE.replace("size: 7", "agents: 2"))
    assert told == (
        "trial.yaml:26: trial_params.actors has 3 actors: expected 2, as many as agents in this world of maze"
    )
    many = MAZE.replace(
        "  max_steps: 100\n", "    - {actor_class: player, endpoint: human}\n" * 6 + "  max_steps: 100\n"
    )
    assert mistake(tmp_path, many) == "trial.yaml:26: setting 'agents' is 9: expected an integer from 1 to 8"
    told = mistake(
        tmp_path, MAZE.replace("family: maze", "family: catch").replace("        size: 7\n        speed: 1\n", "")
    )
    assert told.startswith("trial.yaml:24: trial_params.actors has 3 actors: expected 1, as many as agents in this")


def test_what_all_actors_see_fits_into_a_reply(tmp_path: Path) -> None:
    read(tmp_path, MAZE)
    seen_bytes = 2 * (3 * 32 * 24 + 4) + 64 * 64
    assert read_trial_file(tmp_path / "trial.yaml", Limits(max_reply_bytes=seen_bytes)).actor_classes
    with pytest.raises(
        YamlError, match=rf"trial.yaml:13: the observations of all actors take {seen_bytes} bytes: expec"
    ):
        read_trial_file(tmp_path / "trial.yaml", Limits(max_reply_bytes=seen_bytes - 1))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("size: 7", "size: seven", "15: setting 'size' is 'seven': expected an integer from 5 to 31"),
        ("size: 7", "size: [7]", "15: trial_params.environment.config.world.size is a list: expected an integer from"),
        (
            "size: 7",
            "sise: 7",
            "15: unknown key 'sise' (did you mean 'size'?) in trial_params.environment.config.world",
        ),
        (
            "size: 7",
            "size: 7\n        size: 8",
            "16: key 'size' occurs twice in trial_params.environment.config.world",
        ),
        ("size: 7", "lanes: 4", "15: key 'lanes' in trial_params.environment.config.world: expected none, since"),
        ("family: maze", "family: mase", "14: unknown family 'mase' (did you mean 'maze'?): expected one of cartpole"),
        ("family: maze", "goals: 2", "14: key 'family' is missing in trial_params.environment.config.world: expected"),
        (
            "width: 32",
            "wdith: 32",
            "20: unknown key 'wdith' (did you mean 'width'?) in trial_params.environment.config.",
        ),
        (
            "width: 32",
            "agent: 0",
            "20: key 'agent' in trial_params.environment.config.actor_classes.player.join: expect",
        ),
        ("width: 32", "width: 0", "20: setting 'width' is 0: expected an integer from 1 to 8192"),
        ("width: 32, height: 24", "samples: 3", "20: setting 'samples' is 3: expected 1 or 4"),
        ("width: 32, height: 24", "width: 8192, height: 8192", "20: frames of 8192 × 8192 are 67108864 pixels"),
        (
            "{width: 32, height: 24}\n          observations: [eye.rgb,",
            "{width: 1024, height: 1024}\n          observations: [eye.rgb, eye.depth,",
            "20: the reply to a tick takes 73",
        ),
        ("eye.rgb", "eye.rbg", "21: trial_params.environment.config.actor_classes.player.observations[0] is 'eye.rbg'"),
        ("eye.rgb", "reward", "21: trial_params.environment.config.actor_classes.player.observations[1] is 'reward'"),
        (
            "deltas: false",
            "deltas: 0",
            "24: trial_params.environment.config.actor_classes.guide.deltas is '0': expected",
        ),
        ("        guide:", "        guyde:", "22: unknown key 'guyde' (did you mean 'guide'?)"),
        ("          observations: [map.segmentation]\n", "", "23: key 'observations' is missing in trial_params."),
        ("- id: guide", "- id: player", "8: actor_classes[1].id is 'player': expected a unique id"),
        ("- id: guide", "- name: guide", "8: unknown key 'name' in actor_classes[1]: expected some of id, action,"),
        (
            "actor_class: guide",
            "actor_class: guest",
            "26: trial_params.actors[0].actor_class is 'guest': expected one of",
        ),
        (
            "endpoint: human",
            "endpoint: client",
            "27: trial_params.actors[0].endpoint is 'client': expected human or grpc",
        ),
        (
            "endpoint: human",
            "endpoint: grpc://a",
            "27: trial_params.actors[0].endpoint is 'grpc://a': expected human or",
        ),
        ("endpoint: human", "endpoint: grpc://a:0", "27: trial_params.actors[0].endpoint is 'grpc://a:0': expected"),
        (
            "endpoint: human",
            "endpoint: worldloom",
            "27: trial_params.actors[0].endpoint is 'worldloom': expected human",
        ),
        (
            "endpoint: human",
            "config:",
            "26: key 'endpoint' is missing in trial_params.actors[0]: expected a value for it",
        ),
        (
            "!!binary aGVsbG8=",
            "{name: x}",
            "30: trial_params.actors[1].config is a mapping: expected config_type of actor class 'player' to name its",
        ),
        ("!!binary aGVsbG8=", "hello", "30: trial_params.actors[1].config is 'hello': expected a mapping, or bytes in"),
        ("!!binary aGVsbG8=", "!!binary ä", "30: trial_params.actors[1].config is bytes: expected a mapping, or byt"),
        (
            "max_steps: 100",
            "max_steps: -1",
            "32: trial_params.max_steps is '-1': expected a whole number from 0 to 429",
        ),
        ("max_steps: 100", "max_steps: true", "32: trial_params.max_steps is 'true': expected a whole number from 0"),
        ("max_steps: 100", f"max_steps: {'9' * 5000}", "32: trial_params.max_steps is '9999"),
        ("max_steps: 100", "max_step: 100", "32: unknown key 'max_step' (did you mean 'max_steps'?) in trial_params"),
        (
            "max_inactivity: 5",
            "max_inactivity: 5\ndeadline_s: 0",
            "34: deadline_s is '0': expected a number of seconds",
        ),
        ("max_inactivity: 5", "max_inactivity: 5\ndeadline_s: .inf", "34: deadline_s is '.inf': expected a number of"),
        (
            "max_inactivity: 5",
            "max_inactivity: 5\nmax_trials: 0",
            "34: max_trials is '0': expected a whole number from",
        ),
        (
            "max_inactivity: 5",
            "max_inactivity: 5\non_agent_failure: die",
            "34: on_agent_failure is 'die': expected one",
        ),
        ("max_steps: 100", "max_steps: 100\n  deadline_s: 1", "33: unknown key 'deadline_s' in trial_params: expected"),
        (
            "endpoint: worldloom",
            "endpoint: grpc://e:1",
            "13: trial_params.environment.config is a mapping: expected environment.config_type to name",
        ),
        (
            "endpoint: worldloom",
            "endpoint: worldlom",
            "11: trial_params.environment.endpoint is 'worldlom': expected wo",
        ),
        ("- id: guide", "- id: [guide]", "8: actor_classes[1].id is a list: expected a text"),
        ("- id: guide", "- {{a: b}: c}", "8: a key in actor_classes[1] is a mapping: expected a text"),
        ("- id: guide", "- &a [*a]", "8: actor_classes[1] is a list: expected a mapping"),
        ("- id: guide", "- id: !!python/object:os.system x", "8: actor_classes[1].id is 'x': expected a text"),
    ],
)
def test_mistakes(before: str, after: str, told: str, tmp_path: Path) -> None:
    assert MAZE.count(before) == 1
    assert mistake(tmp_path, MAZE.replace(before, after)).startswith(f"trial.yaml:{told}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "1: the file is empty: expected actor_classes and trial_params"),
        ("# nothing\n", "1: the file is empty: expected actor_classes and trial_params"),
        ("- a\n", "1: the file is a list: expected a mapping"),
        ("actor_classes: [{id: a}]\n", "1: key 'trial_params' is missing: expected a value for it"),
        (
            "actor_classes: []\ntrial_params: {}\n",
            "1: actor_classes is an empty list: expected at least one actor class",
        ),
        (
            "actor_classes: [{id: a}]\ntrial_params: {actors: []}",
            "2: trial_params.actors is an empty list: expected at",
        ),
        ("actor_classes: [{id: a}]\ntrial_params: {actors: [{actor_class: a, endpoint: human}]}", "2: key 'config' is"),
        ("a: 1\na: 2\n", "2: key 'a' occurs twice: expected it once"),
        ("a: [1\nb: 2\n", "2: not YAML: expected ',' or ']', but got"),
        ("a: *b\n", "1: not YAML: found undefined alias"),
        ("a: \x07\n", "1: not YAML: special characters are not allowed"),
        ("a: 1\n---\nb: 2\n", "2: not YAML: but found another document"),
        ("[" * 500, "1: nested too deeply: expected a few levels"),
    ],
)
def test_files_that_are_none(text: str, told: str, tmp_path: Path) -> None:
    assert mistake(tmp_path, text).startswith(f"trial.yaml:{told}")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{type: kafka}", "datalog.type is 'kafka': expected one of file, raw, grpc, none"),
        ("{type: raw}", "key 'file' is missing in datalog"),
        ("{type: raw, file: out, path: out}", "unknown key 'path' in datalog: expected some of type, file, fields"),
        (
            "{type: raw, file: out, fields: {exclude: [game.Observation.pixels]}}",
            "datalog.fields.exclude is given: expected none, since all fields are recorded",
        ),
        ("{type: file}", "key 'path' is missing in datalog"),
        ("{type: file, path: nowhere/log}", "datalog.path is 'nowhere/log': expected a file in an existing folder"),
        ("{type: file, path: /tmp}", "datalog.path is '/tmp': expected a file in an existing folder"),
        ('{type: file, path: "\\0"}', "datalog.path is '\\x00': expected a file"),
        ("{type: grpc, path: a}", "unknown key 'path' in datalog: expected some of type, url"),
        ("{type: grpc, url: 'http://a:1'}", "datalog.url is 'http://a:1': expected grpc://HOST:PORT"),
        ("{type: grpc, url: 'a:1', fields: {exclude: [time]}}", "unknown key 'fields' in datalog"),
        (
            "[{type: file, path: a}, {type: file, path: b}]",
            "datalog[1] is the second of type file: expected at most one of",
        ),
        ("grpc", "datalog is 'grpc': expected a mapping"),
    ],
)
def test_mistakes_in_the_datalog(given: str, told: str, tmp_path: Path) -> None:
    assert mistake(tmp_path, f"{MAZE}datalog: {given}\n").startswith(f"trial.yaml:34: {told}")


def test_a_class_whose_actors_see_nothing(tmp_path: Path) -> None:
    text = MAZE.replace("        guide:\n          observations: [map.segmentation]\n          deltas: false\n", "")
    assert mistake(tmp_path, text).startswith(
        "trial.yaml:13: actor class 'guide' has no observations: expected for example actor"
    )
    nobody = text.replace("    - actor_class: guide\n      endpoint: human\n", "")
    config = content.EnvironmentConfig.FromString(read(tmp_path, nobody).params.environment.config.content)
    assert [one.id for one in config.actor_classes] == ["player", "guide"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--cogment .*/trial.yaml cannot be read: No such file or directory"):
        read_trial_file(tmp_path / "trial.yaml", Limits())
    (tmp_path / "trial.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match=r"trial.yaml:2: not UTF-8: expected text in UTF-8"):
        read_trial_file(tmp_path / "trial.yaml", Limits())
    (tmp_path / "trial.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match=r"is longer than 1048576 bytes"):
        read_trial_file(tmp_path / "trial.yaml", Limits())


SCALARS = st.sampled_from(
    [
        *("human", "worldloom", "grpc://a:1", "player", "maze", "catch", "reward", "eye.rgb", "7", "-1", "1e400"),
        *(".nan", "", "~", "true", "!!binary YQ==", "!!binary '*'", "!!int ''", "!!float x", "!!bool x", "1:1:1"),
        *("!!timestamp x", "2020-99-99", "0x", "0b2", "!!null x", "!!set {a}", "!!omap [a]", "<<", "*x", "&x y"),
        *("!a b", "'", "%", "\t"),
    ]
) | st.text(max_size=6)
KEYS = [*sorted(set(re.findall(r"(\w+):", MAZE + REAL))), "<<", "agents", "lanes", "samples", "path"]
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda ones: f"[{', '.join(ones)}]")
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"
        )
    ),
    max_leaves=8,
)


def takes_or_tells(folder: Path, text: str) -> None:
    with contextlib.suppress(YamlError), contextlib.suppress(UnicodeEncodeError):
        read(folder, text)


@given(st.text())
def test_any_text_is_settings_or_a_mistake(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    takes_or_tells(tmp_path_factory.getbasetemp(), text)


@given(st.integers(0, MAZE.count("\n")), TREES)
def test_any_value_in_any_place_is_taken_or_told(
    tmp_path_factory: pytest.TempPathFactory, line: int, tree: str
) -> None:
    lines = MAZE.splitlines()
    if line < len(lines):
        head, colon, _ = lines[line].partition(":")
        lines[line] = f"{head}{colon} {tree}"
    else:
        lines.append(tree)
    takes_or_tells(tmp_path_factory.getbasetemp(), "\n".join(lines))


@given(st.dictionaries(st.sampled_from(KEYS), TREES, max_size=5))
def test_any_tree_is_taken_or_told(tmp_path_factory: pytest.TempPathFactory, pairs: dict[str, str]) -> None:
    takes_or_tells(tmp_path_factory.getbasetemp(), "\n".join(f"{key}: {value}" for key, value in pairs.items()))


def test_the_page_names_every_key() -> None:
    page = (Path(__file__).parents[4] / "docs/cogment.md").read_text()
    known = {*trial_file._KEYS, *trial_file._CLASS_KEYS, *trial_file._PARAMS_KEYS}
    known |= {
        "pre_hooks",
        "space",
        "delta",
        "delta_apply_fn",
        "endpoint",
        "config",
        "actor_class",
        "type",
        "path",
        "url",
        "file",
        "instances",
        "count",
        "proto",
        "reward_confidence",
        "zero_reward_confidence",
    }
    known |= {"world", "join", "observations", "deltas", "width", "height", "samples", "max_reply_bytes", "family"}
    named = {word for code in re.findall(r"`([^`\n]+)`", page) for word in re.findall(r"\w+", code)}
    assert known - named == set()


def test_aliases_cost_nothing(tmp_path: Path) -> None:
    """Ten to the power of nine texts, if they were written out."""
    laughs = "a0: &a0 [" + "ha, " * 10 + "]\n"
    laughs += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    assert mistake(tmp_path, laughs).startswith("trial.yaml:1: unknown key 'a0'")
    inside = MAZE.replace(
        "- id: guide", "- id: guide\n    config_type: &x\n" + "".join(f"      {line}\n" for line in laughs.splitlines())
    )
    assert read(tmp_path, inside).actor_classes == ("player", "guide")
    assert yaml.compose(inside) is not None
