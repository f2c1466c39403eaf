"""Uploaded models are the models on disk, read from the archive alone; what is hostile is refused, and harms nobody."""

import contextlib
import io
import os
import signal
import stat
import struct
import threading
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from dm_control.suite import dog, humanoid, walker
from hypothesis import given, settings
from hypothesis import strategies as st

from worldloom.client import collect_model
from worldloom.worlds import uploads as rules_module
from worldloom.worlds.mujoco.models import compile_child, compiling
from worldloom.worlds.mujoco.models.archive import read_archive
from worldloom.worlds.mujoco.models.compiling import compile_in_child
from worldloom.worlds.mujoco.models.files import allow_model_dirs, load_model
from worldloom.worlds.mujoco.models.uploads import load_uploaded_model
from worldloom.worlds.settings import SettingError, SettingNotAllowedError, SettingTooLargeError
from worldloom.worlds.uploads import UploadRules, end_compilers, set_upload_rules

SERVER = UploadRules(is_isolated=True, max_bytes=1 << 20, timeout_s=20.0)
MAX_BYTES = 1 << 16
PLAIN = "<mujoco><worldbody><geom size='1'/></worldbody></mujoco>"
TETRAHEDRON = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"
MESH = "<mujoco><asset><mesh name='m' file='{}'/></asset><worldbody><geom type='mesh' mesh='m'/></worldbody></mujoco>"
TEXTURE = "<texture name='t' type='2d' builtin='flat' width='{}' height='{}'/>"
AROUND = "<mujoco><worldbody>{}<geom size='.1'/>{}</worldbody></mujoco>"


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_module, "_rules", SERVER)


