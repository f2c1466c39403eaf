"""Model files are read from allowed directories only, whatever they refer to."""

from pathlib import Path

import mujoco
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from worldloom.worlds.mujoco.models import files as models
from worldloom.worlds.mujoco.models.files import allow_model_dirs, load_model
from worldloom.worlds.settings import SettingError

TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"
SECRET = "v 0 0 0\nv 7 0 0\nv 0 7 0\nv 0 0 7\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"


def model(*, compiler: str = "", asset: str = "", body: str = '<geom size="1"/>', rest: str = "") -> str:
    return f"<mujoco><compiler {compiler}/><asset>{asset}</asset><worldbody>{body}</worldbody>{rest}</mujoco>"


def with_mesh(file: str, compiler: str = "") -> str:
    return model(compiler=compiler, asset=f'<mesh name="m" file="{file}"/>', body='<geom type="mesh" mesh="m"/>')


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An allowed directory beside one that is not, and a third, allowed too."""
    monkeypatch.setattr(models, "_allowed_dirs", [])
    for name in ("inside", "outside", "second", "inside/parts"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside/secret.obj").write_text(SECRET)
    (tmp_path / "outside/secret.xml").write_text(model())
    (tmp_path / "inside/parts/thing.obj").write_text(TETRAHEDRON)
    (tmp_path / "inside/plain.xml").write_text(model())
    (tmp_path / "second/other.xml").write_text(model(body='<geom size="1"/><geom size="2"/>'))
    allow_model_dirs([tmp_path / "inside", tmp_path / "second"])
    monkeypatch.chdir(tmp_path / "outside")  # MuJoCo looks for unknown files in the working directory
    return tmp_path / "inside"


def load_error(name: str) -> str:
    with pytest.raises(SettingError) as error:
        load_model(name)
    return str(error.value)


def test_models_of_all_directories_are_found(root: Path) -> None:
    assert load_model("plain.xml").ngeom == 1
    assert load_model("other.xml").ngeom == 2
    assert load_model("parts/../plain.xml").ngeom == 1


def test_without_directories_there_are_no_models(root: Path) -> None:
    allow_model_dirs([])
    assert "--model-dir" in load_error("plain.xml")


def test_a_directory_must_be_there(root: Path) -> None:
    with pytest.raises(ValueError, match="expected an existing directory"):
        allow_model_dirs([root / "nowhere"])
    assert load_model("plain.xml").ngeom == 1, "what was allowed still is"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "nowhere.xml",
        "parts",
        "../outside/secret.xml",
        "parts/../../outside/secret.xml",
        "a\0b.xml",
        "x" * 9999,
    ],
)
def test_files_outside_and_missing_files_give_the_same_error(root: Path, name: str) -> None:
    assert "expected an .xml file in a directory that the server allows" in load_error(name)


def test_an_absolute_path_is_rejected_even_inside(root: Path) -> None:
    assert "expected an .xml file" in load_error(str(root / "plain.xml"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.lists(st.sampled_from(["..", ".", "inside", "outside", "parts", "secret.xml", "/", "//", "~"]), max_size=7))
@example(["..", "outside", "secret.xml"])
def test_no_path_leads_outside(root: Path, parts: list[str]) -> None:
    name = "/".join(parts)
    with pytest.raises(SettingError):
        load_model(name)


def test_symlinks_do_not_lead_outside(root: Path) -> None:
    (root / "link.xml").symlink_to(root.parent / "outside/secret.xml")
    (root / "folder").symlink_to(root.parent / "outside")
    (root / "good.xml").symlink_to("plain.xml")
    assert "expected an .xml file" in load_error("link.xml")
    assert "expected an .xml file" in load_error("folder/secret.xml")
    assert load_model("good.xml").ngeom == 1


@pytest.mark.parametrize(
    ("file", "compiler"),
    [
        ("parts/thing.obj", ""),
        ("thing.obj", 'meshdir="parts"'),
        ("thing.obj", 'assetdir="parts"'),
        ("thing.obj", 'meshdir="parts/"'),
        ("far/away/thing.obj", 'meshdir="parts" strippath="true"'),
    ],
)
def test_meshes_are_found_where_mujoco_finds_them(root: Path, file: str, compiler: str) -> None:
    (root / "mesh.xml").write_text(with_mesh(file, compiler))
    found = load_model("mesh.xml")
    expected = mujoco.MjModel.from_xml_path(str(root / "mesh.xml"))
    assert found.mesh_vert.tolist() == expected.mesh_vert.tolist()


@pytest.mark.parametrize(
    "text",
    [
        with_mesh("../outside/secret.obj"),
        with_mesh("secret.obj"),
        with_mesh("secret.obj", 'meshdir="../outside"'),
        with_mesh("link.obj"),
        with_mesh("nowhere.obj"),
        model(asset='<texture name="t" type="2d" file="secret.png"/>'),
        model(asset='<texture name="t" type="cube" fileup="../outside/secret.png"/>'),
        model(asset='<hfield name="h" size="1 1 1 1" file="secret.png"/>'),
        model(asset='<model name="a" file="../outside/secret.xml"/>'),
        model(rest='<include file="../outside/secret.xml"/>'),
        model(rest='<include file="secret.xml"/>'),
        model(rest='<deformable><skin name="s" file="secret.skn"/></deformable>'),
        model(body='<flexcomp name="f" type="mesh" file="secret.obj" dim="2"/>'),
    ],
)
def test_files_that_a_model_refers_to_must_be_inside(root: Path, text: str) -> None:
    (root / "link.obj").symlink_to(root.parent / "outside/secret.obj")
    (root / "bad.xml").write_text(text)
    error = load_error("bad.xml")
    assert "bad.xml refers to" in error
    assert "does not exist or is outside" in error
    assert str(root.parent) not in error


def test_an_absolute_reference_is_rejected(root: Path) -> None:
    (root / "bad.xml").write_text(with_mesh(str(root / "parts/thing.obj")))
    assert "bad.xml refers to" in load_error("bad.xml")


def test_includes_and_attached_models_are_those_of_mujoco(root: Path) -> None:
    """Includes inside includes, meshes of included files, other models as parts."""
    (root / "top.xml").write_text(
        "<mujoco><include file='parts/mid.xml'/><worldbody><geom name='g' size='1'/>"
        "<frame><attach model='arm' body='link' prefix='a_'/></frame></worldbody>"
        "<asset><model name='arm' file='parts/arm.xml'/></asset></mujoco>"
    )
    (root / "parts/mid.xml").write_text(
        "<mujocoinclude><compiler meshdir='parts'/><asset><mesh name='m' file='thing.obj'/></asset>"
        "<worldbody><geom type='mesh' mesh='m'/></worldbody><include file='parts/deep.xml'/></mujocoinclude>"
    )
    (root / "parts/deep.xml").write_text(
        "<mujocoinclude><worldbody><geom name='deep' size='2'/></worldbody></mujocoinclude>"
    )
    (root / "parts/arm.xml").write_text(
        "<mujoco model='arm'><worldbody><body name='link'><joint/><geom size='.5'/></body></worldbody></mujoco>"
    )
    found = load_model("top.xml")
    expected = mujoco.MjModel.from_xml_path(str(root / "top.xml"))
    assert (found.ngeom, found.nbody, found.nmesh, found.njnt) == (4, 2, 1, 1)
    assert found.geom_size.tolist() == expected.geom_size.tolist()
    assert found.geom("deep").id == expected.geom("deep").id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<mujoco><worldbody>", "not valid XML"),
        ("", "not valid XML"),
        ("<robot/>", "expected <mujoco>"),
        ("<mujoco><wrldbody/></mujoco>", "wrldbody"),
        (model(body='<geom size="x"/>'), "geom"),
        (model(rest='<include file="bad.xml"/>'), "circular"),
        (model(asset='<mesh name="m" file="plain.xml"/>', body='<geom type="mesh" mesh="m"/>'), "mesh"),
    ],
)
def test_an_invalid_model_is_rejected_with_the_reason(root: Path, text: str, expected: str) -> None:
    (root / "bad.xml").write_text(text)
    error = load_error("bad.xml")
    assert expected in error
    assert str(root.parent) not in error


def test_a_model_that_is_too_large_is_rejected(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "mesh.xml").write_text(with_mesh("parts/thing.obj"))
    monkeypatch.setattr(models, "MAX_BYTES", 100)
    assert "expected a smaller model" in load_error("mesh.xml")
