"""Meshes and textures of models, as they are added to the asset library."""

from collections.abc import Callable

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.mujoco_models import build_all_shapes
from worldloom.kernels.tables import U8
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import Mesh
from worldloom.worlds.mujoco.models import shapes
from worldloom.worlds.mujoco.models.meshes import build_height_field, build_mesh_asset, with_coarser_versions
from worldloom.worlds.mujoco.models.textures import (
    acquire_sky,
    acquire_texture,
    read_cube_faces,
    read_texture,
    resample,
    split_by_cube_face,
)

SIZES = st.integers(1, 40)
SHAPES: dict[str, Callable[[], Mesh]] = {
    "sphere": shapes.build_sphere,
    "box": shapes.build_box,
    "cylinder": shapes.build_cylinder,
    "capsule": lambda: shapes.build_capsule(1.7),
}


def area(mesh: Mesh) -> float:
    a, b, c = np.moveaxis(mesh.positions[mesh.triangles].astype(np.float64), 1, 0)
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2)


def noise(height: int, width: int, seed: int) -> U8:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


@given(SIZES, SIZES, st.integers(0, 99), st.booleans())
def test_textures_keep_their_mean(height: int, width: int, seed: int, repeats: bool) -> None:
    pixels = noise(height, width, seed)
    smaller = resample(pixels, 1, repeats)
    np.testing.assert_allclose(smaller[0, 0], pixels.mean(axis=(0, 1)), atol=0.5 + 1e-9)  # it is rounded
    plain = np.full_like(pixels, seed)
    np.testing.assert_array_equal(resample(plain, 16, repeats), np.full((16, 16, 3), seed))


def test_a_texture_of_the_right_size_stays_as_it_is_and_others_follow_their_lines() -> None:
    pixels = noise(16, 16, 1)
    np.testing.assert_array_equal(resample(pixels, 16, True), pixels)
    ramp = np.repeat(np.array([[0, 100]], np.uint8)[..., None], 3, axis=2)
    np.testing.assert_array_equal(resample(ramp, 4, False)[0, :, 0], [0, 25, 75, 100])
    np.testing.assert_array_equal(resample(ramp, 4, True)[0, :, 0], [25, 25, 75, 75])


def test_the_same_image_is_one_texture() -> None:
    assets = AssetLibrary(16)
    one, two = noise(20, 30, 1), noise(20, 30, 2)
    assert acquire_texture(assets, one, True) == acquire_texture(assets, one.copy(), True)
    assert acquire_texture(assets, one, True) != acquire_texture(assets, two, True)
    faces = [noise(8, 8, face) for face in range(6)]
    first = acquire_sky(assets, faces)
    assert acquire_sky(assets, faces) == first
    assert len(assets.table.texels) == first + 6


def test_srgb_textures_become_linear() -> None:
    spec = mujoco.MjSpec()
    for name, space in (("plain", "LINEAR"), ("gamma", "SRGB")):
        texture = spec.add_texture(name=name, type=mujoco.mjtTexture.mjTEXTURE_2D, width=2, height=2, nchannel=3)
        texture.colorspace = getattr(mujoco.mjtColorSpace, f"mjCOLORSPACE_{space}")
        texture.data = np.array([0, 64, 128, 188, 255, 10] * 2, np.uint8).tobytes()
    model = spec.compile()
    plain, gamma = read_texture(model, 0), read_texture(model, 1)
    assert plain is not None
    assert gamma is not None
    np.testing.assert_array_equal(plain.ravel()[:6], [0, 64, 128, 188, 255, 10])
    np.testing.assert_array_equal(gamma.ravel()[:6], [0, 13, 55, 128, 255, 1])  # as the standard has it


def test_a_cube_has_six_faces_or_one_six_times() -> None:
    model = build_all_shapes("cube")
    faces = read_cube_faces(model, model.texture("cube").id)
    assert faces is not None
    assert len({face.tobytes() for face in faces}) == 6


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cube_texture_covers_all_of_a_mesh_once(shape: str) -> None:
    mesh = SHAPES[shape]()
    parts = split_by_cube_face(mesh, lambda points: points, tuple(range(6)), 64)
    assert sum(area(part) for part in parts.values()) == pytest.approx(area(mesh), rel=1e-5)
    for face, part in parts.items():
        assert part.uvs.min() >= 0
        assert part.uvs.max() <= 1
        axis, sign = face // 2, 1 - 2 * (face % 2)
        reach = np.abs(part.positions).max(axis=1)
        np.testing.assert_allclose(sign * part.positions[:, axis], reach, atol=1e-5)  # it is cut at the cube's edges
        assert (part.coarser is None) == (mesh.coarser is None)
    together = split_by_cube_face(mesh, lambda points: points, (0,) * 6, 64)
    assert list(together) == [0]


def test_lighter_versions_are_lighter_and_close() -> None:
    mesh = with_coarser_versions(shapes.build_sphere(128))
    assert mesh.coarser is not None
    sizes = []
    while mesh.coarser is not None:
        coarse, cell = mesh.coarser.mesh, mesh.coarser.size[0]
        assert len(coarse.triangles) < 0.75 * len(mesh.triangles)
        np.testing.assert_allclose(np.linalg.norm(coarse.positions, axis=1), 1, atol=cell)
        sizes.append(cell)
        mesh = coarse
    assert sizes == sorted(sizes)
    few = shapes.build_box()
    assert with_coarser_versions(few) is few


def test_meshes_of_a_model_are_closed() -> None:
    model = build_all_shapes(None)
    for mesh in (build_mesh_asset(model, 0), build_mesh_asset(model, 1), build_height_field(model, 0)):
        corners = mesh.positions[mesh.triangles].astype(np.float64)
        a, b, c = np.moveaxis(corners, 1, 0)
        assert np.cross(b - a, c - a).sum(axis=0) == pytest.approx([0, 0, 0], abs=1e-6)
        assert np.einsum("ni,ni->n", a, np.cross(b, c)).sum() > 0  # and their triangles face outwards


def test_fine_height_fields_are_smooth_and_as_high() -> None:
    heights = np.random.default_rng(0).uniform(0, 1, (80, 70))
    spec = mujoco.MjSpec()
    field = spec.add_hfield(name="hills", nrow=80, ncol=70, size=[1, 2, 0.5, 0.1])
    field.userdata = heights.ravel().tolist()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="hills")
    model = spec.compile()
    mesh = build_height_field(model, 0)
    assert len(mesh.positions) < 1.2 * heights.size
    assert np.ptp(mesh.positions, axis=0) == pytest.approx([2, 4, 0.6], abs=1e-6)


@given(st.floats(0.01, 100.0))
def test_capsules_of_nearly_the_same_shape_are_one_mesh(half_length: float) -> None:
    assets = AssetLibrary(1)
    number = shapes.acquire_capsule(assets, half_length)
    assert shapes.acquire_capsule(assets, half_length * 1.0001) - number in (0, 1)
    assert assets.table.mesh_half_size[number, 2] - 1 == pytest.approx(half_length, rel=1e-3)
