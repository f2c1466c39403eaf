"""What docs/operations.md and deploy/ say is so: limits, the systemd unit, its file, and the container file."""

import argparse
import configparser
import json
import re
import shlex
from pathlib import Path

import pytest

from worldloom.server.config import Limits, ServeConfig, add_config_flags, read_config
from worldloom.server.options import options_of

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/operations.md").read_text()
CONTAINER = (ROOT / "deploy/Containerfile").read_text()


def config_of(words: list[str]) -> ServeConfig:
    parser = argparse.ArgumentParser()
    add_config_flags(parser)
    return read_config(parser.parse_args(words))


def test_every_limit_is_in_the_table() -> None:
    shown = {None: "from the machine", False: "off"}
    rows = [f"| `--{one.name}` | {shown.get(one.default, one.default)} | {one.text} |" for one in options_of(Limits)]
    table = re.search(r"^\| option \| default \| limits \|\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table
    assert table[1].splitlines() == rows


def test_every_flag_it_speaks_of_exists() -> None:
    known = {f"--{option.name}" for option in options_of(ServeConfig)}
    others = {"--help", "--device"}  # the second one of podman, too
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known | others


def test_the_file_is_the_one_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "deploy/worldloom.toml"
    settings = "".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("#"))
    assert f"```toml\n{settings}```" in PAGE
    config = config_of(["--config", str(path)])
    assert config.listen == ("127.0.0.1:9000", "unix:/run/worldloom/worldloom.sock")
    assert config.log_format == "json"


def test_the_unit_starts_a_server() -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # names in capitals stay so
    unit.read_string((ROOT / "deploy/worldloom.service").read_text())
    service = unit["Service"]
    program, command, *words = shlex.split(service["ExecStart"])
    assert (Path(program).name, command) == ("worldloom", "serve")
    assert words == ["--config", "/etc/worldloom/worldloom.toml"]
    assert service["Environment"] == "WORLDLOOM_CACHE_DIR=%C/worldloom"
    assert (service["CacheDirectory"], service["RuntimeDirectory"]) == ("worldloom", "worldloom")
    assert float(service["TimeoutStopSec"]) > 20  # what answering and ending take at most
    assert "MemoryDenyWriteExecute" not in service
    assert "PrivateDevices" not in service


def instructions() -> list[tuple[str, str]]:
    """What the container file says, line by line."""
    text = "\n".join(line for line in CONTAINER.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def test_the_container_starts_a_server() -> None:
    found = instructions()
    known = {"FROM", "RUN", "COPY", "ENV", "VOLUME", "USER", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in found} <= known
    assert found[0][0] == "FROM"
    assert json.loads(dict(found)["ENTRYPOINT"]) == ["worldloom"]
    command, *words = json.loads(dict(found)["CMD"])
    assert command == "serve"
    config = config_of(words)
    assert config.listen == (f"0.0.0.0:{dict(found)['EXPOSE']}",)
    assert config.insecure


def test_the_container_runs_as_nobody_in_particular() -> None:
    found = instructions()
    user = dict(found)["USER"]
    made = next(rest for word, rest in found if word == "RUN" and "useradd" in rest)
    assert user in made
    assert user != "root"
    assert [word for word, _ in found].index("USER") > max(k for k, (word, _) in enumerate(found) if word == "RUN")
    assert f"-o {user} {dict(found)['VOLUME']}" in made
    assert dict(found)["ENV"] == f"WORLDLOOM_CACHE_DIR={dict(found)['VOLUME']}"


def test_it_installs_what_everyone_is_told_to_install() -> None:
    script = re.search(r'^PACKAGES="(.*)"', (ROOT / "scripts/setup-gl.sh").read_text(), re.MULTILINE)
    assert script
    assert script[1] in CONTAINER
    assert all(package in PAGE for package in script[1].split())
