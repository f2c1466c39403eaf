"""SceneRenderer: frames of states of a scene are those of lanes that are filled one by one."""

import _thread
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.other_arrays import OnCard, OtherArray
from tests.support.scene_builder import assets
from worldloom.kernels.outputs import OUTPUTS, STATE_OUTPUT_NAMES, output_bits
from worldloom.kernels.tables import HEADLIGHT, LAMP_AMBIENT, LAMP_ATTENUATION, LAMP_KIND, NO_MESH, NO_TEXTURE
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.renderer import Renderer
from worldloom.render.scene import LANE_BYTES, ROW_BYTES, Scene
from worldloom.render.scene_renderer import SceneRenderer
from worldloom.render.views import look_at, make_views

WIDTH, HEIGHT = 12, 9
CAMERA = look_at((0, -5, 1), (0, 0, 0))
ROW_ARRAYS = ("poses", "mesh", "color", "alpha", "texture", "label")
LANE_ARRAYS = ("light_direction", "light_color", "ambient", "ambient_ground", "sky_horizon", "sky_zenith")
VIEW_ARRAYS = ("camera", "fov_degrees", "orthographic_height", "near", "far")


def random_template(seed: int, rows: int, is_lamplit: bool = False) -> tuple[Scene, int]:
    """A scene with a random lane, which is neither its first nor its last."""
    rng = np.random.default_rng(seed)
    scene = Scene(assets())
    scene.add(2, 3)
    (lane,) = scene.add(1, rows, static_rows=int(rng.integers(0, rows + 1)))
    scene.add(1, 2)
    own, instances, lanes = scene.rows(lane)[0], scene.instances, scene.lanes
    values = random_arrays(rng, 1, rows)
    for name in ROW_ARRAYS:
        getattr(instances, "pose" if name == "poses" else name)[own] = values[name][0]
    instances.uv_scale[own], instances.shine[own] = rng.uniform(0.5, 2, (rows, 2)), rng.uniform(0, 0.5, (rows, 3))
    for name in LANE_ARRAYS:
        getattr(lanes, name)[lane] = values[name][0]
    lanes.fog_range[lane] = (4.0, rng.uniform(3.0, 20.0))
    if is_lamplit:
        lanes.lamp_count[lane], lanes.lamps[lane, 0, LAMP_KIND] = 1, HEADLIGHT
        lanes.lamps[lane, 0, LAMP_AMBIENT : LAMP_ATTENUATION + 3] = rng.uniform(0.1, 0.5, 12)
        lanes.sky_textures[lane] = assets().texture("evening 0")
    return scene, int(lane)


def random_arrays(rng: np.random.Generator, count: int, rows: int) -> dict[str, np.ndarray]:
    """Arrays of so many states by name: all that there are."""
    poses = np.empty((count, rows, 3, 4), np.float32)
    poses[..., :3] = np.linalg.qr(rng.normal(size=(count, rows, 3, 3)))[0] * rng.uniform(0.3, 1.5, (count, rows, 1, 3))
    poses[..., 3] = rng.uniform(-1.5, 1.5, (count, rows, 3))
    return {
        "poses": poses,
        "mesh": rng.integers(NO_MESH, 6, (count, rows)),
        "color": rng.uniform(0.2, 1, (count, rows, 3)),
        "alpha": rng.choice([1.0, 1.0, 0.5], (count, rows)),
        "texture": rng.integers(NO_TEXTURE, 4, (count, rows)),
        "label": rng.integers(0, 256, (count, rows)),
        "light_direction": rng.normal(size=(count, 3)),
        **{name: rng.uniform(0, 1, (count, 3)) for name in LANE_ARRAYS[1:]},
        "camera": look_at(rng.uniform((-1, -6, 0), (1, -4, 2), (count, 3)), rng.uniform(-0.3, 0.3, (count, 3))),
        "fov_degrees": rng.uniform(30, 90, count),
        "orthographic_height": np.where(rng.random(count) < 0.5, 4.0, np.nan),
        "near": rng.uniform(0.05, 2.0, count),
        "far": rng.uniform(5.0, 9.0, count),
    }


