"""Files of Cogment projects as they are: the layout of the manual, message types of one's own, the order of actors."""

import base64
import logging
import os
import re
from pathlib import Path

import pytest

from tests.server.cogment.sdk.programs import PYTHON
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.files.trial_file import read_trial_file
from worldloom.server.cogment.files.yaml_file import YamlError
from worldloom.server.cogment.settings import TrialSettings, parse_actors
from worldloom.server.config import Limits

MANUAL = """\
import:
  proto:
    - data.proto
  python:
    - delta
environment:
  url: environment:9000
  config: game.EnvConfig
datalog:
  type: raw
  file: {folder}/datalog.bin
  fields:
    exclude: []
actors:
  teacher:
    observation:
      space: game.Observation
    action:
      space: game.TeacherAction
    instances:
      - type: human
        count: 1
  plane:
    observation:
      space: game.Observation
      delta: game.Delta
      delta_apply_fn:
        python: delta.apply
    action:
      space: game.PlaneAction
    instances:
      - type: agent
        url: planes:9000
        count: 2
      - type: human
      - type: agent
        url: grpc://others:9001
        count: 1
"""
"""Every key of the manual of that version."""
PROTO = """\
syntax = "proto3";
package game;
import "shapes.proto";
message EnvConfig {
  int32 size = 1;
  Colour colour = 2;
  repeated double weights = 3;
  map<string, Shape> shapes = 4;
}
message PilotConfig { string name = 1; }
enum Colour { RED = 0; BLUE = 1; }
"""
SHAPES = """\
syntax = "proto3";
package game;
message Shape { float side_m = 1; }
"""
OWN = """\
import: {{proto: [data.proto]}}
environment: {{config_type: game.EnvConfig}}
actor_classes:
  - {{id: pilot, config_type: game.PilotConfig}}
  - {{id: guest}}
trial_params:
  environment:
    endpoint: grpc://environment:9000
    config: {config}
  actors:
    - {{actor_class: pilot, endpoint: human, config: {{name: Ada}}}}
    - {{actor_class: pilot, endpoint: human, config: !!binary CgNCb2I=}}
"""


def read(folder: Path, text: str) -> TrialSettings:
    (folder / "trial.yaml").write_text(text)
    return read_trial_file(folder / "trial.yaml", Limits())


def mistake(folder: Path, text: str) -> str:
    with pytest.raises(YamlError) as caught:
        read(folder, text)
    told = str(caught.value)
    assert "\n" not in told
    return told.removeprefix(f"{folder}/trial.yaml:")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a project's messages, and a compiler for them: that of the Cogment SDK's environment."""
    (tmp_path / "data.proto").write_text(PROTO)
    (tmp_path / "shapes.proto").write_text(SHAPES)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "protoc").write_text(f'#!/bin/sh\nexec "{PYTHON}" -m grpc_tools.protoc "$@"\n')
    (programs / "protoc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_the_layout_of_the_manual(tmp_path: Path) -> None:
    settings = read(tmp_path, MANUAL.format(folder=tmp_path))
    assert settings.actor_classes == ("teacher", "plane")
    assert [(one.actor_class, one.endpoint) for one in settings.params.actors] == [
        ("teacher", "human"),
        ("plane", "grpc://planes:9000"),
        ("plane", "grpc://planes:9000"),
        ("plane", "human"),
        ("plane", "grpc://others:9001"),
    ]
    assert settings.params.environment.endpoint == "grpc://environment:9000"
    assert not settings.params.environment.HasField("config")
    assert settings.datalog_file == tmp_path / "datalog.bin"


def test_the_layout_of_the_manual_with_a_world_of_this_server(tmp_path: Path) -> None:
    text = MANUAL.format(folder=tmp_path).replace("  url: environment:9000\n", "")
    world = """\
trial_params:
  max_steps: 7
  environment:
    config:
      world: {family: maze}
      actor_classes: {teacher: {observations: [map.rgb]}, plane: {observations: [reward]}}
