"""One table of options: the command line, the file and the checks all come from the fields of the configuration."""

import argparse
import contextlib
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos.addresses import TcpAddress, UnixAddress
from worldloom.render.choose import NAMES
from worldloom.server import cli
from worldloom.server.config import OPTIONS, Limits, ServeConfig, WebOptions, add_config_flags, read_config
from worldloom.server.options import ConfigError, Option

DEFAULTS = ServeConfig()


def read(*words: str) -> ServeConfig:
    parser = argparse.ArgumentParser()
    add_config_flags(parser)
    return read_config(parser.parse_args(words))


def from_file(folder: Path, text: str, *words: str) -> ServeConfig:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return read("--config", str(path), *words)


def test_nothing_said_is_the_defaults() -> None:
    assert read() == DEFAULTS
    assert DEFAULTS.addresses == (TcpAddress("127.0.0.1", 9000),)
    assert DEFAULTS.limits == Limits()


def test_every_field_is_an_option() -> None:
    fields = [field for config in (ServeConfig, WebOptions, Limits) for field in dataclasses.fields(config)]
    assert {option.field for option in OPTIONS} == {field.name for field in fields} - {"page", "limits"}
    assert all(option.text.endswith(".") for option in OPTIONS)


def test_renderers_are_those_there_are() -> None:
    (renderer,) = [option for option in OPTIONS if option.name == "renderer"]
    assert renderer.choices == NAMES


