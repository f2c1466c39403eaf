"""Models collected from the client's disk are those that MuJoCo compiles there."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import mujoco
import numpy as np
import pytest

from worldloom.client import collect_model
from worldloom.worlds.mujoco.models.uploads import load_uploaded_model

TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"
TOP = """<mujoco><include file='parts/mid.xml'/>
<asset><model name='arm' file='arms/arm.xml'/><mesh name='stripped' file='meshes/thing.obj'/></asset>
<worldbody><geom name='g' size='1'/><frame><attach model='arm' body='link' prefix='a_'/></frame></worldbody></mujoco>"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("parts/meshes", "arms"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "top.xml").write_text(TOP)
    (tmp_path / "parts/mid.xml").write_text(
        "<mujocoinclude><compiler meshdir='parts'/><asset><mesh name='m' file='meshes/thing.obj'/></asset>"
        "<worldbody><geom type='mesh' mesh='m'/></worldbody><include file='deep.xml'/></mujocoinclude>"
    )
    (tmp_path / "parts/deep.xml").write_text(
        "<mujocoinclude><worldbody><geom name='deep' size='2'/></worldbody></mujocoinclude>"
    )
    (tmp_path / "parts/meshes/thing.obj").write_text(TETRAHEDRON)
    (tmp_path / "arms/arm.xml").write_text(
        "<mujoco model='arm'><include file='more.xml'/><worldbody><body name='link'><joint/><geom size='.5'/></body>"
        "</worldbody></mujoco>"
    )
    (tmp_path / "arms/more.xml").write_text("<mujocoinclude><option gravity='0 0 -1'/></mujocoinclude>")
    return tmp_path


def names(archive: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive)).namelist()


def test_includes_meshes_and_attached_models_are_collected(folder: Path) -> None:
    xml, files = collect_model(folder / "top.xml")
    assert xml == TOP
    assert names(files) == [
        "arms/arm.xml",
        "arms/more.xml",
        "parts/deep.xml",
        "parts/meshes/thing.obj",
        "parts/mid.xml",
    ]
    assert collect_model(str(folder / "top.xml")) == (xml, files), "the same bytes each time"
    found = load_uploaded_model(xml, files)
    (folder / "parts/deep.xml").rename(folder / "deep.xml")  # MuJoCo looks for it beside the model only
    expected = mujoco.MjModel.from_xml_path(str(folder / "top.xml"))
    for name in ("geom_size", "geom_pos", "mesh_vert", "body_mass", "jnt_axis"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_urdf_ignores_directories_of_files(tmp_path: Path) -> None:
    (tmp_path / "box.urdf").write_text(
        "<robot name='r'><link name='a'><inertial><mass value='1'/>"
        "<inertia ixx='1' ixy='0' ixz='0' iyy='1' iyz='0' izz='1'/></inertial>"
        "<collision><geometry><mesh filename='far/away/thing.obj'/></geometry></collision></link></robot>"
    )
    (tmp_path / "thing.obj").write_text(TETRAHEDRON)
    xml, files = collect_model(tmp_path / "box.urdf")
    assert names(files) == ["thing.obj"]
    assert load_uploaded_model(xml, files).nmesh == 1


def test_a_text_comes_with_its_assets() -> None:
    xml = (
        "<mujoco><asset><mesh name='m' file='a/t.obj'/></asset>"
        "<worldbody><geom type='mesh' mesh='m'/></worldbody></mujoco>"
    )
    given, files = collect_model(xml, {"a/t.obj": TETRAHEDRON.encode()})
    assert given == xml
    assert load_uploaded_model(xml, files).nmesh == 1
    assert names(collect_model("<mujoco/>")[1]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<mujoco><include file='../secret.xml'/></mujoco>", "top.xml refers to '../secret.xml'"),
        ("<mujoco><asset><mesh file='nowhere.obj'/></asset></mujoco>", "top.xml refers to 'nowhere.obj'"),
        ("<mujoco><include file='top.xml'/></mujoco>", "expected no circular includes"),
        ("<mujoco>", "top.xml is not valid XML"),
    ],
)
def test_what_cannot_be_collected_is_told(folder: Path, text: str, expected: str) -> None:
    (folder.parent / "secret.xml").write_text("<mujocoinclude/>")
    (folder / "top.xml").write_text(text)
    with pytest.raises(ValueError, match=expected.replace(".", r"\.")):
        collect_model(folder / "top.xml")


def test_a_missing_model_and_needless_assets_are_told(folder: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        collect_model(folder / "nowhere.xml")
    with pytest.raises(ValueError, match="expected them with the text of a model only"):
        collect_model(folder / "top.xml", {})


def test_collecting_needs_neither_mujoco_nor_a_server() -> None:
    code = (
        "import sys; from worldloom.client import collect_model; collect_model('<mujoco/>');"
        "print([name for name in ('mujoco', 'numba', 'worldloom.server', 'worldloom.worlds') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
