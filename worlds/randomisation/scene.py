"""Kernels that copy lanes from one scene into another, with what was drawn for them applied.

`numbers` [n, m] are what was drawn for n lanes, all in 0..1; those of a variation are the columns from `first[v]` to
`first[v + 1]`, none if it is off. What does not vary is copied as the family has written it.
"""

import math
from typing import NamedTuple

import numpy as np

from worldloom.kernels.compiling import inlined, kernel_holding_gil
from worldloom.kernels.shading.sky import only_texture
from worldloom.kernels.tables import (
    F32,
    F64,
    HEADLIGHT,
    I32,
    I64,
    LAMP_AMBIENT,
    LAMP_DIFFUSE,
    LAMP_DIRECTION,
    LAMP_KIND,
    LAMP_SIZE,
    LAMP_SPECULAR,
    MAX_LAMPS,
    NO_MESH,
    NO_TEXTURE,
    ONE_SKY,
    TINTED_SKY,
    U8,
    U32,
    InstanceTable,
    LaneTable,
)
from worldloom.worlds.randomisation.settings import BACKGROUND, COLORS, LIGHTS, SIZES, SKY, TEXTURES

LIGHT_NUMBERS = 6
"""Numbers of a lamp: two for its direction, its brightness, three for its colour. The first are the sun's, too."""
AMBIENT_FIRST = LIGHT_NUMBERS * MAX_LAMPS
"""First of the four of ambient light: brightness, three for its colour."""
TURN = math.pi / 4
"""Angle by which light turns about each of two axes, for amount 1."""
STEPS_A_FRAME = 2
"""Steps in which a video goes on by a frame."""
_SIDES = (0, 1, 4, 5)
"""Faces of a sky box around the horizon; the third is overhead."""


class VariationPlan(NamedTuple):
    """Amounts and groups of the variations in a pool, for kernels."""

    amounts: F64  # [variations]
    first: I64  # [variations + 1]
    groups: I32  # [rows of a lane] number of the group of each row; empty: its label is its group
    group_count: int
    label_count: int
    has_size: U8  # [256] 1 for labels of things whose size varies
    static_rows: int  # the first rows of a lane, whose size does not vary
    textures: I32  # [textures] to choose from
    clips: I32  # [backgrounds, 2] first texture and number of frames
    plays: bool  # videos go on


@kernel_holding_gil
def write_varied_lanes(
    plan: VariationPlan,
    numbers: F64,
    steps: I64,
    from_lanes: I32,
    from_rows: InstanceTable,
    from_table: LaneTable,
    lanes: I32,
    rows: InstanceTable,
    table: LaneTable,
    texels: U32,
) -> None:
    """Copy lanes [n] of one scene into lanes of another, with what was drawn for them applied.

    `steps` [n] are the steps in their episodes, `texels` those of the asset table.
    """
    for k in range(lanes.size):
        source, lane = from_lanes[k], lanes[k]
        _write_light(plan, numbers[k], from_table, source, table, lane)
        _write_sky(plan, numbers[k], steps[k], from_table, source, table, lane, texels)
        # Unsigned: for signed indices numba would check at every access whether they are negative.
        first, to = np.uint64(from_table.first_row[source]), np.uint64(table.first_row[lane])
        for row in range(np.uint64(table.row_count[lane])):
            _write_row(plan, numbers[k], row, from_rows, first + row, rows, to + row)


@inlined
def _vary_color(color: float, amount: float, number: float) -> float:
    """Return a colour from `amount` less to `amount` more, within 0 to 1; one that is brighter than 1 may stay so."""
    low, high = max(0.0, color - amount), min(max(1.0, color), color + amount)
    return low + number * (high - low)


