"""Tables that are not valid together raise an error that names the view and the reason, before anything is drawn."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.scene_builder import Look, Piece, assets, build, pose
from worldloom.kernels.outputs import DEPTH, RGB, SEGMENTATION
from worldloom.kernels.tables import MAX_LAMPS
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.renderer import Renderer
from worldloom.render.views import look_at, make_views

NORTH = look_at((0, 0, 0), (0, 1, 0))
BOX = Piece("box", pose((0, 5, 0)), "ffffff", 1)

Tables = dict[str, Any]


def put(column: str, value: float) -> Callable[[Tables], None]:
    """Set one value of view 1."""

    def spoil(tables: Tables) -> None:
        array = getattr(tables["views"], column)
        array[(1, 0, 3) if column == "camera" else 1] = value

    return spoil


def retype(column: str, dtype: str) -> Callable[[Tables], None]:
    def spoil(tables: Tables) -> None:
        tables["views"] = tables["views"]._replace(**{column: getattr(tables["views"], column).astype(dtype)})

    return spoil


def offset(view: int, output: int, value: int) -> Callable[[Tables], None]:
    def spoil(tables: Tables) -> None:
        tables["offsets"][view, output] = value

    return spoil


def row(column: str, value: int) -> Callable[[Tables], None]:
    def spoil(tables: Tables) -> None:
        getattr(tables["scene"].instances, column)[1] = value

    return spoil


def lane(column: str, value: int) -> Callable[[Tables], None]:
    def spoil(tables: Tables) -> None:
        getattr(tables["scene"].lanes, column)[1] = value

    return spoil


def swap(name: str, change: Callable[[Any], Any]) -> Callable[[Tables], None]:
    def spoil(tables: Tables) -> None:
        tables[name] = change(tables[name])

    return spoil


def shear(tables: Tables) -> None:
    tables["views"].camera[1, 0, 1] += 0.1


REFUSED: dict[str, tuple[Callable[[Tables], None], str]] = {
    "no width": (put("width", 0), "view 1: width"),
    "negative height": (put("height", -4), "view 1: height"),
    "absurd width": (put("width", 1 << 20), "view 1: width"),
    "unknown lane": (put("lane", 2), "view 1: lane"),
    "negative lane": (put("lane", -1), "view 1: lane"),
    "two samples": (put("samples", 2), "view 1: samples"),
    "no samples": (put("samples", 0), "view 1: samples"),
    "unknown output": (put("outputs", 64), "view 1: outputs"),
    "camera not a number": (put("camera", np.nan), "view 1: .*camera"),
    "camera infinite": (put("camera", np.inf), "view 1: .*camera"),
    "camera askew": (shear, "view 1: .*camera"),
    "near zero": (put("near", 0.0), "view 1: near"),
    "near negative": (put("near", -1.0), "view 1: near"),
    "near not a number": (put("near", np.nan), "view 1: near"),
    "far before near": (put("far", 0.01), "view 1: far"),
    "far infinite": (put("far", np.inf), "view 1: far"),
    "no field of view": (put("half_height", 0.0), "view 1: half_height"),
    "field of view not a number": (put("half_height", np.nan), "view 1: half_height"),
    "unknown mesh": (row("mesh", 999), "row 1: mesh"),
    "negative mesh": (row("mesh", -2), "row 1: mesh"),
    "unknown texture": (row("texture", 999), "row 1: texture"),
    "more lamps than a lane has": (lane("lamp_count", MAX_LAMPS + 1), "lane 1: lamp_count is 9, expected 0 to 8"),
    "fewer lamps than none": (lane("lamp_count", -1), "lane 1: lamp_count is -1"),
    "sky without its last side": (lane("sky_textures", len(assets().table.texels) - 5), "lane 1: sky_textures"),
    "only sky unknown": (lane("sky_textures", -2 - len(assets().table.texels)), "lane 1: sky_textures is -.* less the"),
    "screen sky unknown": (lane("sky_textures", -(2**20) - len(assets().table.texels)), "lane 1: sky_textures is -"),
    "sky beyond all": (lane("sky_textures", -(2**31)), "lane 1: sky_textures is -2147483648, expected -1 for none"),
    "offset past the end": (offset(1, 0, 10_000_000), "view 1: .*rgb"),
    "frame beyond the end": (offset(1, 0, 4000), "view 1: .*rgb"),
    "offset missing": (offset(1, 2, -1), "view 1: .*depth"),
    "frames overlap": (offset(1, 3, 64), "views 0 and 1: .*overlap|views 1 and 0: .*overlap"),
    "lanes in 64 bits": (retype("lane", "int64"), "views.lane"),
    "cameras in 64 bits": (retype("camera", "float64"), "views.camera"),
    "sizes in 64 bits": (retype("width", "int64"), "views.width"),
    "offsets in 32 bits": (swap("offsets", lambda table: table.astype(np.int32)), "offsets"),
    "offsets for another batch": (swap("offsets", lambda table: table[:1]), "offsets"),
    "arena of floats": (swap("arena", lambda arena: arena.view(np.float32)), "arena"),
    "arena with gaps": (swap("arena", lambda arena: np.repeat(arena, 2)[::2]), "arena"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_mistake_is_refused_before_anything_is_drawn(renderer: Renderer, mistake: str) -> None:
    spoil, message = REFUSED[mistake]
    views = make_views([0, 1], camera=NORTH, width=16, height=16, outputs=RGB | DEPTH | SEGMENTATION)
    offsets, size_bytes = lay_out(views)
    arena = np.full(size_bytes, 0xA5, np.uint8)
    tables: Tables = {
        "scene": build((Look(), [BOX]), (Look(), [BOX])),
        "views": views,
        "arena": arena,
        "offsets": offsets,
    }
    spoil(tables)
    with pytest.raises(ValueError, match=message):
        renderer.draw(tables["scene"], tables["views"], tables["arena"], tables["offsets"])
    assert (arena == 0xA5).all()


def test_a_read_only_arena_is_refused(renderer: Renderer) -> None:
    views = make_views(0, camera=NORTH, width=4, height=4)
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    arena.flags.writeable = False
    with pytest.raises(ValueError, match="arena"):
        renderer.draw(build((Look(), [BOX])), views, arena, offsets)
