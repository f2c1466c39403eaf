"""SharedFrames, with a file as the segment."""

import gc
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.client.errors import BadReply
from worldloom.client.shared_memory import SharedFrames
from worldloom.client.specs import Spec
from worldloom.protos.shared_memory import CHOICE_OFFSET

TOKEN = "5ca1ab1e"
HEAD_BYTES, ENTRY_BYTES, RING_SIZE = 128, 192, 4
SIZE_BYTES = HEAD_BYTES + RING_SIZE * ENTRY_BYTES
RGB = Spec(1, "eye.rgb", "uint8", (2, 4, 4, 3), None, None)
DEPTH = Spec(2, "eye.depth", "float32", (2, 4, 4), None, None)
SPECS = {"eye.rgb": RGB, "eye.depth": DEPTH}


class Renderer:
    """The server's side: draws into the chosen set."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(SIZE_BYTES))
        self.memory = np.memmap(path, np.uint8, "r+")
        self.memory[: len(TOKEN)] = np.frombuffer(TOKEN.encode(), np.uint8)

    def draw(self, value: int) -> dict[str, np.ndarray]:
        index = int(self.memory[CHOICE_OFFSET : CHOICE_OFFSET + 8].view(np.int64)[0]) - 1
        assert 0 <= index < RING_SIZE
        start = HEAD_BYTES + index * ENTRY_BYTES
        self.memory[start : start + RGB.size_bytes] = value
        return {"eye.rgb": np.array([[index, start, 48], [index, start + 48, 48]])}


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
    assert shared.choose()
    return shared.read(renderer.draw(value), SPECS)["eye.rgb"]


def test_a_view_of_the_memory(shared: SharedFrames, renderer: Renderer) -> None:
    frames = read_rgb(shared, renderer, 7)
    assert frames.shape == RGB.shape
    assert frames.flags.writeable
    assert (frames == 7).all()
    renderer.memory[HEAD_BYTES] = 9
    assert frames[0, 0, 0, 0] == 9  # no copy


def test_frames_in_use_are_not_overwritten(shared: SharedFrames, renderer: Renderer) -> None:
    held = [read_rgb(shared, renderer, value)[1:, ::2] for value in range(RING_SIZE)]  # views of views count, too
    assert not shared.choose()
    assert [int(one.max()) for one in held] == [0, 1, 2, 3]
    del held[2]
    held.append(read_rgb(shared, renderer, 4))
    assert not shared.choose()
    assert [int(one.max()) for one in held] == [0, 1, 3, 4]


def test_a_client_that_drops_frames_has_two_sets_in_use(shared: SharedFrames, renderer: Renderer) -> None:
    """One that is read, and one that is drawn into: they stay in the processor's cache."""
    frames = read_rgb(shared, renderer, 0)
    used = set()
    for value in range(1, 20):
        frames = read_rgb(shared, renderer, value)
        used.add(frames.__array_interface__["data"][0])
        assert all(len(views) <= 2 for views in shared._views)
    assert len(used) == 2


def test_a_dropped_reply_holds_nothing_back(shared: SharedFrames, renderer: Renderer) -> None:
    held = [read_rgb(shared, renderer, value) for value in range(RING_SIZE - 1)]
    for value in range(10, 14):
        assert shared.choose()
        renderer.draw(value)  # its reply is dropped
    held.append(read_rgb(shared, renderer, 3))
    assert [int(one.max()) for one in held] == [0, 1, 2, 3]


def test_a_set_that_is_chosen_by_its_index_is_drawn_over(shared: SharedFrames, renderer: Renderer) -> None:
    held = read_rgb(shared, renderer, 1)
    assert shared.choose(0)
    shared.read(renderer.draw(2), SPECS)
    assert (held == 2).all()
    assert shared.choose(3)
    assert renderer.draw(3)["eye.rgb"][0, 0] == 3


def test_a_forked_process_chooses_nothing(shared: SharedFrames, renderer: Renderer) -> None:
    assert shared.choose(2)
    child = os.fork()
    if child == 0:
        os._exit(shared.choose() or shared.choose(1))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert renderer.draw(3)["eye.rgb"][0, 0] == 2


@given(moves=st.lists(st.one_of(st.just("step"), st.just("drop reply"), st.integers(0, 9)), max_size=60))
def test_what_is_held_stays_whatever_is_drawn(moves: list[str | int]) -> None:
    """Random steps, dropped replies, and dropped observations, against the bytes that were seen first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "segment"
        renderer = Renderer(path)
        shared = SharedFrames(str(path), SIZE_BYTES, RING_SIZE, TOKEN)
        held: list[tuple[int, np.ndarray]] = []
        for value, move in enumerate(moves):
            if isinstance(move, int):
                del held[move : move + 1]
            else:
                is_chosen = shared.choose()
                assert is_chosen == (len(held) < RING_SIZE)
                if is_chosen:
                    positions = renderer.draw(value)
                    if move == "step":
                        held.append((value, shared.read(positions, SPECS)["eye.rgb"]))
            assert all((frames == seen).all() for seen, frames in held)


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


@pytest.mark.usefixtures("renderer")
def test_read_only_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that may not write cannot choose, so it does without."""

    def refuse_to_write(file: str, flags: int) -> int:
        raise PermissionError

    monkeypatch.setattr("os.open", refuse_to_write)
    with pytest.raises(PermissionError):
        SharedFrames(str(path), SIZE_BYTES, RING_SIZE, TOKEN)


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
