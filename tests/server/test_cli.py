"""The command line itself: what it prints, what it imports, and how it ends."""

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from types import ModuleType
from typing import TypeAlias

import pytest

from worldloom.server import cli

Run: TypeAlias = Callable[[argparse.Namespace], int]
InstallCommand: TypeAlias = Callable[[Run], None]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> InstallCommand:
    """Make a command `try` that does what the test says."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--count", type=int, default=1)

    def install(run: Run) -> None:
        module = ModuleType("worldloom.server.trial")
        vars(module).update(add_arguments=add_arguments, run=run)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(cli.COMMANDS, "try", cli.Command(module.__name__, "try something"))

    return install


def raising(error: BaseException) -> Run:
    def run(args: argparse.Namespace) -> int:
        raise error

    return run


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"worldloom {version('worldloom')}\n"


def test_alone_it_lists_every_command_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    alone = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == alone
    for name, command in cli.COMMANDS.items():
        assert f"{name} {command.summary}" in " ".join(alone.split())


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys; from worldloom.server import cli; cli.main([]); "
        "print([n for n in sys.modules if n in {'numba', 'numpy', 'moderngl', 'grpc'} or n in sys.argv[1:]])"
    )
    modules = [command.module for command in cli.COMMANDS.values()]
    result = subprocess.run([sys.executable, "-c", code, *modules], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_in_the_table_exists_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(importlib.import_module(cli.COMMANDS[name].module).run)
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert f"worldloom {name}" in told
    assert "[]" not in told  # the default of a list, as Python writes it


@pytest.mark.parametrize("words", [["dance"], ["--dance"], ["try", "--count", "many"], ["try", "--dance"]])
def test_a_wrong_command_line_is_exit_code_2(
    words: list[str], command: InstallCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(AssertionError("must not run")))
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert "usage: worldloom" in capsys.readouterr().err


def test_describe_without_a_family_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["describe"])
    assert capsys.readouterr().err.endswith("error: the following arguments are required: FAMILY\n")


def test_a_command_gets_its_options_and_gives_the_exit_code(command: InstallCommand) -> None:
    command(lambda args: args.count)
    assert cli.main(["try"]) == 1
    assert cli.main(["try", "--count", "0"]) == 0


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("expected 1,\n    got 2"), "worldloom try: expected 1, got 2"),
        (FileNotFoundError(2, "No such file", "frames.png"), "worldloom try: [Errno 2] No such file: 'frames.png'"),
        (RuntimeError(), "worldloom try: RuntimeError"),
    ],
)
def test_a_failure_is_one_line_on_stderr_and_exit_code_1(
    error: Exception, line: str, command: InstallCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(error))
    assert cli.main(["try"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", line + "\n")


def test_traceback_is_there_for_the_asking(command: InstallCommand) -> None:
    command(raising(ValueError("deep inside")))
    with pytest.raises(ValueError, match="deep inside"):
        cli.main(["--traceback", "try"])


def test_a_bug_is_not_dressed_up(command: InstallCommand) -> None:
    command(raising(KeyError("bug")))
    with pytest.raises(KeyError):
        cli.main(["try"])


def test_an_interrupt_is_quiet(command: InstallCommand, capsys: pytest.CaptureFixture[str]) -> None:
    command(raising(KeyboardInterrupt()))
    assert cli.main(["try"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    code = (
        "import sys, types; from worldloom.server import cli; m = types.ModuleType('trial');"
        "m.add_arguments = lambda parser: None; m.run = lambda args: print('x' * 1_000_000) or 0;"
        "sys.modules['trial'] = m; cli.COMMANDS['try'] = cli.Command('trial', 'try');"
        "sys.exit(cli.main(['try']))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 1