TLS = {"tls-cert": "a.pem", "tls-key": "b.pem", "tls-client-ca": "c.pem"}
EXAMPLES: dict[str, tuple[Any, list[str], str]] = {
    "listen": (("unix:/a", "[::1]:0"), ["unix:/a", "[::1]:0"], '["unix:/a", "[::1]:0"]'),
    "renderer": ("gl", ["gl"], '"gl"'),
    "family": (("a:B",), ["a:B"], '["a:B"]'),
    "model-dir": ((Path("a"), Path("b")), ["a", "b"], '["a", "b"]'),
    "texture-dir": ((Path("a"), Path("b")), ["a", "b"], '["a", "b"]'),
    "gym-id": (("Ant*", "a/B-v0"), ["Ant*", "a/B-v0"], '["Ant*", "a/B-v0"]'),
    "gym-import": (("a.b",), ["a.b"], '["a.b"]'),
    "gym-kwarg": (("speed",), ["speed"], '["speed"]'),
    "cogment": (Path("t.yaml"), ["t.yaml"], '"t.yaml"'),
    "idle-world-s": (2.5, ["2.5"], "2.5"),
    "lost-world-s": (2.5, ["2.5"], "2.5"),
    "token-file": (Path("t"), ["t"], '"t"'),
    "local-socket": ("/a", ["/a"], '"/a"'),
    "local-socket-user": (("root", "7"), ["root", "7"], '["root", "7"]'),
    "web": ("localhost:7", ["localhost:7"], '"localhost:7"'),
    "web-host": (("a.example", "b"), ["a.example", "b"], '["a.example", "b"]'),
    "log-level": ("error", ["error"], '"error"'),
    "log-format": ("json", ["json"], '"json"'),
    **{name: (Path(file), [file], f'"{file}"') for name, file in TLS.items()},
}
"""Values other than the defaults, as words of the command line and in TOML; whole numbers are 7."""


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_flag_and_key_mean_the_same(option: Option, tmp_path: Path) -> None:
    value, words, toml = EXAMPLES.get(option.name, (7, ["7"], "7"))
    given = [one for word in words for one in (f"--{option.name}", word)]
    if option.kind is bool:
        value, toml = not option.default, str(not option.default).lower()
        given = [f"--{'no-' if option.default else ''}{option.name}"]
    lines = [f"{option.name} = {toml}"]
    for name, file in TLS.items():  # none of these goes alone
        if option.name in TLS and name != option.name:
            given += [f"--{name}", file]
            lines.append(f"{name} = '{file}'")
    if option.name.startswith("web-"):  # nor do these
        given += ["--web", "localhost:7"]
        lines.append("web = 'localhost:7'")
    by_words, by_file = read(*given), from_file(tmp_path, "\n".join(lines))
    assert by_words == by_file != DEFAULTS
    owner = next(one for one in (by_words, by_words.page, by_words.limits) if hasattr(one, option.field))
    assert getattr(owner, option.field) == value


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--web-control"], "--web-control without --web: expected --web HOST:PORT with it"),
        (["--web", "unix:/a"], "--web is 'unix:/a': expected HOST:PORT, which browsers can open"),
        (["--web", "9080"], "--web '9080' is not an address: expected HOST:PORT such as"),
        (["--web", "0.0.0.0:9080"], "--web '0.0.0.0:9080' can be opened from other machines: expected --token-file"),
        (["--web", "host:1", "--token-file", "t"], "--web 'host:1' can be opened from other machines"),
        (["--web", "localhost:1", "--web-percent", "101"], "--web-percent is 101: expected 100 at most"),
        (["--web", "localhost:1", "--web-host", "http://a"], "--web-host is 'http://a': expected a host's name"),
        (["--web", "localhost:1", "--web-host", "a:80"], "--web-host is 'a:80': expected a host's name"),
    ],
)
def test_options_of_the_page_that_are_refused(words: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        read(*words)


def test_a_page_beyond_this_machine() -> None:
    tls = ["--tls-cert", "c", "--tls-key", "k", "--token-file", "t"]
    assert read("--web", "0.0.0.0:0", *tls).page.web_address == TcpAddress("0.0.0.0", 0)
    assert read("--web", "0.0.0.0:0", "--insecure").page.web_address == TcpAddress("0.0.0.0", 0)


def test_the_command_line_wins(tmp_path: Path) -> None:
    text = 'max-worlds = 10\nmax-lanes = 20\nlisten = ["unix:/a", "unix:/b"]\ninsecure = true\n'
    config = from_file(tmp_path, text, "--max-worlds", "11", "--listen", "unix:/c", "--no-insecure")
    assert config.limits == Limits(max_worlds=11, max_lanes=20)
    assert config.addresses == (UnixAddress(Path("/c")),)
    assert not config.insecure


def test_whole_numbers_of_seconds(tmp_path: Path) -> None:
    assert read("--idle-world-s", "30").limits.idle_world_s == 30.0
    assert from_file(tmp_path, "idle-world-s = 30").limits.idle_world_s == 30.0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("max-wolrds = 10", "unknown key 'max-wolrds' in FILE (did you mean 'max-worlds'?): expected some of listen, "),
        ("max_worlds = 10", "unknown key 'max_worlds' in FILE (did you mean 'max-worlds'?)"),
        ("[limits]\nmax-worlds = 10", "unknown key 'limits' in FILE"),
        ("config = 'b.toml'", "unknown key 'config' in FILE"),
        ("max-worlds = 'ten'", "max-worlds in FILE is 'ten': expected a whole number of 1 or more"),
        ("max-worlds = true", "max-worlds in FILE is True: expected a whole number"),
        ("max-worlds = 1.5", "max-worlds in FILE is 1.5: expected a whole number"),
        ("max-worlds = 0", "max-worlds in FILE is 0: expected a whole number of 1 or more"),
        ("idle-world-s = nan", "idle-world-s in FILE is nan: expected a number of seconds above 0"),
        ("idle-world-s = inf", "idle-world-s in FILE is inf: expected a number of seconds above 0"),
        ("device = -1", "device in FILE is -1: expected a whole number of 0 or more"),
        ("insecure = 1", "insecure in FILE is 1: expected true or false"),
        ("renderer = 'glx'", "renderer in FILE is 'glx' (did you mean 'gl'?): expected one of auto, gl, cpu"),
        ("listen = '127.0.0.1:9000'", "listen in FILE is '127.0.0.1:9000': expected a list, each a text"),
        ("listen = []", "listen in FILE is []: expected a list, each a text"),
        ("listen = [9000]", "listen in FILE is [9000]: expected a list, each a text"),
        ("listen = ['9000']", "--listen '9000' is not an address: expected HOST:PORT"),
        ("tls-cert = ''", "tls-cert in FILE is '': expected a file"),
        ("max-worlds 10", "--config FILE is not TOML: "),
        ("max-worlds = 1\nmax-worlds = 2", "--config FILE is not TOML: "),
    ],
)
def test_mistakes_in_the_file(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        from_file(tmp_path, text)
    assert str(caught.value).replace(str(tmp_path / "config.toml"), "FILE").startswith(problem)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--config .*nowhere.toml cannot be read: No such file"):
        read("--config", str(tmp_path / "nowhere.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not TOML"):
        read("--config", str(tmp_path / "bytes.toml"))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--max-worlds", "ten"], "argument --max-worlds: is 'ten': expected a whole number of 1 or more"),
        (["--max-worlds", "0"], "argument --max-worlds: is '0': expected a whole number of 1 or more"),
        (["--idle-world-s", "0"], "argument --idle-world-s: is '0': expected a number of seconds above 0"),
        (["--renderer", "cpus"], "argument --renderer: is 'cpus' (did you mean 'cpu'?): expected one of auto, gl, cpu"),
        (["--log-level", "loud"], "argument --log-level: is 'loud': expected one of debug, info, warning, error"),
        (["--max-wolrds", "2"], "unrecognized arguments: --max-wolrds 2"),
    ],
)
def test_mistakes_on_the_command_line(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["serve", *words])
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--listen", "9000"], "--listen '9000' is not an address: expected HOST:PORT"),
        (["--listen", "unix:/a", "--listen", "unix:///a"], "--listen 'unix:/a' is given twice"),
        (["--tls-cert", "a.pem"], "--tls-cert is 'a.pem': expected --tls-key with it"),
        (["--tls-key", "a.pem"], "--tls-key is 'a.pem': expected --tls-cert with it"),
        (["--tls-client-ca", "a.pem"], "--tls-client-ca is 'a.pem': expected --tls-cert with it"),
        (["--renderer", "cpu", "--device", "0"], "--device is 0: expected none with --renderer cpu"),
        (["--listen", "0.0.0.0:9000"], "--listen '0.0.0.0:9000' can be reached from other machines without encryption"),
        (["--listen", "[::]:0"], "--listen '[::]:0' can be reached from other machines"),
        (["--listen", "learner:0"], "--listen 'learner:0' can be reached from other machines"),
        (["--config", "nowhere.toml"], "--config nowhere.toml cannot be read: No such file or directory"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"worldloom serve: {problem}")


