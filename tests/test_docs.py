"""What the documents show works: their code runs, their commands exist, their links lead somewhere."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.support.server_process import ServerProcess, serving
from worldloom.client import VectorEnv
from worldloom.server import cli
from worldloom.server.config import OPTIONS
from worldloom.server.options import read_file
from worldloom.worlds import registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOM_FILE = re.compile(
    r"`((?:kernels|render|server|worlds|client|data|demo|fleet|profiler|protos|bench|tests|scripts|docs|examples|deploy)/[\w./*-]+)`"
)
SMALL = {
    "collect": ("--lanes", "4", "--steps", "16", "--size", "8"),
    "demo": ("--lanes", "4", "--streams", "1", "--size", "8", "--seconds", "0.05", "--frames", "1"),
    "profile": ("--lanes", "2", "--size", "8", "--seconds", "0.02", "--transport", "local"),
}
"""Put after the options of a command: the last one given counts."""

ADDRESS = "127.0.0.1:9000"
"""Where pages take a server to be; whoever runs the tests may have one there."""
WEB_ADDRESS = "127.0.0.1:9080"
"""Where they take its page to be."""
SECURE_ADDRESS = "127.0.0.1:9443"
"""Where they take one to be that was started with the files that they have their reader make."""
CERTS = ROOT / "tests/server/transports/certs"
MAKES_FILES = ("openssl ", "(umask ")
"""How blocks begin that have the reader make files first."""
RUN_ELSEWHERE = {
    "make": "below, and by whoever runs the tests",
    "pip": "by whoever sets up: the extra is part of that",
    "python": "by tests/examples and the tests of scripts",
}
"""Other programs that pages show, and where they are run."""


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """The code blocks of a page in these languages, each with its first line's number."""
    text = page.read_text()
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, one.start(2)) + 1, one[2]) for one in found if one[1] in languages]


RUN_BY_LEARNERS = ROOT / "docs/learners.md"
"""Its programs need learning libraries: tests/learners/test_docs.py runs them."""
RUN_IN_ORDER = (ROOT / "docs/collect.md", ROOT / "docs/render-your-states.md")
"""Their commands and programs follow on each other: tests/learners/test_pages_in_order.py runs them."""
RUN_BY_FLEET = ROOT / "docs/fleet.md"
"""Its programs need a Ray: tests/fleet/test_docs.py runs them, and tests/fleet/test_command.py its commands."""
PYTHON = [
    pytest.param(page, line, code, id=f"{named(page)}:{line}")
    for page in PAGES
    if page not in (RUN_BY_LEARNERS, RUN_BY_FLEET, *RUN_IN_ORDER)
    for line, code in blocks(page, "python")
]
COMMANDS = [
    pytest.param(page, words, id=" ".join(words))
    for page in PAGES
    for _, code in blocks(page, "sh", "console")
    for line in code.replace("\\\n", " ").splitlines()
    if (words := shlex.split(line.removeprefix("$ "), comments=True))[:1] == ["worldloom"]
]


