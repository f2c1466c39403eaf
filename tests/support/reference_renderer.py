"""The reference renderer: docs/rendering.md in plain NumPy, by casting rays instead of filling triangles.

A ray through each pixel is intersected with every triangle of the view's lane, in float64; the nearest hit with
near <= depth < far is what the pixel shows. It is slow, short, and shares no method with a rasteriser: no clipping, no
edges on the screen, no division by w. Of `worldloom` it reads the plain tables only.

Everything is measured from the camera's position, the eye, along the axes of the world. Rays are arrays [n, 2, 3] of
origin and direction. A direction is as long as one metre of depth, so a hit lies at origin + depth * direction.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tests.support.reference_lights import F64, Int, bilinear, daylight, dot, lamplight, mix, sky_box, unit
from tests.support.reference_shadows import casting_lights, draw_map, lit_share
from worldloom.kernels.outputs import outputs_of
from worldloom.kernels.tables import (
    NO_MESH,
    NO_TEXTURE,
    OPAQUE_ALPHA,
    SCREEN_SKY,
    STANDS_FOR_SHADOW,
    TINTED_SKY,
    AssetTable,
    LaneTable,
    PreviousTable,
    ViewTable,
)
from worldloom.render.scene import Scene

Bool: TypeAlias = NDArray[np.bool_]

SUN = -1  # the number of a lane's directional light among those that cast shadows
CENTER = (0.5, 0.5)  # from a pixel's top left corner: to the right, down
SAMPLE_POINTS = ((3 / 8, 1 / 8), (7 / 8, 3 / 8), (1 / 8, 5 / 8), (5 / 8, 7 / 8))
CREASE = float(np.sin(np.radians(20)))  # neighbouring hits on one smooth surface are no steeper to it than this
PAIRS_AT_ONCE = 100_000  # rays times triangles in one NumPy expression
edge_on = np.errstate(divide="ignore", invalid="ignore")  # rays along a plane divide by zero: no hit, or not used


class Hits(NamedTuple):
    """The first hit of each ray: an instance row and a triangle of the asset table, both -1 for the sky."""

    row: Int  # [pixels]
    triangle: Int  # [pixels]
    depth: F64  # [pixels] infinite for the sky


class Surface(NamedTuple):
    """Surfaces of the pixels that hit one: the plane of their triangle at the pixel's centre."""

    point: F64  # [n, 3]
    depth: F64  # [n]
    weights: F64  # [n, 3] of its triangle's corners
    normal: F64  # [n, 3] unit length, turned to the viewer
    color: F64  # [n, 3] lit, not yet in fog
    is_shadow_edge: Bool  # [n] true where a shadow ends, or a last bit may decide whether there is one


class Layer(NamedTuple):
    """A translucent row."""

    row: int
    alpha: float
    hits: list[Hits]
    """Hits of rays on the row itself, whatever lies before it."""


class Cast(NamedTuple):
    """Hits of the rays of a view: through pixel centres first and, with four samples, through each sample point."""

    all: list[Hits]
    """The first hits of all rows."""
    opaque: list[Hits]
    """The first hits of opaque rows: the same list if there are no others."""
    layers: list[Layer]
    """Translucent rows, from far to near."""


def cast(scene: Scene, views: ViewTable, view: int) -> Cast:
    """Return what the rays of a view hit."""
    points = (CENTER, *SAMPLE_POINTS) if views.samples[view] == 4 else (CENTER,)
    lane, alphas = int(views.lane[view]), scene.instances.alpha
    every = scene.lanes.first_row[lane] + np.arange(scene.lanes.row_count[lane])
    opaque = every[alphas[every] >= OPAQUE_ALPHA]
    seen = [_first_hits(scene, views, view, point, opaque) for point in points]
    layers = [
        Layer(row, float(alphas[row]), [_first_hits(scene, views, view, point, [row]) for point in points])
        for row in _far_to_near(scene, views, view, every[(alphas[every] > 0) & (alphas[every] < OPAQUE_ALPHA)])
    ]
    if not layers:
        return Cast(seen, seen, [])
    in_order = sorted(layers, key=lambda layer: layer.row)
    nearest = [_nearest([seen[k], *(layer.hits[k] for layer in in_order)]) for k in range(len(points))]
    return Cast(nearest, seen, layers)


