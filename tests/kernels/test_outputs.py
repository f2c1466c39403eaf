"""Everything that lists outputs is derived from the table in kernels/outputs.py."""

import ast
from pathlib import Path

import numpy as np
import pytest

from worldloom.client import vector_world
from worldloom.kernels import outputs
from worldloom.kernels.outputs import DEFAULT_OUTPUT_NAMES, OUTPUT_NAMES, OUTPUTS, PIXEL_BYTES, output_bits, outputs_of
from worldloom.profiler import measure
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.views import frame_bytes, make_views
from worldloom.server.engine.timing import Counters
from worldloom.worlds.catch.family import Catch
from worldloom.worlds.describe import describe

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "kernels",
    "render",
    "worlds",
    "protos",
    "server",
    "profiler",
    "demo",
    "bench",
    "front",
    "scripts",
)
"""All but the client: a remote one must not import kernels, so that it needs no numba; it lists suffixes of frames."""


def test_columns_bits_and_sizes_follow_the_table() -> None:
    for column, output in enumerate(OUTPUTS):
        assert getattr(outputs, f"{output.name.upper()}_COLUMN") == column
        assert getattr(outputs, output.name.upper()) == 1 << column == output_bits([output.name])
        assert PIXEL_BYTES[column] == np.empty(output.frame_shape(1, 1), output.dtype).nbytes
    assert outputs.OUTPUT_COUNT == len(OUTPUTS) <= np.iinfo(np.uint8).bits, "bits of ViewTable.outputs"
    assert outputs_of(output_bits(OUTPUT_NAMES)) == list(OUTPUTS)
    with pytest.raises(
        ValueError, match="unknown output 'color': expected some of rgb, gray, depth, segmentation, normals, flow"
    ):
        output_bits(["color"])


@pytest.mark.parametrize("output", OUTPUTS, ids=OUTPUT_NAMES)
def test_frames_have_the_dtype_and_shape_of_the_table(output: outputs.Output) -> None:
    views = make_views([0], width=5, height=3, outputs=output_bits([output.name]))
    offsets, size_bytes = lay_out(views)
    frame = get_frame(allocate_arena(size_bytes), views, offsets, 0, output.name)
    assert (frame.dtype.name, frame.shape) == (output.dtype, output.frame_shape(3, 5))
    assert frame.nbytes == size_bytes == frame_bytes(views).sum()


def test_descriptions_counters_and_the_profiler_follow_the_table() -> None:
    described = describe(Catch)["cameras"][0]["outputs"]
    assert [(one["name"], one["dtype"], one["text"]) for one in described] == [
        (f"eye.{output.name}", output.dtype, output.description) for output in OUTPUTS
    ]
    assert tuple(Counters().frames) == OUTPUT_NAMES
    assert dict(zip(OUTPUT_NAMES, PIXEL_BYTES, strict=True)) == measure._PIXEL_BYTES


def test_clients_know_the_frames_of_the_table() -> None:
    assert tuple(f".{name}" for name in OUTPUT_NAMES) == vector_world._FRAME_SUFFIXES


def test_no_other_module_lists_the_outputs() -> None:
    listing = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "_pb2" not in path.name and set(DEFAULT_OUTPUT_NAMES) <= names_in(path)
    }
    assert listing == {"kernels/outputs.py"}


def names_in(path: Path) -> set[str]:
    """Return the last dotted part of each string literal of a source file: of `.rgb` and `eye.rgb`, `rgb`."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {
        node.value.rpartition(".")[2]
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
