"""Models with every shape of MuJoCo, with each kind of texture and light."""

import io

import mujoco
import numpy as np
from PIL import Image

from worldloom.kernels.tables import U8

_SHAPES = (
    '<geom name="sphere" type="sphere" size=".4" {at}/>',
    '<geom name="capsule" type="capsule" size=".2 .3" {at}/>',
    '<geom name="ellipsoid" type="ellipsoid" size=".4 .25 .35" {at}/>',
    '<geom name="cylinder" type="cylinder" size=".25 .35" {at}/>',
    '<geom name="box" type="box" size=".35 .25 .3" {at}/>',
    '<geom name="wedge" type="mesh" mesh="wedge" {at}/>',
    '<geom name="tent" type="mesh" mesh="tent" {at}/>',
    '<geom name="hills" type="hfield" hfield="hills" {at}/>',
    '<geom name="card" type="plane" size=".4 .3 .02" {at}/>',
    '<site name="bead" type="ellipsoid" size=".2 .3 .4" {at}/>',
    '<site name="brick" type="box" size=".3 .2 .35" {at}/>',
)
_WEDGE = """<mesh name="wedge" vertex="-.4 -.3 -.3  .4 -.3 -.3  .4 .3 -.3  -.4 .3 -.3  -.4 -.3 .4  .4 -.3 .1"
 face="0 2 1 0 3 2 0 1 5 0 5 4 1 2 5 3 4 5 3 5 2 0 4 3"/>"""
_TENT = """<mesh name="tent" vertex="-.4 -.4 0  .4 -.4 0  .4 .4 0  -.4 .4 0  0 0 .5"
 texcoord="0 0  1 0  1 1  0 1  .5 .5" face="0 1 4  1 2 4  2 3 4  3 0 4  0 2 1  0 3 2"/>"""
LIGHTS = {
    "head": "",
    "sun": '<light type="directional" dir=".3 .4 -1" diffuse=".6 .5 .4" specular=".4 .4 .4" ambient=".1 .1 .2"/>',
    "lamp": '<light pos="0 -1 3" dir="0 .2 -1" diffuse=".9 .8 .7" attenuation="1 .1 .02" cutoff="90" exponent="0"/>',
    "spot": '<light pos="-1 -2 4" dir=".2 .4 -1" cutoff="35" exponent="8" diffuse="1 1 .8" specular=".3 .3 .3"/>'
    '<light pos="2 1 5" dir="-.2 0 -1" cutoff="50" exponent="2" diffuse=".3 .4 .9" ambient="0 .1 0"/>',
    "none": "",
}


def build_all_shapes(
    texture: str | None, uniform: bool = False, light: str = "head", skybox: bool = True
) -> mujoco.MjModel:
    """Build a model with every shape on an infinite floor; `texture` is `flat`, `cube` or None."""
    material = "" if texture is None else 'material="paint"'
    shapes = []
    for place, shape in enumerate(_SHAPES):
        x, y = 1.05 * (place % 4 - 1.5), 1.05 * (place // 4 - 1)
        at = f'pos="{x} {y} .45" euler="{17 * place} {-23 * place} {31 * place}" {material}'
        if "plane" in shape or "hfield" in shape:
            at = f'pos="{x} {y} .3" euler="{7 * place % 30} {-9 * place % 20} {31 * place}" {material}'
        if texture == "cube" and "tent" in shape:  # OpenGL would show the flat texture that was bound before
            at = at.replace(material, "")
        shapes.append(shape.format(at=at))
    repeat = "2.5 1.5" if texture == "flat" else "1 1"
    textures = """<texture name="flat" type="2d" file="flat.png"/>
      <texture name="cube" type="cube" file="cube.png" gridsize="3 4" gridlayout=".U..LFRB.D.."/>"""
    sky = '<texture type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2=".1 .1 .2" width="64" height="384"/>'
    active = 'active="0"' if light == "none" else ""
    mirrored = ".2 .2 .2" if light == "head" else "0 0 0"
    xml = f"""<mujoco><visual><headlight ambient=".3 .3 .3" diffuse=".5 .5 .5" specular="{mirrored}" {active}/></visual>
    <statistic extent="3" center="0 0 .4"/>
    <asset>{textures}{sky if skybox else ""}
      <texture name="tiles" type="2d" builtin="checker" rgb1=".2 .3 .4" rgb2=".5 .5 .6" width="100" height="100"/>
      <material name="paint" texture="{texture or "flat"}" texrepeat="{repeat}" texuniform="{str(uniform).lower()}"
        specular=".4" shininess=".3" emission=".1"/>
      <material name="tiles" texture="tiles" texrepeat="1 .5" texuniform="true"/>
      {_WEDGE}{_TENT}
      <hfield name="hills" nrow="5" ncol="7" size=".45 .35 .3 .1" elevation="{_elevation()}"/>
    </asset>
    <worldbody>{LIGHTS[light]}
      <geom name="floor" type="plane" size="0 0 .1" material="tiles"/>
      <geom name="strip" type="plane" size="0 .4 .1" pos="0 2.4 .05" material="tiles"/>
      <camera name="above" pos="0 -3.4 3.2" euler="48 0 0" fovy="50"/>
      <camera name="beside" pos="3.6 -1 1.2" xyaxes=".3 1 0 -.3 .1 1"/>
      <camera name="flat" pos="0 0 4" fovy="5" projection="orthographic"/>
      {"".join(shapes)}
    </worldbody></mujoco>"""
    return mujoco.MjModel.from_xml_string(xml, {"flat.png": _png(_flat()), "cube.png": _png(_cube())})


def _elevation() -> str:
    rng = np.random.default_rng(3)
    return " ".join(f"{height:.3f}" for height in rng.uniform(0, 1, 35))


def _flat() -> U8:
    """Return an image that shows its orientation: quarters of different sizes and colours."""
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:30, :20], pixels[:30, 20:] = (200, 60, 60), (60, 200, 60)
    pixels[30:, :20], pixels[30:, 20:] = (60, 60, 200), (220, 220, 80)
    return pixels


def _cube() -> U8:
    """Return the six faces of a cube as a cross, each with its own colour and a darker corner."""
    side = 32
    pixels = np.zeros((3 * side, 4 * side, 3), np.uint8)
    colors = ((200, 60, 60), (60, 200, 60), (60, 60, 200), (220, 220, 80), (200, 80, 200), (80, 200, 200))
    for (row, column), color in zip(((0, 1), (1, 0), (1, 1), (1, 2), (1, 3), (2, 1)), colors, strict=True):
        face = pixels[row * side : (row + 1) * side, column * side : (column + 1) * side]
        face[...] = color
        face[:12, :16] //= 2
    return pixels


def _png(pixels: U8) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()