@inlined
def _write_row(
    plan: VariationPlan,
    numbers: F64,
    row: np.uint64,
    from_rows: InstanceTable,
    source: np.uint64,
    rows: InstanceTable,
    to: np.uint64,
) -> None:
    """Copy an instance row, the one of this index in its lane, with colour, texture and size varied."""
    mesh = from_rows.mesh[source]
    rows.mesh[to] = mesh
    if mesh == NO_MESH:
        return
    label = int(from_rows.label[source])
    group = int(plan.groups[row]) if plan.groups.size > 0 else min(label, plan.group_count - 1)
    texture, size = from_rows.texture[source], 1.0
    if plan.amounts[TEXTURES] > 0.0:
        at = plan.first[TEXTURES] + 2 * group
        if numbers[at] < plan.amounts[TEXTURES]:
            texture = plan.textures[np.int64(numbers[at + 1] * plan.textures.size)]
    if plan.amounts[SIZES] > 0.0 and np.int64(row) >= plan.static_rows and plan.has_size[label] != 0:
        kind = min(label, plan.label_count - 1)
        size = 2.0 ** (plan.amounts[SIZES] * (2.0 * numbers[plan.first[SIZES] + kind] - 1.0))
    for i in range(3):
        rows.shine[to, i] = from_rows.shine[source, i]
        rows.color[to, i] = from_rows.color[source, i]
        for j in range(4):
            rows.pose[to, i, j] = from_rows.pose[source, i, j]
    if plan.amounts[COLORS] > 0.0:
        at = plan.first[COLORS] + 3 * group
        for i in range(3):
            color = np.float64(from_rows.color[source, i])
            rows.color[to, i] = _vary_color(color, plan.amounts[COLORS], numbers[at + i])
    if size != 1.0:
        for i in range(3):
            for j in range(3):
                rows.pose[to, i, j] = from_rows.pose[source, i, j] * size
    rows.texture[to], rows.label[to] = texture, label
    rows.shadow[to], rows.alpha[to] = from_rows.shadow[source], from_rows.alpha[source]
    rows.uv_scale[to, 0], rows.uv_scale[to, 1] = from_rows.uv_scale[source, 0], from_rows.uv_scale[source, 1]


@inlined
def _write_light(
    plan: VariationPlan, numbers: F64, from_table: LaneTable, source: int, table: LaneTable, lane: int
) -> None:
    """Copy sun, ambient light and lamps of a lane, varied."""
    amount, first = plan.amounts[LIGHTS], plan.first[LIGHTS]
    table.lamp_count[lane] = from_table.lamp_count[source]
    for i in range(3):
        table.light_direction[lane, i] = from_table.light_direction[source, i]
        table.light_color[lane, i] = from_table.light_color[source, i]
        table.ambient[lane, i] = from_table.ambient[source, i]
        table.ambient_ground[lane, i] = from_table.ambient_ground[source, i]
    for lamp in range(from_table.lamp_count[source]):
        for i in range(LAMP_SIZE):
            table.lamps[lane, lamp, i] = from_table.lamps[source, lamp, i]
    if amount <= 0.0:
        return
    _turn(table.light_direction[lane], 0, amount, numbers, first)
    for i in range(3):
        table.light_color[lane, i] *= _brightness(amount, numbers, first + 2, i)
        factor = _brightness(amount, numbers, first + AMBIENT_FIRST, i)
        table.ambient[lane, i] *= factor
        table.ambient_ground[lane, i] *= factor
    for lamp in range(table.lamp_count[lane]):
        at = first + LIGHT_NUMBERS * lamp
        if table.lamps[lane, lamp, LAMP_KIND] != HEADLIGHT:
            _turn(table.lamps[lane, lamp], LAMP_DIRECTION, amount, numbers, at)
        for i in range(3):
            factor = _brightness(amount, numbers, at + 2, i)
            table.lamps[lane, lamp, LAMP_AMBIENT + i] *= factor
            table.lamps[lane, lamp, LAMP_DIFFUSE + i] *= factor
            table.lamps[lane, lamp, LAMP_SPECULAR + i] *= factor


@inlined
def _brightness(amount: float, numbers: F64, at: int, channel: int) -> float:
    """Return the factor of one colour of a light, from the numbers of its brightness and its colours."""
    bright = 1.0 + amount * (numbers[at] - 0.5)
    return bright * (1.0 + 0.5 * amount * (numbers[at + 1 + channel] - 0.5))