def draw_one_by_one(
    renderer: Renderer,
    template: tuple[Scene, int],
    arrays: dict[str, np.ndarray],
    for_all: set[str],
    moving: list[int],
    outputs: list[str],
    samples: int,
) -> dict[str, np.ndarray]:
    """The long form: a lane for each state, filled in a loop, and one draw."""
    count = next(len(array) for name, array in arrays.items() if name not in for_all)
    original, lane = template
    scene = Scene(original.assets)
    rows = original.rows(lane)[0]
    lanes = scene.add(count, rows.size)
    for state, own in enumerate(scene.rows(lanes) if count else []):
        for name in scene.instances._fields:
            getattr(scene.instances, name)[own] = getattr(original.instances, name)[rows]
        for name in scene.lanes._fields[3:]:
            getattr(scene.lanes, name)[state] = getattr(original.lanes, name)[lane]
        for name in ROW_ARRAYS:
            if name in arrays:
                value = arrays[name] if name in for_all else arrays[name][state]
                getattr(scene.instances, "pose" if name == "poses" else name)[own[moving]] = value
        for name in LANE_ARRAYS:
            if name in arrays:
                getattr(scene.lanes, name)[state] = arrays[name] if name in for_all else arrays[name][state]
    views = make_views(
        lanes,
        **{name: arrays[name] for name in VIEW_ARRAYS if name in arrays},
        width=WIDTH,
        height=HEIGHT,
        outputs=output_bits(outputs),
        samples=samples,
    )
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    if count:
        renderer.draw(scene, views, arena, offsets)
    frames, start = {}, 0
    for output in OUTPUTS:
        if output.name in outputs:
            end = start + count * HEIGHT * WIDTH * output.pixel_bytes
            shape = (count, *output.frame_shape(HEIGHT, WIDTH))
            frames[output.name] = arena[start:end].view(output.dtype).reshape(shape)
            start = end
    return frames


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, frames in expected.items():
        assert found[name].dtype == frames.dtype
        np.testing.assert_array_equal(found[name], frames)


@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**32), rows=st.integers(1, 4), is_lamplit=st.booleans())
def test_frames_are_those_of_lanes_filled_one_by_one(
    cpu: Renderer, data: st.DataObject, seed: int, rows: int, is_lamplit: bool
) -> None:
    rng = np.random.default_rng(seed)
    template = random_template(seed, rows, is_lamplit)
    moving = data.draw(
        st.none()
        | st.permutations(range(rows)).flatmap(lambda all_: st.integers(0, rows).map(lambda n: list(all_[:n])))
    )
    samples, batch_size = data.draw(st.sampled_from([1, 4])), data.draw(st.sampled_from([1, 3, 8, None]))
    outputs = data.draw(st.lists(st.sampled_from(STATE_OUTPUT_NAMES), min_size=1, unique=True))
    known = [*ROW_ARRAYS, *VIEW_ARRAYS, *(() if is_lamplit else LANE_ARRAYS)]
    with SceneRenderer(
        *template, width=WIDTH, height=HEIGHT, outputs=outputs, samples=samples, moving=moving, batch_size=batch_size,
        renderer="cpu",
    ) as draw:  # fmt: skip
        for _ in range(2):  # nothing of the first call is left in the second
            count = data.draw(st.sampled_from([0, 1, 2, 8, 9, 17]))
            names = data.draw(st.sets(st.sampled_from(known))) | {"camera"}
            for_all = data.draw(st.sets(st.sampled_from(sorted(names)))) - {"camera"}
            arrays = random_arrays(rng, max(1, count), rows if moving is None else len(moving))
            arrays = {name: arrays[name][0] if name in for_all else arrays[name][:count] for name in sorted(names)}
            selected = list(range(rows)) if moving is None else moving
            expected = draw_one_by_one(cpu, template, arrays, for_all, selected, outputs, samples)
            assert_same(draw(arrays), expected)


@pytest.mark.gl
@pytest.mark.parametrize("samples", [1, 4])
def test_with_opengl_too(gl: Renderer, samples: int) -> None:
    template, outputs = random_template(1, 4), list(STATE_OUTPUT_NAMES)
    with SceneRenderer(
        *template, width=WIDTH, height=HEIGHT, outputs=outputs, samples=samples, batch_size=7, renderer="gl"
    ) as draw:
        assert draw.renderer == "gl"
        for seed, count in ((2, 20), (3, 1), (4, 0)):
            arrays = random_arrays(np.random.default_rng(seed), count, 4)
            assert_same(draw(arrays), draw_one_by_one(gl, template, arrays, set(), list(range(4)), outputs, samples))
            assert_same(
                draw({"camera": arrays["camera"]}),
                draw_one_by_one(gl, template, {"camera": arrays["camera"]}, set(), [], outputs, samples),
            )