"""
    settings = read(tmp_path, text + world)
    assert (settings.params.environment.endpoint, settings.params.max_steps) == ("worldloom", 7)
    config = trials_pb2.EnvironmentConfig.FromString(settings.params.environment.config.content)
    assert [(one.id, one.deltas) for one in config.actor_classes] == [("teacher", False), ("plane", True)]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "type: human\n        count: 1",
            "type: robot",
            "21: actors.teacher.instances[0].type is 'robot': expected one of",
        ),
        ("        url: planes:9000\n", "", "32: key 'url' is missing in actors.plane.instances[0]"),
        (
            "      - type: human\n      -",
            "      - {type: human, url: a:1}\n      -",
            "35: key 'url' in actors.plane.inst",
        ),
        ("planes:9000", "planes", "33: actors.plane.instances[0].url is 'planes': expected grpc://HOST:PORT"),
        (
            "count: 2",
            "count: -1",
            "34: actors.plane.instances[0].count is '-1': expected a whole number from 0 to 4096",
        ),
        (
            "    instances:\n      - type: human\n        count: 1\n",
            "",
            "16: key 'instances' is missing in actors.teacher",
        ),
        ("actors:\n", "actor_classes: [{id: a}]\nactors:\n", "16: keys 'actors' and 'actor_classes' are given"),
        (
            "actors:\n",
            "trial_params: {environment: {endpoint: 'grpc://a:1'}}\nactors:\n",
            "7: environment.url and trial_params.environment.endpoint are given: expected one of them",
        ),
        ("actors:\n", "trial_params: {actors: []}\nactors:\n", "14: unknown key 'actors' in trial_params"),
    ],
)
def test_mistakes_in_the_layout_of_the_manual(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = MANUAL.format(folder=tmp_path)
    assert old in text
    assert told in mistake(tmp_path, text.replace(old, new, 1))


def test_configurations_are_encoded_with_the_projects_own_messages(project: Path) -> None:
    config = "{size: 7, colour: BLUE, weights: [0.5, 2], shapes: {box: {side_m: 1.5}}}"
    params = read(project, OWN.format(config=config)).params
    # Compared with bytes written out by hand, field by field.
    assert params.environment.config.content == (
        b"\x08\x07\x10\x01\x1a\x10"
        + bytes.fromhex("000000000000e03f0000000000000040")
        + b"\x22\x0c\x0a\x03box\x12\x05\x0d\x00\x00\xc0\x3f"
    )
    assert [one.config.content for one in params.actors] == [b"\x0a\x03Ada", b"\x0a\x03Bob"]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("{seize: 7}", "9: trial_params.environment.config is not a game.EnvConfig: "),
        ("{size: large}", "9: trial_params.environment.config is not a game.EnvConfig: "),
        ("{1: 2}", "9: trial_params.environment.config is not a game.EnvConfig: "),
        ("[7]", "9: trial_params.environment.config is a list: expected a mapping, or bytes in base64"),
    ],
)
def test_configurations_that_are_none_of_that_message(project: Path, config: str, told: str) -> None:
    assert mistake(project, OWN.format(config=config)).startswith(told)


def test_messages_that_cannot_be_found(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = OWN.format(config="{size: 7}")
    told = mistake(project, text.replace("game.EnvConfig", "game.Nothing"))
    assert told == (
        "2: environment.config_type is 'game.Nothing': expected a message type of the files in import.proto, with its "
        "package"
    )
    told = mistake(project, text.replace("import: {proto: [data.proto]}\n", ""))
    assert "expected import.proto to list the .proto files of its message type" in told
    told = mistake(project, text.replace("data.proto", "nothing.proto"))
    assert told.startswith("1: import.proto cannot be compiled: ")
    assert "nothing.proto" in told
    told = mistake(project, text.replace("data.proto", "--version"))
    assert told == "1: import.proto[0] is '--version': expected the path of a .proto file"
    (project / "data.proto").write_text('syntax = "proto3"; message {')
    assert mistake(project, text).startswith("1: import.proto cannot be compiled: data.proto:1:")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")
    assert "expected one; install it with pip install grpcio-tools, or give bytes in base64" in mistake(project, text)
    settings = read(project, text.replace("{size: 7}", "!!binary CAc=").replace("{name: Ada}", "!!binary CgNBZGE="))
    assert settings.params.environment.config.content == b"\x08\x07"  # which needs no compiler


def test_the_examples_of_the_page(project: Path) -> None:
    page = (Path(__file__).parents[4] / "docs/cogment.md").read_text()
    own, manual = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "game." in text]
    assert read(project, own).params.environment.config.content == b"\x08\x07"
    assert base64.b64decode("CAc=") == b"\x08\x07"
    assert [one.actor_class for one in read(project, manual).params.actors] == ["teacher", "plane", "plane"]


MIXED = """\
actor_classes: [{{id: a}}, {{id: b}}]
{more}
trial_params:
  environment: {{endpoint: "grpc://e:1"}}
  actors:
    - {{actor_class: b, endpoint: human}}
    - {{actor_class: a, endpoint: "grpc://x:1"}}
    - {{actor_class: b, endpoint: "grpc://y:1"}}
"""


def test_actors_may_have_the_order_of_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def order(more: str) -> tuple[list[str], tuple[int, ...], int]:
        caplog.clear()
        settings = read(tmp_path, MIXED.format(more=more))
        actors = parse_actors(settings.params, settings.actor_classes, settings.actor_ids)
        return [actor.endpoint for actor in actors.all], actors.counts, len(caplog.records)

    with caplog.at_level(logging.WARNING, "worldloom"):
        assert order("") == (["grpc://x:1", "human", "grpc://y:1"], (1, 2), 1)
        assert order("actor_ids: class_order") == (["grpc://x:1", "human", "grpc://y:1"], (1, 2), 0)
        assert order("actor_ids: file_order") == (["human", "grpc://x:1", "grpc://y:1"], (1, 2), 0)
        read(tmp_path, MIXED.format(more=""))
    (record,) = caplog.records
    assert record.getMessage() == (
        'actor ids differ from the order of the file ids="a, b, b" file="b, a, b" expected="actors of a class together,'
        ' or actor_ids: class_order or file_order to choose"'
    )
    assert "actor_ids is 'any': expected one of class_order, file_order" in mistake(
        tmp_path, MIXED.format(more="actor_ids: any")
    )


def test_files_whose_two_orders_agree_are_no_cause_for_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "worldloom"):
        read(tmp_path, MANUAL.format(folder=tmp_path))
    assert caplog.records == []