def _nearest(hits: list[Hits]) -> Hits:
    """Return the nearest of several hits of each ray, the first among equals."""
    best, each = np.argmin([one.depth for one in hits], axis=0), np.arange(len(hits[0].row))
    return Hits(*(np.stack(column)[best, each] for column in zip(*hits, strict=True)))


def _far_to_near(scene: Scene, views: ViewTable, view: int, rows: Int) -> list[int]:
    """Return translucent rows in the order in which they are blended."""
    table, camera = scene.assets.table, views.camera[view].astype(np.float64)
    keys = []
    for row in rows.tolist():
        mesh, pose = int(scene.instances.mesh[row]), scene.instances.pose[row].astype(np.float64)
        if mesh == NO_MESH or not np.isfinite(pose).all():
            keys.append(0.0)  # nothing is drawn
            continue
        first, count = int(table.mesh_first_triangle[mesh]), int(table.mesh_triangle_count[mesh])
        points = table.positions[table.triangles[first : first + count].ravel()].astype(np.float64)
        radius = np.linalg.norm(points @ pose[:, :3].T, axis=1).max()
        away = pose[:, 3] - camera[:, 3]
        distance = -away @ camera[:, 2] if views.orthographic[view] else np.linalg.norm(away)
        is_flat = (points == 0).all(axis=0).any()
        keys.append(distance + radius if is_flat else distance - radius)
    return [int(row) for row in rows[np.argsort(-np.array(keys), kind="stable")]]