@pytest.fixture(scope="module")
def draw() -> Iterator[SceneRenderer]:
    """A renderer of four rows, of which two move."""
    with SceneRenderer(*random_template(5, 4), width=WIDTH, height=HEIGHT, moving=[3, 1], renderer="cpu") as made:
        yield made


def states(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Poses and cameras for the renderer above."""
    arrays = random_arrays(np.random.default_rng(seed), count, 2)
    return {name: arrays[name] for name in ("poses", "camera")}


def test_batches_are_bounded_and_their_borders_do_not_show(draw: SceneRenderer) -> None:
    assert draw.batch_size == 1024
    given_states = states(2050)
    frames = draw(given_states)["rgb"]
    assert len({frame.tobytes() for frame in frames}) > 2000
    for first, end in ((0, 3), (1020, 1030), (2040, 2050)):
        part = {name: array[first:end] for name, array in given_states.items()}
        np.testing.assert_array_equal(draw(part)["rgb"], frames[first:end])
    with SceneRenderer(
        *random_template(5, 4), width=500, height=300, outputs=STATE_OUTPUT_NAMES, renderer="cpu"
    ) as large:
        assert large.batch_size > 1
        assert large.batch_size * 500 * 300 * 21 <= 16 << 20
    with SceneRenderer(*random_template(5, 2000), width=1, height=1, renderer="cpu") as many_rows:
        assert many_rows.batch_size > 1
        assert many_rows.batch_size * (2000 * ROW_BYTES + LANE_BYTES) <= 16 << 20


def test_the_template_is_a_copy(cpu: Renderer) -> None:
    scene, lane = template = random_template(6, 3)
    arrays = random_arrays(np.random.default_rng(0), 5, 3)
    expected = draw_one_by_one(cpu, template, arrays, set(), [0, 1, 2], ["rgb"], 1)
    before = [column.copy() for column in (*scene.instances, *scene.lanes)]
    with SceneRenderer(scene, lane, width=WIDTH, height=HEIGHT, renderer="cpu") as draw:
        assert_same(draw(arrays), expected)
        for column, old in zip((*scene.instances, *scene.lanes), before, strict=True):
            np.testing.assert_array_equal(column, old)
        scene.instances.uv_scale[:], scene.lanes.fog_range[:] = 7.0, (0.0, 1.0)
        scene.free([lane])
        assert_same(draw(arrays), expected)


def test_a_row_whose_pose_is_not_finite_is_not_drawn(draw: SceneRenderer) -> None:
    given_states: dict[str, Any] = states(4)
    poses = given_states["poses"].astype(np.float64)
    poses[0, 0, 1, 2], poses[1, 0, 0, 3], poses[2, 0, 2, 3] = np.nan, -np.inf, 1e200  # the last beyond float32
    mesh = np.tile(np.array([assets().mesh("box"), assets().mesh("sphere")]), (4, 1))
    found = draw(poses, camera=given_states["camera"], mesh=mesh)
    mesh[:3, 0] = NO_MESH
    assert_same(found, draw(**given_states, mesh=mesh))


def test_results_are_the_callers_and_memory_of_dropped_ones_is_used_again(draw: SceneRenderer) -> None:
    first = draw(states(64))["rgb"]
    kept = first.copy()
    second = draw(states(64, seed=1))["rgb"]
    np.testing.assert_array_equal(first, kept)
    where = second.ctypes.data
    del second
    assert where in {draw(states(64))["rgb"].ctypes.data for _ in range(3)}


def test_frames_are_drawn_into_arrays_of_the_caller() -> None:
    template, outputs = random_template(5, 2), ["rgb", "depth"]
    with SceneRenderer(*template, width=WIDTH, height=HEIGHT, outputs=outputs, batch_size=8, renderer="cpu") as draw:
        expected = draw(states(20))
        memory = np.full(20 * HEIGHT * WIDTH * 7 + 9, 77, np.uint8)
        split = 4 + 20 * HEIGHT * WIDTH * 4
        out: dict[str, Any] = {
            "depth": memory[4:split].view(np.float32).reshape(20, HEIGHT, WIDTH),
            "rgb": memory[split:-5].reshape(20, HEIGHT, WIDTH, 3),
        }
        found = draw(states(20), out=out)
        assert found["rgb"] is out["rgb"]
        assert found["depth"] is out["depth"]
        assert_same(found, expected)
        assert (memory[:4] == 77).all()
        assert (memory[-5:] == 77).all()
        rgb, depth = out["rgb"], out["depth"]
        read_only = rgb.copy()
        read_only.flags.writeable = False
        before = memory.copy()
        wrong: Any
        for wrong, message in (
            ({"rgb": rgb}, "out has rgb: expected rgb, depth"),
            ({"rgb": rgb[:19], "depth": depth}, r"out\['rgb'\] is uint8 \[19, 9, 12, 3\]: expected"),
            ({"rgb": rgb.astype(np.float32), "depth": depth}, "is float32"),
            ({"rgb": rgb.tolist(), "depth": depth}, "is list"),
            ({"rgb": rgb[:, ::-1], "depth": depth}, "not C-contiguous"),
            ({"rgb": read_only, "depth": depth}, "not writable"),
            ({"rgb": memory[split - 9 : -14].reshape(rgb.shape), "depth": depth}, "overlap"),
        ):
            with pytest.raises(ValueError, match=message):
                draw(states(20, seed=1), out=wrong)
        np.testing.assert_array_equal(memory, before)


def test_arrays_of_other_libraries_and_dtypes(draw: SceneRenderer) -> None:
    given_states = states(9)
    expected = draw(given_states)
    others = {name: OtherArray(array) for name, array in given_states.items()}
    assert_same(draw(others), expected)
    assert_same(draw(others.pop("poses"), camera=others["camera"]), expected)
    assert_same(draw({name: array.tolist() for name, array in given_states.items()}), expected)
    assert_same(draw({name: array.astype(np.float64) for name, array in given_states.items()}), expected)
    assert_same(
        draw(given_states["poses"][:, ::-1][:, ::-1], camera=np.asfortranarray(given_states["camera"])), expected
    )
    with pytest.raises(ValueError, match=r"memory of the CPU.*\.cpu\(\)"):
        draw(OnCard(given_states["poses"]))


def spoilt(array: np.ndarray, *index: int, value: Any) -> np.ndarray:
    changed = array.copy()
    changed[index] = value
    return changed


POSES = np.tile(np.eye(3, 4, dtype=np.float32), (5, 2, 1, 1))
CAMERAS = np.tile(CAMERA, (5, 1, 1))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"poses": POSES[:, :1]}, r"poses has shape \[5, 1, 3, 4\]: expected \[N, 2, 3, 4\], or \[2, 3, 4\] for all"),
        ({"poses": POSES[0]}, r"no array has a row for each state.*poses\[None\]"),
        ({"poses": 1.0}, r"poses has shape \[\]"),
        ({}, "no array has a row for each state"),
        ({"poses": POSES.astype(str)}, "poses has dtype <U32: expected numbers"),
        ({"poses": POSES > 0}, "poses has dtype bool"),
        ({"poses": [[1], [1, 2]]}, "poses is no array"),
        ({"poses": POSES, "camera": CAMERAS[:4]}, "camera has 4 states: expected 5, as poses has"),
        ({"poses": POSES, "camera": spoilt(CAMERAS, 3, 1, 3, value=np.nan)}, "camera of state 3 is .*nan"),
        ({"poses": POSES, "camera": spoilt(CAMERAS, 2, 0, 0, value=2)}, "camera of state 2 is .*orthonormal"),
        ({"poses": POSES, "camera": spoilt(CAMERA.astype(np.float64), 0, 0, value=1e60)}, "camera is .*orthonormal"),
        ({"poses": POSES, "fov_degrees": 180}, "fov_degrees is 180.0: expected an angle above 0, below 180"),
        ({"poses": POSES, "fov_degrees": [9, 9, 0, 9, 9]}, "fov_degrees of state 2 is 0.0"),
        ({"poses": POSES, "fov_degrees": [[60]]}, r"fov_degrees has shape \[1, 1\]: expected \[N\], or \[\]"),
        ({"poses": POSES, "orthographic_height": [1, 1, 1, -1, 1]}, "orthographic_height of state 3 is -1.0"),
        ({"poses": POSES, "orthographic_height": np.inf}, "orthographic_height is inf: expected metres above 0"),
        ({"poses": POSES, "near": 0}, "near is 0.0: expected a finite number, above 0 in perspective"),
        ({"poses": POSES, "near": 0, "orthographic_height": [1, np.nan, 1, 1, 1]}, "near of state 1 is 0.0"),
        ({"poses": POSES, "near": 2, "far": [3, 3, 3, 3, 2]}, "far of state 4 is 2.0: expected .* above near"),
        ({"poses": POSES, "near": 200}, "far is 100.0"),
        ({"poses": POSES, "far": 1e60}, "far is inf"),
        ({"poses": POSES, "mesh": np.full((5, 2), 999)}, "mesh of state 0 is 999 at row 0: expected -1 for none, or 0"),
        ({"poses": POSES, "mesh": [0, -2]}, "mesh is -2 at row 1"),
        ({"poses": POSES, "mesh": [0.0, 1.0]}, "mesh has dtype float64: expected integers"),
        ({"poses": POSES, "texture": np.array([0, 2**63], np.uint64)}, "texture is 9223372036854775808 at row 1"),
        ({"poses": POSES, "label": [0, 256]}, "label is 256 at row 1: expected 0 to 255"),
        ({"poses": POSES, "color": np.ones((5, 4, 3))}, r"color has shape \[5, 4, 3\]: expected \[N, 2, 3\]"),
        ({"poses": POSES, "ambient": 0.5}, r"ambient has shape \[\]: expected \[N, 3\], or \[3\]"),
    ],
)
def test_bad_states_are_refused_before_anything_is_drawn(
    draw: SceneRenderer, arrays: dict[str, Any], message: str
) -> None:
    out = np.full((5, HEIGHT, WIDTH, 3), 77, np.uint8)
    with pytest.raises(ValueError, match=message):
        draw(arrays, out={"rgb": out})
    assert (out == 77).all()


def test_unknown_names_and_names_without_effect_are_refused(draw: SceneRenderer) -> None:
    with pytest.raises(TypeError, match=r"unknown array 'colour' \(did you mean 'color'\?\)"):
        draw(POSES, colour=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="camera is in the states and a keyword too"):
        draw({"poses": POSES, "camera": CAMERA}, camera=CAMERA)
    with SceneRenderer(*random_template(5, 2, is_lamplit=True), renderer="cpu") as lamplit:
        with pytest.raises(ValueError, match="ambient has no effect, as the template is lit by lamps"):
            lamplit(POSES, ambient=(1, 1, 1))
        with pytest.raises(ValueError, match="sky_zenith has no effect, as the template has a sky box"):
            lamplit(POSES, sky_zenith=(1, 1, 1))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"lane": 4}, ValueError, "lane is 4: expected the number of one lane of the scene, which has 4"),
        ({"lane": [0, 1]}, ValueError, "lane is"),
        ({"width": 0}, ValueError, "width is 0: expected 1 or more"),
        ({"height": 1.5}, TypeError, "height is 1.5: expected an integer"),
        ({"width": 2**40}, ValueError, "1099511627776 × 64 pixels: expected at most"),
        ({"samples": 2}, ValueError, "samples is 2: expected 1 or 4"),
        ({"outputs": ["rgb", "normal"]}, ValueError, "unknown output 'normal'"),
        ({"outputs": ["rgb", "flow"]}, ValueError, "output 'flow' is of a step, and states have none before them"),
        ({"outputs": []}, ValueError, r"outputs is \[\]: expected some of rgb"),
        ({"outputs": "rgb"}, ValueError, "outputs is 'rgb': expected .* as a list"),
        ({"moving": [3]}, ValueError, r"moving is \[3\]: expected rows of the template, which has 3, each once"),
        ({"moving": [1, 1]}, ValueError, "each once"),
        ({"moving": 1}, ValueError, "moving is 1: expected a list"),
        ({"moving": [0.0]}, ValueError, "expected a list"),
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"renderer": "vulkan"}, ValueError, "unknown renderer 'vulkan'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    scene, lane = random_template(0, 3)
    with pytest.raises(error, match=message):
        SceneRenderer(scene, **{"lane": lane, "renderer": "cpu", **arguments})


def test_a_template_that_cannot_be_drawn_is_refused() -> None:
    scene, lane = random_template(0, 3)
    scene.instances.mesh[scene.rows(lane)[0, 2]] = 4000
    with pytest.raises(ValueError, match="instance row 2: mesh is 4000"):
        SceneRenderer(scene, lane, renderer="cpu")


@settings(max_examples=20)
@given(count=st.integers(0, 40), part=st.integers(1, 41))
def test_a_stream_has_the_frames_of_one_call(draw: SceneRenderer, count: int, part: int) -> None:
    given_states = states(count)
    whole = draw(given_states)["rgb"]
    empty = np.empty((0, HEIGHT, WIDTH, 3), np.uint8)
    sliced = ({name: array[k : k + part] for name, array in given_states.items()} for k in range(0, count, part))
    for stream in (
        draw.stream(given_states, batch_size=part),
        draw.stream(given_states["poses"], camera=given_states["camera"], batch_size=part),
        draw.stream(OtherArray(given_states["poses"]), camera=given_states["camera"]),
        draw.stream(sliced),
    ):
        np.testing.assert_array_equal(np.concatenate([empty, *(frames["rgb"].copy() for frames in stream)]), whole)


def test_a_stream_is_lazy_counts_its_states_and_can_be_left(draw: SceneRenderer) -> None:
    asked = []

    def parts() -> Iterator[np.ndarray]:
        for number in range(6):
            asked.append(number)
            yield np.full((4, 1, 3, 4), np.nan, np.float32) if number == 4 else POSES[:4]

    stream = draw.stream(parts(), camera=CAMERA)
    assert not asked
    next(stream)
    assert asked == [0, 1]
    stream.close()  # type: ignore[attr-defined]
    found = draw.stream(parts(), camera=CAMERA)
    for _ in range(4):
        next(found)
    with pytest.raises(ValueError, match=r"poses has shape \[4, 1, 3, 4\]"):
        next(found)
    with pytest.raises(ValueError, match="camera of state 7"):
        list(draw.stream([{"poses": POSES}, {"poses": POSES, "camera": spoilt(CAMERAS, 2, 0, 0, value=2)}]))
    with pytest.raises(TypeError, match="states are int: expected an array"):
        draw.stream(5)


@pytest.mark.parametrize(("name", "shape"), [("color", (5, 2, 3)), ("light_color", (3,)), ("sky_zenith", (5, 3))])
def test_colours_that_are_not_finite_are_refused(draw: SceneRenderer, name: str, shape: tuple[int, ...]) -> None:
    values = np.full(shape, 0.5)
    values[-1] = np.inf
    place = "of state 4 is inf at \\[0" if len(shape) > 1 else "is inf at \\[2"
    with pytest.raises(ValueError, match=f"{name} {place}"):
        draw({"poses": POSES[:5], "camera": CAMERA, name: values})


def test_any_thread_may_draw(draw: SceneRenderer) -> None:
    expected = [draw(states(30, seed))["rgb"].copy() for seed in range(4)]
    wrong = []

    def work(seed: int) -> None:
        for _ in range(20):
            if not np.array_equal(draw(states(30, seed))["rgb"], expected[seed]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_after_an_interrupt_nothing_is_drawn_any_more(draw: SceneRenderer) -> None:
    """Neither is anything left undone: the next call draws."""
    many = {name: np.tile(array, (200, *[1] * (array.ndim - 1))) for name, array in states(500).items()}
    out = {"rgb": np.zeros((100_000, HEIGHT, WIDTH, 3), np.uint8)}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.1, _thread.interrupt_main)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            draw(many, out=out)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    out["rgb"][:] = 0
    time.sleep(0.05)
    assert not out["rgb"].any()
    assert draw(states(3))["rgb"].any()


def test_closing_and_dropping_end_the_thread() -> None:
    def count_threads() -> int:
        return sum(thread.name.startswith("worldloom-scene") for thread in threading.enumerate())

    before = count_threads()
    made = SceneRenderer(*random_template(5, 2), renderer="cpu")
    assert count_threads() == before + 1
    made.close()
    made.close()
    assert count_threads() == before
    with pytest.raises(RuntimeError, match="the renderer is closed"):
        made(POSES)
    dropped = SceneRenderer(*random_template(5, 2), renderer="cpu")
    stream = dropped.stream(np.tile(POSES, (50, 1, 1, 1)), camera=CAMERA, batch_size=50)
    next(stream)
    gone = weakref.ref(dropped)
    del dropped, stream
    gc.collect()
    assert gone() is None
    assert count_threads() == before


PROGRAM = """
import numpy as np
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.render.scene_renderer import SceneRenderer

scene = Scene(AssetLibrary())
draw = SceneRenderer(scene, scene.add(1, rows_per_lane=1), renderer="{renderer}")
print(draw(np.zeros((3, 1, 3, 4), np.float32))["rgb"].shape)
"""


@pytest.mark.slow
@pytest.mark.parametrize("renderer", ["cpu", pytest.param("gl", marks=pytest.mark.gl)])
def test_a_program_that_closes_nothing_ends_quietly(renderer: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(renderer=renderer)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert (ended.stdout, ended.stderr) == ("(3, 64, 64, 3)\n", "")
