"""A sky of six textures is a cube map of OpenGL: the driver samples one as the reference renderer does."""

import numpy as np
import pytest

from tests.support import reference_lights as reference_light
from worldloom.kernels.tables import F32, U8
from worldloom.render.assets import AssetLibrary
from worldloom.render.gl.context import GLContext

SIZE = 16
SIDE = 96
"""Side of an image of directions, in pixels."""

VERTEX = """
#version 450
void main() { gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0); }
"""
FRAGMENT = """
#version 450
layout(binding = 0) uniform samplerCube sky;
layout(binding = 1) uniform sampler2D ways;
out vec4 color;
void main() {
    vec3 way = texelFetch(ways, ivec2(gl_FragCoord.xy), 0).xyz;
    color = texture(sky, vec3(way.x, way.z, -way.y));
}
"""


def read_by_driver(sides: U8, ways: F32) -> U8:
    """Return the colours [n, 3] of the driver's cube map along these directions [n, 3]."""
    context = GLContext()
    with context.current():
        gl = context.moderngl
        cube = gl.texture_cube((SIZE, SIZE), 3, sides.tobytes())
        cube.filter = (gl.LINEAR, gl.LINEAR)
        directions = gl.texture((SIDE, SIDE), 3, ways.tobytes(), dtype="f4")
        target = gl.framebuffer([gl.renderbuffer((SIDE, SIDE))])
        target.use()
        cube.use(0)
        directions.use(1)
        gl.vertex_array(gl.program(vertex_shader=VERTEX, fragment_shader=FRAGMENT), []).render(gl.TRIANGLES, 3)
        shown = np.frombuffer(target.read(components=3), np.uint8).reshape(-1, 3)
        context.release()
    return shown


@pytest.mark.gl
def test_six_textures_are_a_cube_map() -> None:
    rng = np.random.default_rng(7)
    library = AssetLibrary(texture_size=SIZE)
    sides = rng.integers(0, 256, (6, SIZE, SIZE, 3), np.uint8)
    numbers = [library.add_texture(f"side {side}", pixels) for side, pixels in enumerate(sides)]
    ways = rng.normal(size=(SIDE * SIDE, 3)).astype(np.float32)
    # Away from where sides meet: there a driver may blend the two.
    sizes = np.sort(abs(ways), axis=1)
    inside = sizes[:, 1] < (1 - 1.0 / SIZE) * sizes[:, 2]
    shown = read_by_driver(sides, ways).astype(np.int64)
    expected = 255 * reference_light.sky_box(library.table, numbers[0], ways.astype(np.float64), 1e-3)
    assert inside.mean() > 0.8
    # Half a level each for rounding, and for places rounded to 1/256 texel across and down (llvmpipe needs the first).
    assert abs(shown - expected)[inside].max() <= 1.5