def png(width: int, height: int, value: int = 90) -> bytes:
    """Return a grey picture as PNG, written by hand."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">L", len(content)) + kind + content + struct.pack(">L", zlib.crc32(kind + content))

    rows = (b"\0" + bytes([value]) * width) * height
    head = struct.pack(">LLBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def archive_of(**files: bytes) -> bytes:
    return pack(files)


def pack(files: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            if change is not None:
                change(entry)
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def refusal(xml: str, files: bytes = b"", kind: type[SettingError] = SettingError) -> str:
    with pytest.raises(SettingError) as error:
        load_uploaded_model(xml, files)
    assert type(error.value) is kind, error.value
    text = str(error.value)
    assert len(text) < 2000
    assert "\n" not in text
    return text


def contents_of(model: mujoco.MjModel) -> dict[str, bytes]:
    """Return every array and number of a model, as bytes."""
    found = {}
    for owner in (model, model.opt, model.stat, model.vis):
        for name in dir(owner):
            value = None if name.startswith("_") else getattr(owner, name)
            if isinstance(value, int | float | bytes | str | np.ndarray):
                found[f"{type(owner).__name__}.{name}"] = np.asarray(value).tobytes()
    del found["MjModel.signature"]  # of the description that the compiler had, which a saved model has not
    return found


def assert_same(found: mujoco.MjModel, expected: mujoco.MjModel) -> None:
    ours, theirs = contents_of(found), contents_of(expected)
    assert len(ours) > 500
    assert ours.keys() == theirs.keys()
    assert not [name for name in ours if ours[name] != theirs[name]]


@pytest.mark.parametrize("domain", [walker, humanoid, dog])
def test_a_model_from_the_other_process_is_bit_for_bit_that_of_this_one(domain: Any) -> None:
    xml, assets = domain.get_model_and_assets()
    text = xml if isinstance(xml, str) else xml.decode()
    contents = {name: value if isinstance(value, bytes) else value.encode() for name, value in assets.items()}
    found = compile_in_child(text, contents, SERVER)
    assert_same(found, mujoco.MjModel.from_xml_string(text, contents))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with a mesh, a texture, a height field and an include."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/thing.obj").write_bytes(TETRAHEDRON)
    (tmp_path / "parts/picture.png").write_bytes(png(16, 8))
    (tmp_path / "parts/ground.png").write_bytes(png(8, 8, 200))
    (tmp_path / "parts/more.xml").write_text(
        "<mujocoinclude><asset><hfield name='h' size='1 1 1 1' file='ground.png'/></asset></mujocoinclude>"
    )
    (tmp_path / "top.xml").write_text(
        "<mujoco><compiler assetdir='parts'/><include file='parts/more.xml'/><asset><mesh name='m' file='thing.obj'/>"
        "<texture name='t' type='2d' file='picture.png'/><material name='mat' texture='t'/></asset><worldbody>"
        "<light pos='0 0 4'/><geom type='hfield' hfield='h'/><body pos='0 0 2'><freejoint/>"
        "<geom type='mesh' mesh='m' material='mat'/></body></worldbody></mujoco>"
    )
    monkeypatch.setattr("worldloom.worlds.mujoco.models.files._allowed_dirs", [])
    allow_model_dirs([tmp_path])
    return tmp_path


@pytest.mark.parametrize("is_isolated", [True, False])
def test_an_uploaded_model_is_the_one_on_disk(folder: Path, is_isolated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    set_upload_rules(replace(SERVER, is_isolated=is_isolated))
    found = load_uploaded_model(*collect_model(folder / "top.xml"))
    assert (found.nmesh, found.ntex, found.nhfield) == (1, 1, 1)
    assert_same(found, load_model("top.xml"))


def test_by_default_uploads_are_allowed_and_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_module, "_rules", UploadRules())
    monkeypatch.setattr(compiling, "_run_child", None)
    assert load_uploaded_model(PLAIN, b"").ngeom == 1


def test_without_permission_nothing_is_read() -> None:
    set_upload_rules(replace(SERVER, is_allowed=False))
    assert "--allow-uploads" in refusal("<", b"x", SettingNotAllowedError)


def test_too_large_an_upload_is_refused_unread() -> None:
    set_upload_rules(replace(SERVER, max_bytes=100))
    assert "--max-upload-bytes" in refusal("<", bytes(100), SettingTooLargeError)


# Archives.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/etc/passwd", "relative paths"),
        ("../a.obj", "relative paths"),
        ("a/../../b.obj", "relative paths"),
        ("a/./b.obj", "relative paths"),
        ("a//b.obj", "relative paths"),
        ("C:a.obj", "relative paths"),
        ("a\\b.obj", "relative paths"),
        ("a\nb.obj", "relative paths"),
        ("x" * 600, "relative paths"),
        ("the uploaded model", "twice"),
    ],
)
def test_names_that_lead_outside_are_refused(name: str, expected: str) -> None:
    assert expected in refusal(PLAIN, pack({name: b"x"}))


def test_links_are_refused() -> None:
    def make_link(entry: zipfile.ZipInfo) -> None:
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16

    assert "is a link" in refusal(PLAIN, pack({"a.obj": b"/etc/passwd"}, make_link))


def test_encrypted_files_are_refused() -> None:
    data = bytearray(archive_of(a=b"x"))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert "is encrypted" in refusal(PLAIN, bytes(data))


def test_other_compressions_are_refused() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.obj", b"x" * 100)
    assert "compressed by method 14" in refusal(PLAIN, packed.getvalue())


def test_a_name_that_is_there_twice_is_refused() -> None:
    data = archive_of(aa=b"1", ab=b"2").replace(b"ab", b"aa")
    assert "'aa' is there twice" in refusal(PLAIN, data)


def test_bombs_are_refused_before_they_are_decompressed() -> None:
    data = archive_of(bomb=bytes(5 << 20))
    assert len(data) < SERVER.max_bytes
    assert "5242880 bytes or more: expected 4194304" in refusal(PLAIN, data, SettingTooLargeError)
    lying = data.replace(struct.pack("<L", 5 << 20), struct.pack("<L", 100))
    assert "cannot be read" in refusal(PLAIN, lying), "the sum of the first 100 bytes is another"


def test_many_files_are_refused() -> None:
    set_upload_rules(replace(SERVER, max_bytes=8 << 20))
    assert "5000 entries" in refusal(PLAIN, pack({f"{k}.obj": b"" for k in range(5000)}))
    data = bytearray(pack({f"{k}": b"" for k in range(4097)}))
    data[-22 + 8 : -22 + 12] = struct.pack("<2H", 1, 1)  # the number that the end declares
    assert "4097 entries" in refusal(PLAIN, bytes(data))


@pytest.mark.parametrize("data", [b"x", b"x" * 100, b"PK\x05\x06" + bytes(17), archive_of(a=b"x") + b"!"])
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    assert "expected one without a comment" in refusal(PLAIN, data)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_archives_are_read_or_refused(data: st.DataObject) -> None:
    """Bytes are changed anywhere: what comes out is small enough and has valid names, or there is a reason."""
    files = {"a/b.obj": TETRAHEDRON, "c.xml": b"<mujocoinclude/>", "d.png": png(4, 4)}
    damaged = bytearray(pack(files))
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        found = read_archive(bytes(damaged), MAX_BYTES)
        assert sum(map(len, found.values())) <= MAX_BYTES
        assert all(not path.is_absolute() and ".." not in path.parts for path in found)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["..", ".", "a", "b", "/", "etc", "passwd", "a.obj", "~", ""]), max_size=6))
def test_no_reference_leads_outside_of_the_archive(parts: list[str]) -> None:
    set_upload_rules(replace(SERVER, is_isolated=False))
    try:
        name = "/".join(parts)
        files = pack({"a/a.obj": TETRAHEDRON, "b/a.obj": TETRAHEDRON})
        inside = os.path.normpath(name) in ("a/a.obj", "b/a.obj") and not name.startswith("/")
        if inside:
            assert load_uploaded_model(MESH.format(name), files).nmesh == 1
        else:
            assert "the uploaded model refers to" in refusal(MESH.format(name), files)
    finally:
        set_upload_rules(SERVER)


# Models.


@pytest.mark.parametrize(
    ("xml", "expected"),
    [
        ("", "not valid XML"),
        ("<mujoco>", "not valid XML"),
        ("<html/>", "expected <mujoco> or <robot>"),
        (MESH.format("nowhere.obj"), "not in the archive of the setting 'files'"),
        (MESH.format("/etc/passwd"), "not in the archive"),
        (MESH.format("package://robot/a.obj"), "instead of a URI"),
        ("<mujoco><include file='/etc/passwd'/></mujoco>", "not in the archive"),
        ("<mujoco><include file='the uploaded model'/></mujoco>", "circular"),
        ("<!DOCTYPE m [<!ENTITY a 'aaa'>]><mujoco model='&a;'/>", "declares XML entities"),
        ("<!DOCTYPE m [<!ENTITY a SYSTEM '/etc/passwd'>]><mujoco>&a;</mujoco>", "declares XML entities"),
        ("<mujoco>" + "<body>" * 500 + "</body>" * 500 + "</mujoco>", "400 inside each other"),
        ("<mujoco><extension><plugin plugin='mujoco.pid'/></extension></mujoco>", "without plugins"),
        ("<mujoco><worldbody><geom size='x'/></worldbody></mujoco>", "size"),
        ("<mujoco><worldbody><body><freejoint/></body></worldbody></mujoco>", "mass"),
    ],
)
def test_models_are_refused_with_the_reason(xml: str, expected: str) -> None:
    assert expected in refusal(xml)


def test_many_elements_are_refused() -> None:
    set_upload_rules(replace(SERVER, max_bytes=8 << 20))
    assert "200000 elements" in refusal("<mujoco>" + "<a/>" * 200_001 + "</mujoco>")
    includes = "<mujocoinclude>" + "<a/>" * 999 + "</mujocoinclude>"
    assert "200000 elements" in refusal(
        "<mujoco>" + "<include file='i.xml'/>" * 300 + "</mujoco>", pack({"i.xml": includes.encode()})
    )


@pytest.mark.parametrize(
    "xml",
    [
        AROUND.format("<replicate count='1000' offset='1 0 0'>" * 2, "</replicate>" * 2),
        AROUND.format("<body><composite type='cable' count='100000000 1 1' size='1'>", "</composite></body>"),
        AROUND.format("<flexcomp name='f' type='grid' count='1000 1000 1000'>", "</flexcomp>"),
    ],
)
def test_elements_that_stand_for_many_are_refused_before_compiling(xml: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_run_child", None)
    assert "elements, with those that replicate" in refusal(xml, kind=SettingTooLargeError)


@pytest.mark.parametrize(
    ("xml", "expected"),
    [
        (AROUND.format("<light/>" * 300, ""), "nlight is 300"),
        (AROUND.format("<camera/>" * 300, ""), "ncam is 300"),
        (PLAIN.replace("<worldbody>", "<option iterations='1000000'/><worldbody>"), "option iterations is 1000000"),
        (PLAIN.replace("<worldbody>", "<size memory='2G'/><worldbody>"), "narena is 2147483648"),
        (
            PLAIN.replace("<worldbody>", f"<asset>{TEXTURE.format(10_000, 9000)}</asset><worldbody>"),
            "ntexdata is 270000000",
        ),
        (PLAIN.replace("<worldbody>", "<size nuserdata='2000000'/><worldbody>"), "nuserdata is 2000000"),
    ],
)
def test_complex_models_are_refused(xml: str, expected: str) -> None:
    assert expected in refusal(xml, kind=SettingTooLargeError)


# The process that compiles.


@pytest.mark.parametrize(
    "asset", [TEXTURE.format(12_000, 12_000), "<hfield name='h' nrow='100000' ncol='100000' size='1 1 1 1'/>"]
)
def test_memory_is_limited(asset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "CHILD_BYTES", 400 << 20)
    xml = PLAIN.replace("<worldbody>", f"<asset>{asset}</asset><worldbody>")
    text = refusal(xml, kind=SettingTooLargeError)
    assert "memory" in text or "killed" in text


def slow_model() -> str:
    """Return a model whose compilation takes long: time grows with the square of the number of geoms."""
    return AROUND.format("<replicate count='60000' offset='3 0 0'>", "</replicate>")


def test_time_is_limited() -> None:
    set_upload_rules(replace(SERVER, timeout_s=0.2))
    began_s = time.monotonic()
    text = refusal(slow_model(), kind=SettingTooLargeError)
    assert "it takes more than 0.2 s to compile" in text
    assert "--upload-timeout-s" in text
    assert time.monotonic() - began_s < 10


def wait_for_child() -> int:
    for _ in range(500):
        if rules_module.running_compilers:
            return next(iter(rules_module.running_compilers)).pid
        time.sleep(0.01)
    raise AssertionError("no process compiles")


@pytest.mark.parametrize(
    ("how", "kind", "expected"),
    [
        (signal.SIGSEGV, SettingError, "MuJoCo's compiler crashed on it (SIGSEGV)"),
        (signal.SIGKILL, SettingTooLargeError, "its compiler was killed"),
        (None, SettingTooLargeError, "its compiler was killed"),
    ],
)
def test_a_crash_is_told(how: signal.Signals | None, kind: type[SettingError], expected: str) -> None:
    def crash() -> None:
        pid = wait_for_child()
        if how is None:
            end_compilers()
        else:
            os.kill(pid, how)

    killer = threading.Thread(target=crash)
    killer.start()
    text = refusal(slow_model(), kind=kind)
    killer.join()
    assert expected in text
    assert not rules_module.running_compilers


def test_the_process_inherits_no_descriptors_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[str] = []

    def look() -> None:
        pid = wait_for_child()
        for _ in range(200):
            try:
                links = [os.readlink(f"/proc/{pid}/fd/{one}") for one in os.listdir(f"/proc/{pid}/fd")]
            except OSError:
                return
            seen.extend(links)

    os.dup2(os.open(tmp_path, os.O_RDONLY), 77, inheritable=False)
    watcher = threading.Thread(target=look)
    watcher.start()
    # A warning of the compiler, which MuJoCo by itself writes to MUJOCO_LOG.TXT.
    found = load_uploaded_model(PLAIN.replace("size='1'", "size='1' mass='1e-20'"), b"")
    watcher.join()
    os.close(77)
    assert found.ngeom == 1
    assert not [one for one in seen if str(tmp_path) in one]
    assert os.listdir(tmp_path) == []


def test_the_process_can_open_no_file() -> None:
    """The reader rewrites all references; if one were left, the compiler could not follow it."""
    with pytest.raises(ValueError, match=r"passwd|open|empty"):
        compile_in_child(MESH.format("/etc/passwd"), {}, SERVER)


def test_sizes_are_those_of_real_models_many_times() -> None:
    model = mujoco.MjModel.from_xml_string(*humanoid.get_model_and_assets())
    compile_child.check_size(model)
    assert all(4 * getattr(model, name) <= most for name, most in compile_child.MAXIMA.items() if name != "narena")