def render(
    scene: Scene,
    views: ViewTable,
    view: int,
    hits: Cast | None = None,
    previous: PreviousTable | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the frames of a view by output, as `get_frame` of the arena does; `hits` is its `cast`, if known."""
    hits = hits or cast(scene, views, view)
    count = int(views.samples[view])
    samples = hits.all[-count:]
    color = np.mean([_colors(scene, views, view, sample) for sample in hits.opaque[-count:]], axis=0)
    if hits.layers:
        color = np.mean([_blended(scene, views, view, hits, k) for k in range(-count, 0)], axis=0)
    rgb = np.floor(255 * color + 0.5).astype(np.int64)
    row = samples[0].row
    depth, label = np.full(row.shape, views.far[view]), np.zeros(row.shape, np.uint8)
    surface, normals = _surface(scene, views, view, samples[0]), np.zeros((*row.shape, 3))
    depth[row >= 0] = surface.depth
    normals[row >= 0] = surface.normal @ views.camera[view, :, :3].astype(np.float64)
    label[row >= 0] = scene.instances.label[row[row >= 0]]
    gray = ((rgb @ (77, 150, 29) + 128) >> 8).astype(np.uint8)
    flat = {"rgb": rgb.astype(np.uint8), "gray": gray, "depth": depth, "segmentation": label, "normals": normals}
    flat["flow"] = _flow(scene, views, view, samples[0], surface, previous)
    asked = [output.name for output in outputs_of(int(views.outputs[view]))]
    return {name: flat[name].reshape(*_shape(views, view), *flat[name].shape[1:]) for name in asked}


def _blended(scene: Scene, views: ViewTable, view: int, hits: Cast, sample: int) -> F64:
    """Return the colours [pixels, 3] of one of the samples, with all layers: whole levels of 255."""
    levels = np.floor(255 * _colors(scene, views, view, hits.opaque[sample]) + 0.5)
    for layer in hits.layers:
        above = np.floor(255 * _colors(scene, views, view, layer.hits[sample]) + 0.5)
        is_seen = layer.hits[sample].depth < hits.opaque[sample].depth
        blended = np.floor(levels + layer.alpha * (above - levels) + 0.5)
        levels = np.where(is_seen[:, None], blended, levels)
    return levels / 255


def triangle_ids(scene: Scene, views: ViewTable, view: int) -> Int:
    """Return what pixel centres hit [H, W]: instance row * triangles of the asset table + triangle; -1 for the sky."""
    row, triangle, _ = cast(scene, views, view).all[0]
    return np.where(row < 0, -1, row * len(scene.assets.table.triangles) + triangle).reshape(_shape(views, view))


def silhouettes(scene: Scene, views: ViewTable, view: int, hits: Cast | None = None) -> Bool:
    """Return the pixels [H, W] on or next to an edge of an instance, of the sky, of a hard crease, of a fold.

    There a pixel depends on the side of the edge that a point falls on, so a last bit may decide it. Edges seen through
    layers count, too, and those of each layer.
    """
    hits = hits or cast(scene, views, view)
    seen = [hits.all, *([hits.opaque] if hits.layers else ()), *(layer.hits for layer in hits.layers)]
    # A layer ends where something opaque is before it.
    ends = [
        [Hits(np.where(own.depth < opaque.depth, own.row, -1), own.triangle, own.depth) for own, opaque in pairs]
        for pairs in (zip(layer.hits, hits.opaque, strict=True) for layer in hits.layers)
    ]
    return np.asarray(np.any([_edges(scene, views, view, each) for each in (*seen, *ends)], axis=0))


def _edges(scene: Scene, views: ViewTable, view: int, hits: list[Hits]) -> Bool:
    """Return the pixels [H, W] on or next to an edge of what these rays hit."""
    shape, surface = _shape(views, view), _surface(scene, views, view, hits[0])
    point, normal = np.zeros((*shape, 3)), np.zeros((*shape, 3))
    row = hits[0].row.reshape(shape)
    point[row >= 0], normal[row >= 0] = surface.point, surface.normal
    within: Bool = np.any([each.row.reshape(shape) != row for each in hits], axis=0)
    marked = within.copy()
    for here, there in _neighbours():
        step = point[there] - point[here]
        rise = np.maximum(abs(dot(step, normal[here])), abs(dot(step, normal[there])))
        steep = rise > CREASE * np.linalg.norm(step, axis=-1)
        edge = within[here] | within[there] | (row[here] != row[there]) | steep
        marked[here] |= edge
        marked[there] |= edge
    marked[row >= 0] |= surface.is_shadow_edge
    return marked


def _neighbours() -> Iterator[tuple[tuple[slice, slice], tuple[slice, slice]]]:
    """Return index pairs that shift an image by a pixel in four directions: all pairs of neighbours."""
    whole, head, tail = slice(None), slice(None, -1), slice(1, None)
    yield (whole, head), (whole, tail)
    yield (head, whole), (tail, whole)
    yield (head, head), (tail, tail)
    yield (head, tail), (tail, head)


def _rays(views: ViewTable, view: int, at: tuple[float, float]) -> F64:
    """Return a ray through the same point of every pixel, row after row."""
    height, width = _shape(views, view)
    pixel = 2 * float(views.half_height[view]) / height  # its side, in metres at depth 1 or, orthographic, anywhere
    right, up, backward = views.camera[view, :, :3].astype(np.float64).T
    y, x = np.mgrid[:height, :width].reshape(2, -1, 1) + np.reshape(at[::-1], (2, 1, 1))
    aside = (x - width / 2) * pixel * right + (height / 2 - y) * pixel * up
    if views.orthographic[view]:
        return np.stack([aside, np.broadcast_to(-backward, aside.shape)], axis=1)
    return np.stack([np.zeros_like(aside), aside - backward], axis=1)


def _corners(scene: Scene, views: ViewTable, view: int, rows: Int, triangles: Int) -> F64:
    """Return the corners [n, 3, 3] of these triangles of these instance rows, relative to the camera."""
    table = scene.assets.table
    local = table.positions[table.triangles[triangles]].astype(np.float64)
    pose = scene.instances.pose[rows].astype(np.float64)
    from_eye = (pose[:, :, 3] - views.camera[view, :, 3])[:, None]
    return np.asarray(np.einsum("nij,nkj->nki", pose[:, :, :3], local) + from_eye)


def _first_hits(
    scene: Scene, views: ViewTable, view: int, at: tuple[float, float], instance_rows: "Int | list[int]"
) -> Hits:
    """Return the first hits of rays through one point of every pixel, on any of these instance rows."""
    table, instances = scene.assets.table, scene.instances
    rays, to_the_right, below = (_rays(views, view, (at[0] + dx, at[1] + dy)) for dx, dy in ((0, 0), (1, 0), (0, 1)))
    nearest = np.full(len(rays), np.inf)
    hit_row, hit_triangle = np.full(len(rays), -1), np.full(len(rays), -1)
    for row in np.asarray(instance_rows, np.int64).tolist():
        mesh, pose = int(instances.mesh[row]), instances.pose[row].astype(np.float64)
        if mesh == NO_MESH or not np.isfinite(pose).all():
            continue
        if views.shadows[view] and instances.shadow[row] == STANDS_FOR_SHADOW:
            continue
        mesh = detail(table, mesh, pose, views, view)
        volume, both_sides = np.linalg.det(pose[:, :3]), bool(table.mesh_is_two_sided[mesh])
        first, count = int(table.mesh_first_triangle[mesh]), int(table.mesh_triangle_count[mesh])
        corners = _corners(scene, views, view, np.full(count, row), first + np.arange(count))
        close_to_mesh = np.flatnonzero(_pass_near(rays, corners))
        for some in np.array_split(np.arange(count), min(count, 1 + close_to_mesh.size * count // PAIRS_AT_ONCE)):
            close = close_to_mesh[_pass_near(rays[close_to_mesh], corners[some])]
            if not close.size:
                continue
            covered, counter_clockwise = _covered(rays[close], (to_the_right[close], below[close]), corners[some])
            if volume != 0 and not both_sides:
                covered &= counter_clockwise == (volume > 0)
            depth = np.where(covered, _depths(rays[close], corners[some]), np.inf)
            depth[(depth < views.near[view]) | (depth >= views.far[view])] = np.inf
            best = depth.argmin(axis=1)
            best_depth = depth[np.arange(close.size), best]
            closer = best_depth < nearest[close]
            nearest[close[closer]], hit_row[close[closer]] = best_depth[closer], row
            hit_triangle[close[closer]] = first + some[best[closer]]
    return Hits(hit_row, hit_triangle, nearest)


def detail(table: AssetTable, mesh: int, pose: F64, views: ViewTable, view: int) -> int:
    """Return the coarser mesh that is drawn where the bounding ball of the instance is small on the screen."""
    pixel = 2 * float(views.half_height[view]) / float(views.height[view])
    if not views.orthographic[view]:
        pixel *= float((views.camera[view, :, 3] - pose[:, 3]) @ views.camera[view, :, 2].astype(np.float64))
    stretch = np.linalg.norm(pose[:, :3], axis=0)
    while table.mesh_coarser[mesh] != NO_MESH and (stretch * table.mesh_coarser_size[mesh]).max() < pixel:
        mesh = int(table.mesh_coarser[mesh])
    return mesh


def _pass_near(rays: F64, corners: F64) -> Bool:
    """Return which rays pass through the bounding ball of these triangles: no other can hit one."""
    points = corners.reshape(-1, 3)
    center = (points.min(axis=0) + points.max(axis=0)) / 2
    radius = np.linalg.norm(points - center, axis=1).max() * (1 + 1e-9)
    off_axis = np.linalg.norm(np.cross(center - rays[:, 0], rays[:, 1]), axis=1)
    return np.asarray(off_axis <= radius * np.linalg.norm(rays[:, 1], axis=1))


def _covered(rays: F64, moved: tuple[F64, F64], corners: F64) -> tuple[Bool, Bool]:
    """Return which rays [n] hit which triangles [m], and where the corners are counter-clockwise on the screen.

    A ray goes through a triangle if it passes all three edges on the same side. If it meets an edge exactly, it counts
    as a hair further right, and on a horizontal edge as a hair further down: this is the top-left rule. Sides change
    evenly over the screen, so the rays a whole pixel further, `moved`, tell what a hair would.
    """
    sides = []
    for start, end in (0, 1), (1, 2), (2, 0):
        side = _side(rays, corners[:, start], corners[:, end])
        for other in moved:
            if not side.all():
                side = np.where(side == 0, _side(other, corners[:, start], corners[:, end]), side)
        sides.append(side)
    counter_clockwise = (sides[0] < 0) & (sides[1] < 0) & (sides[2] < 0)
    return counter_clockwise | ((sides[0] > 0) & (sides[1] > 0) & (sides[2] > 0)), counter_clockwise


def _side(rays: F64, start: F64, end: F64) -> F64:
    """Return the side on which each ray [n] passes each edge [m]: direction · (start - origin) x (end - origin).

    Written as a sum of products because swapping start and end must turn the sign and change nothing else: then a ray
    through the common edge of two triangles goes through exactly one of them.
    """
    lines = np.concatenate([rays[:, 1], np.cross(rays[:, 0], rays[:, 1])], axis=1)
    edges = np.concatenate([np.cross(start, end), end - start], axis=1)
    side = np.zeros((len(rays), len(start)))
    for along, around in zip(lines.T, edges.T, strict=True):
        side += along[:, None] * around
    return side


@edge_on
def _depths(rays: F64, corners: F64) -> F64:
    """Return the depth at which each ray [n] hits the plane of each triangle [m]."""
    plane = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    return np.asarray((dot(corners[:, 0], plane) - rays[:, 0] @ plane.T) / (rays[:, 1] @ plane.T))


@edge_on
def _surface(scene: Scene, views: ViewTable, view: int, hits: Hits) -> Surface:
    """Return the surface at each pixel's centre, on the plane of its triangle."""
    table, instances, look = scene.assets.table, scene.instances, _look(scene, views, view)
    something = hits.row >= 0
    rows, triangles = hits.row[something], hits.triangle[something]
    a, b, c = np.moveaxis(_corners(scene, views, view, rows, triangles), 1, 0)
    plane = np.cross(b - a, c - a)
    origin, direction = np.moveaxis(_rays(views, view, CENTER)[something], 1, 0)
    depth = dot(a - origin, plane) / dot(direction, plane)
    point = origin + depth[:, None] * direction
    weights = np.array([1, 0, 0]) + _weights(point - a, a, b, c, plane)
    vertices = table.triangles[triangles]
    uvs = table.uvs[vertices] * instances.uv_scale[rows][:, None].astype(np.float64) * table.texture_size
    uv_steps = []
    for dx, dy in ((1, 0), (0, 1)):
        # With every pixel further, the ray turns or shifts by the same; the hit moves so that it stays on the plane.
        further = _rays(views, view, (CENTER[0] + dx, CENTER[1] + dy))[something]
        aside = further[:, 0] - origin + depth[:, None] * (further[:, 1] - direction)
        step = aside - direction * (dot(aside, plane) / dot(direction, plane))[:, None]
        uv_steps.append(_blend(_weights(step, a, b, c, plane), uvs))
    texel = _texels(table, instances.texture[rows], _blend(weights, uvs), uv_steps[0], uv_steps[1])

    x, y, z = np.moveaxis(instances.pose[rows, :, :3].astype(np.float64), 2, 0)
    cofactor = np.stack([np.cross(y, z), np.cross(z, x), np.cross(x, y)], axis=2)
    mirror = np.where(dot(x, np.cross(y, z)) < 0, -1.0, 1.0)[:, None]
    normal = mirror * np.einsum("nij,nj->ni", cofactor, _blend(weights, table.normals[vertices]))
    normal = unit(np.where(mirror * dot(direction, plane)[:, None] > 0, -normal, normal))
    color = instances.color[rows].astype(np.float64)
    eye, backward = views.camera[view, :, 3].astype(np.float64), views.camera[view, :, 2].astype(np.float64)
    is_opaque = instances.alpha[rows] >= OPAQUE_ALPHA  # shadows fall on nothing else
    lit: dict[int, F64] = {}
    at_edge = np.zeros(len(rows), np.bool_)
    if is_opaque.any():
        lit, at_edge = _lit(scene, views, view, rows, point + eye, plane)
        at_edge &= is_opaque
    if not look.lamp_count:
        light = daylight(look, normal, np.where(is_opaque, lit.get(SUN, 1.0), 1.0))
        return Surface(point, depth, weights, normal, np.minimum(1, color * texel * light), at_edge)
    to_viewer = np.broadcast_to(backward, point.shape) if views.orthographic[view] else unit(-point)
    shine = instances.shine[rows].astype(np.float64)
    under = look, eye, -backward, point, to_viewer, normal, color, shine
    light = np.where(is_opaque[:, None], lamplight(*under, lit), lamplight(*under, {}))
    return Surface(point, depth, weights, normal, np.minimum(1, light * texel), at_edge)


def _lit(scene: Scene, views: ViewTable, view: int, rows: Int, point: F64, plane: F64) -> tuple[dict[int, F64], Bool]:
    """Return the part of each light that casts shadows, by number, that reaches surfaces, and where shadows end."""
    lit: dict[int, F64] = {}
    at_edge = np.zeros(len(rows), np.bool_)
    for light in casting_lights(scene, int(views.lane[view])) if views.shadows[view] else ():
        light_map = draw_map(scene, views, view, light)
        lit[light.lamp] = np.ones(len(rows))
        if light_map is not None:
            lit[light.lamp], here = lit_share(scene, light_map, rows, point, plane)
            at_edge |= here
    return lit, at_edge


@edge_on
def _flow(
    scene: Scene, views: ViewTable, view: int, hits: Hits, surface: Surface, previous: PreviousTable | None
) -> F64:
    """Return how far each pixel's surface, or the sky, has moved on the screen since the step before [pixels, 2]."""
    height, width = _shape(views, view)
    flow = np.zeros((height * width, 2))
    if previous is None or previous.first_row[view] < 0:
        return flow
    instances, table, something = scene.instances, scene.assets.table, hits.row >= 0
    rows, triangles = hits.row[something], hits.triangle[something]
    before = previous.first_row[view] + rows - scene.lanes.first_row[views.lane[view]]
    is_same = (previous.mesh[before] == instances.mesh[rows]) & np.isfinite(previous.pose[before]).all(axis=(1, 2))
    pose = np.where(is_same[:, None, None], previous.pose[before], instances.pose[rows]).astype(np.float64)
    local = _blend(surface.weights, table.positions[table.triangles[triangles]].astype(np.float64))
    camera = previous.camera[view].astype(np.float64)
    # From the camera of that time to the point; to what is at infinity, the direction that it has now.
    seen_from = _rays(views, view, CENTER)[:, 1] @ camera[:, :3]
    seen_from[something] = (np.einsum("nij,nj->ni", pose[:, :, :3], local) + pose[:, :, 3] - camera[:, 3]) @ camera[
        :, :3
    ]
    depth = -seen_from[:, 2]
    half_height, is_flat = float(previous.half_height[view]), bool(views.orthographic[view])
    w = np.ones(depth.shape) if is_flat else depth
    x = (seen_from[:, 0] / (half_height * width / height * w) + 1) * width / 2
    y = (1 - seen_from[:, 1] / (half_height * w)) * height / 2
    now_y, now_x = np.mgrid[:height, :width].reshape(2, -1) + 0.5
    was_seen = np.where(something, is_flat | (depth >= views.near[view]), (not is_flat) & (depth > 0))
    flow[was_seen] = np.stack([now_x - x, now_y - y], axis=1)[was_seen]
    return flow


def _weights(offset: F64, a: F64, b: F64, c: F64, plane: F64) -> F64:
    """Return the change of barycentric weights along an offset in the triangle's plane."""
    to_b = dot(np.cross(offset, c - a), plane) / dot(plane, plane)
    to_c = dot(np.cross(b - a, offset), plane) / dot(plane, plane)
    return np.stack([-to_b - to_c, to_b, to_c], axis=1)


@edge_on
def _texels(table: AssetTable, texture: NDArray[np.int32], uv: F64, uv_x: F64, uv_y: F64) -> F64:
    """Return texture colours [n, 3] at uv, in texels of level 0: one level, bilinear; white without a texture."""
    level = np.floor(0.5 * np.log2(np.maximum(dot(uv_x, uv_x), dot(uv_y, uv_y))) + 0.5)
    level = np.clip(np.nan_to_num(level), 0, len(table.mip_first_texel) - 1).astype(np.int64)
    at = np.nan_to_num(uv) / 2.0 ** level[:, None]
    color = bilinear(table, np.maximum(texture, 0), level, at)
    return np.where((texture == NO_TEXTURE)[:, None], 1.0, color)


def _colors(scene: Scene, views: ViewTable, view: int, hits: Hits) -> F64:
    """Return the finished colours [pixels, 3] in 0..1, of sky and of surfaces in fog."""
    look, colors = _look(scene, views, view), _sky(scene, views, view)
    surface = _surface(scene, views, view, hits)
    begin, end = look.fog_range
    fog = np.clip((surface.depth - begin) / (end - begin), 0, 1) if end > begin else np.zeros(surface.depth.shape)
    colors[hits.row >= 0] = mix(surface.color, look.fog_color, fog[:, None])
    return colors


def _sky(scene: Scene, views: ViewTable, view: int) -> F64:
    """Return the colours of the sky [pixels, 3]."""
    look, (height, width), rays = _look(scene, views, view), _shape(views, view), _rays(views, view, CENTER)[:, 1]
    if look.sky_textures != NO_TEXTURE:
        pixel = 2 * float(views.half_height[view]) / height
        is_one, fills_screen = look.sky_textures < NO_TEXTURE, look.sky_textures <= SCREEN_SKY
        if fills_screen or (views.orthographic[view] and is_one):  # the frame is one side
            v, u = np.mgrid[0.5:height, 0.5:width].reshape(2, -1) / np.array([[height], [width]])
            rays, pixel = np.stack([np.ones_like(u), 2 * u - 1, 1 - 2 * v], axis=1), 2 / height
        first = int(look.sky_textures)
        if first >= TINTED_SKY:
            return sky_box(scene.assets.table, first - TINTED_SKY, rays, pixel) * look.sky_zenith
        return sky_box(scene.assets.table, first, rays, pixel)
    if views.orthographic[view]:
        up = np.repeat(1 - (np.arange(height) + 0.5) / height, width)
    else:
        up = np.maximum(0, unit(rays)[:, 2])
    return mix(look.sky_horizon, look.sky_zenith, (up * (2 - up))[:, None])


def _shape(views: ViewTable, view: int) -> tuple[int, int]:
    return int(views.height[view]), int(views.width[view])


def _look(scene: Scene, views: ViewTable, view: int) -> LaneTable:
    return LaneTable(*(column[views.lane[view]].astype(np.float64) for column in scene.lanes))


def _blend(weights: F64, corner_values: NDArray[Any]) -> F64:
    return np.asarray(np.einsum("nk,nki->ni", weights, corner_values))
