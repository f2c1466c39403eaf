"""Model files come from the directories that are allowed and from nowhere else, whatever they refer to."""

from pathlib import Path

import mujoco
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from worldloom.worlds.mujoco.models import files as models
from worldloom.worlds.mujoco.models.files import allow, load_model
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
    monkeypatch.setattr(models, "_allowed", [])
    for name in ("inside", "outside", "second", "inside/parts"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside/secret.obj").write_text(SECRET)
    (tmp_path / "outside/secret.xml").write_text(model())
    (tmp_path / "inside/parts/thing.obj").write_text(TETRAHEDRON)
    (tmp_path / "inside/plain.xml").write_text(model())
    (tmp_path / "second/other.xml").write_text(model(body='<geom size="1"/><geom size="2"/>'))
    allow([tmp_path / "inside", tmp_path / "second"])
    monkeypatch.chdir(tmp_path / "outside")  # MuJoCo looks for what it does not know in the working directory
    return tmp_path / "inside"


def refusal(name: str) -> str:
    with pytest.raises(SettingError) as refused:
        load_model(name)
    return str(refused.value)


def test_models_of_all_directories_are_found(root: Path) -> None:
    assert load_model("plain.xml").ngeom == 1
    assert load_model("other.xml").ngeom == 2
    assert load_model("parts/../plain.xml").ngeom == 1


def test_without_directories_there_are_no_models(root: Path) -> None:
    allow([])
    assert "--model-dir" in refusal("plain.xml")


def test_a_directory_must_be_there(root: Path) -> None:
    with pytest.raises(ValueError, match="expected a directory that is there"):
        allow([root / "nowhere"])
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
def test_what_is_not_inside_is_refused_and_not_told_apart(root: Path, name: str) -> None:
    assert "expected an .xml file in a directory that the server allows" in refusal(name)


def test_an_absolute_path_is_refused_even_inside(root: Path) -> None:
    assert "expected an .xml file" in refusal(str(root / "plain.xml"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.lists(st.sampled_from(["..", ".", "inside", "outside", "parts", "secret.xml", "/", "//", "~"]), max_size=7))
@example(["..", "outside", "secret.xml"])
def test_no_path_leads_outside(root: Path, parts: list[str]) -> None:
    name = "/".join(parts)
    with pytest.raises(SettingError):
        load_model(name)


def test_symlinks_lead_nowhere_outside(root: Path) -> None:
    (root / "link.xml").symlink_to(root.parent / "outside/secret.xml")
    (root / "folder").symlink_to(root.parent / "outside")
    (root / "good.xml").symlink_to("plain.xml")
    assert "expected an .xml file" in refusal("link.xml")
    assert "expected an .xml file" in refusal("folder/secret.xml")
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
def test_what_a_model_refers_to_must_be_inside_too(root: Path, text: str) -> None:
    (root / "link.obj").symlink_to(root.parent / "outside/secret.obj")
    (root / "bad.xml").write_text(text)
    told = refusal("bad.xml")
    assert "bad.xml refers to" in told
    assert "not there or outside" in told
    assert str(root.parent) not in told


def test_an_absolute_reference_is_refused(root: Path) -> None:
    (root / "bad.xml").write_text(with_mesh(str(root / "parts/thing.obj")))
    assert "bad.xml refers to" in refusal("bad.xml")


def test_models_are_put_together_as_mujoco_does(root: Path) -> None:
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
    ("text", "told"),
    [
        ("<mujoco><worldbody>", "no XML"),
        ("", "no XML"),
        ("<robot/>", "expected a <mujoco>"),
        ("<mujoco><wrldbody/></mujoco>", "wrldbody"),
        (model(body='<geom size="x"/>'), "geom"),
        (model(rest='<include file="bad.xml"/>'), "circle"),
        (model(asset='<mesh name="m" file="plain.xml"/>', body='<geom type="mesh" mesh="m"/>'), "mesh"),
    ],
)
def test_a_bad_model_is_refused_with_the_reason(root: Path, text: str, told: str) -> None:
    (root / "bad.xml").write_text(text)
    words = refusal("bad.xml")
    assert told in words
    assert str(root.parent) not in words


def test_too_much_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "mesh.xml").write_text(with_mesh("parts/thing.obj"))
    monkeypatch.setattr(models, "MAX_BYTES", 100)
    assert "expected less" in refusal("mesh.xml")