@pytest.fixture
def folder(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a reader of the page works: the examples are there, and code that begins with a file's name is saved there
    and can be imported."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "pictures/train").mkdir(parents=True)
    shutil.copy(ROOT / "docs/worlds/maze-eye.png", tmp_path / "pictures/train")
    make_files(page, tmp_path)
    files = [code for _, code in blocks(page, "python") if re.match(r"# \w+\.py\n", code)]
    for code in files:
        (tmp_path / code.partition("\n")[0].removeprefix("# ")).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(registry, "_registry", registry.Registry(registry.installed_entry_points))
    yield tmp_path
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


def make_files(page: Path, folder: Path) -> None:
    """Do what the page has its reader do first. Where there is no openssl, files of the tests take its files' place."""
    for _, code in blocks(page, "sh"):
        if code.startswith(MAKES_FILES) and shutil.which("openssl"):
            subprocess.run(["bash", "-euc", code], cwd=folder, check=True, capture_output=True, timeout=60)
        elif code.startswith(MAKES_FILES):
            (folder / "token").write_text("sesame")
            (folder / "server.pem").write_bytes((CERTS / "server.pem").read_bytes() + (CERTS / "ca.pem").read_bytes())
            shutil.copy(CERTS / "server-key.pem", folder)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A server that pages speak of as if it were at ADDRESS, with its page at WEB_ADDRESS."""
    with serving("--cogment", str(ROOT / "examples/trials/trial.yaml"), "--web", "127.0.0.1:0") as server:
        yield server


@pytest.fixture
def server_address(server: ServerProcess) -> str:
    return server.address


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("page", "line", "code"), PYTHON)
def test_python_code_runs(page: Path, line: int, code: str, request: pytest.FixtureRequest) -> None:
    with contextlib.ExitStack() as at_the_end:
        if ADDRESS in code:
            code = code.replace(ADDRESS, request.getfixturevalue("server_address"))
        if WEB_ADDRESS in code:  # a program that looks at worlds, so there has to be one
            server = request.getfixturevalue("server")
            env = at_the_end.enter_context(contextlib.closing(VectorEnv(server.address, "catch", num_envs=2)))
            env.reset(seed=0)
            code = code.replace(WEB_ADDRESS, urllib.parse.urlsplit(server.page).netloc)
        if SECURE_ADDRESS in code:
            files = ("--tls-cert", "server.pem", "--tls-key", "server-key.pem", "--token-file", "token")
            code = code.replace(SECURE_ADDRESS, at_the_end.enter_context(serving(*files)).address)
        exec(compile("\n" * (line - 1) + code, page, "exec"), {"__name__": "__main__"})


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("page", "words"), COMMANDS)
def test_commands_run(page: Path, words: list[str], request: pytest.FixtureRequest) -> None:
    if any("gl" in word.split(",") for word in words) and os.environ.get("WORLDLOOM_SKIP_GL") == "1":
        pytest.skip("WORLDLOOM_SKIP_GL=1")
    if words[1] == "serve" and "--help" not in words:
        flags = [re.sub(r"^([\d.]+):\d+$", r"\1:0", word) for word in words[2:]]
        with serving(*flags):
            return
    if words[1] in ("fleet", "watch") or page in RUN_IN_ORDER:  # tests/fleet and tests/server/web/test_hub.py run them
        assert cli._make_parser(words[1]).parse_args(words[1:]).command == words[1]
        return
    if "--attach" in words:
        address = request.getfixturevalue("server_address")
        assert cli.main([word.replace(ADDRESS, address) for word in words[1:]]) == 0
        return
    assert cli.main([*words[1:], *SMALL.get(words[1], ())]) == 0


def test_the_readme_shows_code_and_commands() -> None:
    assert any(page.values[0] == ROOT / "README.md" for page in PYTHON)
    assert {str(command.id).split()[1] for command in COMMANDS} == set(cli.COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_nothing_is_shown_that_is_not_run(page: Path) -> None:
    shown = [code for _, code in blocks(page, "sh") if not code.startswith(MAKES_FILES)]
    lines = [line for code in shown for line in code.replace("\\\n", " ").splitlines()]
    lines += [line[2:] for _, code in blocks(page, "console") for line in code.splitlines() if line.startswith("$ ")]
    programs = {re.sub(r"^(?:[A-Z_]+=\S+ )*", "", line).split()[0] for line in lines if line}
    assert programs <= {"worldloom", *RUN_ELSEWHERE}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_for_a_server_are_read(page: Path, tmp_path: Path) -> None:
    for _, code in blocks(page, "toml"):
        if "[project" not in code:
            (tmp_path / "server.toml").write_text(code)
            read_file(tmp_path / "server.toml", OPTIONS)


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
    missing += [target for target in re.findall(r"\]\(([^)\s]+\.md#[^)\s]+)\)", text) if not is_there(page, target)]
    missing += [name for name in ROOM_FILE.findall(text) if not list(ROOT.glob(name))]
    assert missing == []


def is_there(page: Path, target: str) -> bool:
    """Whether a link to a heading of another page finds it."""
    name, _, heading = target.partition("#")
    headings = re.findall(r"^#+ (.+)$", (page.parent / name).read_text(), re.MULTILINE)
    return heading in {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


def test_every_page_is_listed() -> None:
    folder = ROOT / "docs"
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (folder / "README.md").read_text()))
    assert listed == {page.name for page in folder.glob("*.md")} - {"README.md"}
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()


def test_every_picture_is_shown() -> None:
    shown = "".join(page.read_text() for page in PAGES)
    assert [
        path.name
        for path in (ROOT / "docs").iterdir()
        if path.suffix in (".png", ".gif", ".svg") and path.name not in shown
    ] == []
