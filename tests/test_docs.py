"""What the documents show works: their code runs, their commands exist, their links lead somewhere."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.process import serving
from worldloom.server import cli
from worldloom.worlds import registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOM_FILE = re.compile(
    r"`((?:kernels|render|server|worlds|client|protos|bench|tests|scripts|docs|examples)/[\w./*-]+)`"
)
SMALL = ("--lanes", "4", "--size", "8", "--seconds", "0.05")
"""Put after the options of a `worldloom demo`: the last one given counts."""

ADDRESS = "127.0.0.1:9000"
"""Where pages take a server to be; whoever runs the tests may have one there."""


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """The code blocks of a page in these languages, each with its first line's number."""
    text = page.read_text()
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, one.start(2)) + 1, one[2]) for one in found if one[1] in languages]


PYTHON = [
    pytest.param(page, line, code, id=f"{named(page)}:{line}")
    for page in PAGES
    for line, code in blocks(page, "python")
]
COMMANDS = [
    pytest.param(page, words, id=" ".join(words))
    for page in PAGES
    for _, code in blocks(page, "sh", "console")
    for line in code.splitlines()
    if (words := shlex.split(line.removeprefix("$ "), comments=True))[:1] == ["worldloom"]
]


@pytest.fixture
def folder(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a reader of the page works: the examples are there, and code that begins with a file's name is saved there
    and can be imported."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    files = [code for _, code in blocks(page, "python") if re.match(r"# \w+\.py\n", code)]
    for code in files:
        (tmp_path / code.partition("\n")[0].removeprefix("# ")).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(registry, "_registry", registry.Registry(registry.installed_offers))
    yield tmp_path
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


@pytest.fixture(scope="module")
def server_address() -> Iterator[str]:
    """A server that pages speak of as if it were at ADDRESS."""
    with serving("--cogment", str(ROOT / "examples/trials/trial.yaml")) as server:
        yield server.address


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("page", "line", "code"), PYTHON)
def test_python_code_runs(page: Path, line: int, code: str, request: pytest.FixtureRequest) -> None:
    if ADDRESS in code:
        code = code.replace(ADDRESS, request.getfixturevalue("server_address"))
    exec(compile("\n" * (line - 1) + code, page, "exec"), {"__name__": "__main__"})


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("page", "words"), COMMANDS)
def test_commands_run(page: Path, words: list[str]) -> None:
    if "gl" in words and os.environ.get("WORLDLOOM_SKIP_GL") == "1":
        pytest.skip("WORLDLOOM_SKIP_GL=1")
    if words[1] == "serve" and "--help" not in words:
        flags = [word.replace(ADDRESS, "127.0.0.1:0") for word in words[2:]]
        with serving(*flags):
            return
    assert cli.main([*words[1:], *(SMALL if words[1] == "demo" else ())]) == 0


def test_the_readme_shows_code_and_commands() -> None:
    assert any(page.values[0] == ROOT / "README.md" for page in PYTHON)
    assert {str(command.id).split()[1] for command in COMMANDS} == set(cli.COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_make_targets_exist(page: Path) -> None:
    code = "\n".join(code for _, code in blocks(page, "sh", "console"))
    inline = re.findall(r"`(?:[A-Z_]+=\S+ )?make ([a-z-]+)`", page.read_text())
    targets = {*inline, *re.findall(r"^(?:[A-Z_]+=\S+ )?make ([a-z-]+)", code, re.MULTILINE)}
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets <= known


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_and_named_files_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    links = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    missing = [target for target in links if target and not (page.parent / target).exists()]
    missing += [name for name in ROOM_FILE.findall(text) if not list(ROOT.glob(name))]
    assert missing == []