def test_ways_out_of_loopback() -> None:
    with pytest.raises(ConfigError) as caught:
        ServeConfig(listen=("0.0.0.0:9000",))
    for way in ("--tls-cert and --tls-key", "127.0.0.1", "[::1]", "localhost", "unix:PATH", "--insecure"):
        assert way in str(caught.value)
    ServeConfig(listen=("0.0.0.0:9000",), insecure=True)
    ServeConfig(listen=("0.0.0.0:9000",), tls_cert=Path("a"), tls_key=Path("b"))
    ServeConfig(listen=("127.1.2.3:0", "[::1]:0", "localhost:0", "unix:a", "127.0.0.1:0", "127.0.0.1:0"))


def test_made_in_python_it_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="--max-lanes is 0: expected a whole number of 1 or more"):
        ServeConfig(limits=Limits(max_lanes=0))
    with pytest.raises(ConfigError, match="--log-format is 'xml': expected one of text, json"):
        ServeConfig(log_format="xml")  # type: ignore[arg-type]


def test_help_names_every_option(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    text = capsys.readouterr().out
    for option in OPTIONS:
        assert f"--{option.name}" in text
    assert re.search(r"--max-worlds N +Worlds at a time\. \(default: 4096\)", text)
    assert re.search(r"--listen ADDRESS +HOST:PORT or unix:PATH", text)


toml_values: st.SearchStrategy[object] = st.recursive(
    st.text(st.characters(codec="ascii", exclude_characters="'\x7f", exclude_categories=["Cc"])).map(lambda x: f"'{x}'")
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats().map(lambda number: f"{number!r}" if "." in repr(number) else f"{number:f}")
    | st.sampled_from(["true", "false", "2026-05-04", "{}"]),
    lambda inner: st.lists(inner, max_size=3).map(lambda ones: f"[{', '.join(map(str, ones))}]"),
)


@given(st.dictionaries(st.sampled_from([option.name for option in OPTIONS] + ["other"]), toml_values, max_size=4))
def test_any_file_is_a_configuration_or_a_mistake(
    tmp_path_factory: pytest.TempPathFactory, keys: dict[str, Any]
) -> None:
    text = "\n".join(f"{name} = {value}" for name, value in keys.items())
    with contextlib.suppress(ConfigError):
        assert from_file(tmp_path_factory.getbasetemp(), text).addresses


def test_local_sockets() -> None:
    assert DEFAULTS.has_local_socket
    assert DEFAULTS.local_socket_path is None
    assert not read("--local-socket", "off").has_local_socket
    given = read("--local-socket", "run/a.sock")
    assert given.has_local_socket
    assert given.local_socket_path == Path("run/a.sock").absolute()
    with pytest.raises(ConfigError, match=r"--local-socket .* names no socket file: .*, auto or off"):
        read("--local-socket", "a/")
    with pytest.raises(ConfigError, match=r"absolute path of .* bytes: expected at most 107, auto or off"):
        read("--local-socket", "a" * 200)
    with pytest.raises(ConfigError, match="--local-socket is '/a': expected another path than those of --listen"):
        read("--local-socket", "/a", "--listen", "unix:/a")
    with pytest.raises(ConfigError, match="--local-socket-user with --local-socket off"):
        read("--local-socket", "off", "--local-socket-user", "root")
