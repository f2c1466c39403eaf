"""SharedFrames, with a file as the segment."""

import gc
from pathlib import Path

import numpy as np
import pytest

from worldloom.client.errors import BadReply
from worldloom.client.shared_memory import SharedFrames
from worldloom.client.specs import Spec

TOKEN = "5ca1ab1e"
HEAD_BYTES, ENTRY_BYTES, RING_SIZE = 64, 192, 4
SIZE_BYTES = HEAD_BYTES + RING_SIZE * ENTRY_BYTES
RGB = Spec(1, "eye.rgb", "uint8", (2, 4, 4, 3), None, None)
DEPTH = Spec(2, "eye.depth", "float32", (2, 4, 4), None, None)
SPECS = {"eye.rgb": RGB, "eye.depth": DEPTH}


class Renderer:
    """The server's side: draws into the next ring index."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(SIZE_BYTES))
        self.memory = np.memmap(path, np.uint8, "r+")
        self.memory[: len(TOKEN)] = np.frombuffer(TOKEN.encode(), np.uint8)
        self.ring_index = -1

    def draw(self, value: int) -> dict[str, np.ndarray]:
        self.ring_index = (self.ring_index + 1) % RING_SIZE
        start = HEAD_BYTES + self.ring_index * ENTRY_BYTES
        self.memory[start : start + RGB.size_bytes] = value
        return {"eye.rgb": np.array([[self.ring_index, start, 48], [self.ring_index, start + 48, 48]])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "segment"


@pytest.fixture
def renderer(path: Path) -> Renderer:
    return Renderer(path)


@pytest.fixture
def shared(renderer: Renderer, path: Path) -> SharedFrames:
    return SharedFrames(str(path), SIZE_BYTES, RING_SIZE, TOKEN)


def read_rgb(shared: SharedFrames, renderer: Renderer, value: int) -> np.ndarray:
    return shared.read(renderer.draw(value), SPECS)["eye.rgb"]


def test_a_view_of_the_memory(shared: SharedFrames, renderer: Renderer) -> None:
    frames = read_rgb(shared, renderer, 7)
    assert frames.shape == RGB.shape
    assert frames.flags.writeable
    assert (frames == 7).all()
    renderer.memory[HEAD_BYTES] = 9
    assert frames[0, 0, 0, 0] == 9  # no copy


def test_frames_in_use_are_not_overwritten(shared: SharedFrames, renderer: Renderer) -> None:
    held = []
    for value in range(RING_SIZE):
        assert shared.acquire_next()
        held.append(read_rgb(shared, renderer, value)[1:, ::2])  # views of views count, too
    assert not shared.acquire_next()
    assert [int(one.max()) for one in held] == [0, 1, 2, 3]
    del held[0]
    assert shared.acquire_next()
    held.append(read_rgb(shared, renderer, 4))
    assert not shared.acquire_next()
    assert not shared.acquire_next()
    assert [int(one.max()) for one in held] == [1, 2, 3, 4]
    del held
    for value in range(20):
        assert shared.acquire_next()
        read_rgb(shared, renderer, value)
        assert all(len(views) <= 2 for views in shared._views)


def test_after_a_dropped_reply_the_next_ring_index_is_unknown(shared: SharedFrames, renderer: Renderer) -> None:
    held = read_rgb(shared, renderer, 1)
    assert shared.acquire_next()
    renderer.draw(2)  # its reply is dropped
    assert not shared.acquire_next()
    assert (held == 1).all()
    del held
    assert shared.acquire_next()
    held = read_rgb(shared, renderer, 3)
    assert shared.acquire_next()  # now it is known again
    assert (held == 3).all()


def test_frames_outlive_the_segment_and_its_file(shared: SharedFrames, renderer: Renderer, path: Path) -> None:
    frames = read_rgb(shared, renderer, 5)
    path.unlink()
    del shared, renderer
    gc.collect()
    assert (frames == 5).all()
    frames[:] = 6
    assert (frames == 6).all()


def test_floats(shared: SharedFrames, renderer: Renderer) -> None:
    start = HEAD_BYTES + 48 * 2
    renderer.memory[start : start + DEPTH.size_bytes] = np.arange(32, dtype=np.float32).view(np.uint8)[:]
    frames = shared.read({"eye.depth": np.array([[0, start, 64], [0, start + 64, 64]])}, SPECS)["eye.depth"]
    assert frames.dtype == np.float32
    assert frames.ravel().tolist() == list(range(32))


@pytest.mark.parametrize(
    "position",
    [
        [[4, 64, 48], [4, 112, 48]],
        [[-1, 64, 48], [-1, 112, 48]],
        [[0, -8, 48], [0, 40, 48]],
        [[0, 64, 47], [0, 111, 47]],
        [[0, 64, 48], [0, 113, 48]],
        [[0, 64, 48], [1, 112, 48]],
        [[0, SIZE_BYTES - 95, 48], [0, SIZE_BYTES - 47, 48]],
        [[0, 2**62, 48], [0, 2**62 + 48, 48]],
    ],
)
def test_invalid_positions(shared: SharedFrames, position: list[list[int]]) -> None:
    with pytest.raises(BadReply, match=r"'eye\.rgb' has its frames at"):
        shared.read({"eye.rgb": np.array(position)}, SPECS)


def test_read_only_memory(renderer: Renderer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_to_read(file: str, flags: int, opened: object = __import__("os").open) -> int:
        if flags & 3:
            raise PermissionError
        return int(opened(file, flags))  # type: ignore[operator]

    monkeypatch.setattr("os.open", open_to_read)
    frames = read_rgb(SharedFrames(str(path), SIZE_BYTES, RING_SIZE, TOKEN), renderer, 7)
    assert not frames.flags.writeable
    assert (frames == 7).all()


@pytest.mark.usefixtures("renderer")
def test_memory_that_cannot_be_opened(path: Path) -> None:
    with pytest.raises(OSError, match="not the server's memory"):
        SharedFrames(str(path), SIZE_BYTES, RING_SIZE, "another")
    for size_bytes in (SIZE_BYTES * 2, SIZE_BYTES - 1):
        with pytest.raises(OSError, match="not the server's memory"):
            SharedFrames(str(path), size_bytes, RING_SIZE, TOKEN)
    with pytest.raises(OSError, match="not the server's memory"):
        SharedFrames("/dev/null", 0, RING_SIZE, TOKEN)
    with pytest.raises(FileNotFoundError):
        SharedFrames(str(path.with_name("none")), SIZE_BYTES, RING_SIZE, TOKEN)