@inlined
def _turn(values: F32, at: int, amount: float, numbers: F64, first: int) -> None:
    """Turn the direction in `values[at : at + 3]` about two axes across it; its length stays."""
    x, y, z = np.float64(values[at]), np.float64(values[at + 1]), np.float64(values[at + 2])
    length = math.sqrt(x * x + y * y + z * z)
    if not length > 0.0:
        return
    x, y, z = x / length, y / length, z / length
    # Across it: the axis that it is farthest from, without its part along it, and the one across both.
    if abs(x) <= abs(y) and abs(x) <= abs(z):
        ax, ay, az = 1.0 - x * x, -x * y, -x * z
    elif abs(y) <= abs(z):
        ax, ay, az = -y * x, 1.0 - y * y, -y * z
    else:
        ax, ay, az = -z * x, -z * y, 1.0 - z * z
    across = math.sqrt(ax * ax + ay * ay + az * az)
    ax, ay, az = ax / across, ay / across, az / across
    bx, by, bz = y * az - z * ay, z * ax - x * az, x * ay - y * ax
    p = math.tan(amount * TURN * (2.0 * numbers[first] - 1.0))
    q = math.tan(amount * TURN * (2.0 * numbers[first + 1] - 1.0))
    x, y, z = x + p * ax + q * bx, y + p * ay + q * by, z + p * az + q * bz
    scale = length / math.sqrt(x * x + y * y + z * z)
    values[at], values[at + 1], values[at + 2] = x * scale, y * scale, z * scale


@inlined
def _write_sky(
    plan: VariationPlan,
    numbers: F64,
    step: int,
    from_table: LaneTable,
    source: int,
    table: LaneTable,
    lane: int,
    texels: U32,
) -> None:
    """Copy sky and fog of a lane, varied."""
    amount, first = plan.amounts[SKY], plan.first[SKY]
    box = from_table.sky_textures[source]
    for i in range(2):
        table.fog_range[lane, i] = from_table.fog_range[source, i]
    for i in range(3):
        horizon = np.float64(from_table.sky_horizon[source, i])
        zenith = np.float64(from_table.sky_zenith[source, i])
        fog = np.float64(from_table.fog_color[source, i])
        if amount > 0.0:
            if box != NO_TEXTURE:
                horizon, zenith = _box_color(texels, box, i)
            horizon = _vary_color(horizon, amount, numbers[first + i])
            fog = _vary_color(fog, amount, numbers[first + i])
            zenith = _vary_color(zenith, amount, numbers[first + 3 + i])
        table.sky_horizon[lane, i], table.sky_zenith[lane, i], table.fog_color[lane, i] = horizon, zenith, fog
    table.sky_textures[lane] = NO_TEXTURE if amount > 0.0 else box
    at = plan.first[BACKGROUND]
    if plan.amounts[BACKGROUND] > 0.0 and numbers[at] < plan.amounts[BACKGROUND]:
        clip = plan.clips[int(numbers[at + 1] * plan.clips.shape[0])]
        moves = step // STEPS_A_FRAME if plan.plays else 0
        frame = _find_frame(int(clip[1]), numbers[at + 2], numbers[at + 3] < 0.5, moves)
        table.sky_textures[lane] = ONE_SKY - (clip[0] + frame)


@inlined
def _find_frame(frames: int, start: float, is_forward: bool, moves: int) -> int:
    """Return the frame of a video that begins somewhere, and turns round at both ends, after so many moves."""
    turn = max(1, 2 * frames - 2)
    frame = (int(start * frames) + (moves if is_forward else -moves)) % turn
    return min(frame, turn - frame) if frames > 1 else 0


@inlined
def _box_color(texels: U32, box: int, channel: int) -> tuple[float, float]:
    """Return one of the mean colours of a sky box: of its sides, and of its top."""
    if box >= TINTED_SKY:
        box -= TINTED_SKY
    first, stride = (box, 1) if box >= 0 else (only_texture(box), 0)
    last, shift = texels.shape[1] - 1, np.uint32(8 * channel)
    sides = 0.0
    for k in range(len(_SIDES)):
        sides += np.float64(texels[first + stride * _SIDES[k], last] >> shift & np.uint32(255))
    top = np.float64(texels[first + stride * 2, last] >> shift & np.uint32(255))
    return sides / (255.0 * len(_SIDES)), top / 255.0
