"""Shared memory, with a file in the server's place."""

import gc
from pathlib import Path

import numpy as np
import pytest

from worldloom.client.errors import BadReply
from worldloom.client.shared_memory import SharedPictures
from worldloom.client.specs import Spec

TOKEN = "5ca1ab1e"
HEAD_BYTES, SLOT_BYTES, SLOTS = 64, 192, 4
SIZE_BYTES = HEAD_BYTES + SLOTS * SLOT_BYTES
RGB = Spec(1, "eye.rgb", "uint8", (2, 4, 4, 3), None, None)
DEPTH = Spec(2, "eye.depth", "float32", (2, 4, 4), None, None)
SPECS = {"eye.rgb": RGB, "eye.depth": DEPTH}


class Painter:
    """The server's side."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(SIZE_BYTES))
        self.memory = np.memmap(path, np.uint8, "r+")
        self.memory[: len(TOKEN)] = np.frombuffer(TOKEN.encode(), np.uint8)
        self.turn = -1

    def paint(self, value: int) -> dict[str, np.ndarray]:
        self.turn = (self.turn + 1) % SLOTS
        start = HEAD_BYTES + self.turn * SLOT_BYTES
        self.memory[start : start + RGB.size_bytes] = value
        return {"eye.rgb": np.array([[self.turn, start, 48], [self.turn, start + 48, 48]])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "segment"


@pytest.fixture
def painter(path: Path) -> Painter:
    return Painter(path)


@pytest.fixture
def shared(painter: Painter, path: Path) -> SharedPictures:
    return SharedPictures(str(path), SIZE_BYTES, SLOTS, TOKEN)


def look(shared: SharedPictures, painter: Painter, value: int) -> np.ndarray:
    return shared.read(painter.paint(value), SPECS)["eye.rgb"]


def test_a_view_of_the_memory(shared: SharedPictures, painter: Painter) -> None:
    picture = look(shared, painter, 7)
    assert picture.shape == RGB.shape
    assert picture.flags.writeable
    assert (picture == 7).all()
    painter.memory[HEAD_BYTES] = 9
    assert picture[0, 0, 0, 0] == 9  # no copy


def test_nobody_paints_over_what_is_held(shared: SharedPictures, painter: Painter) -> None:
    held = []
    for value in range(SLOTS):
        assert shared.take_turn()
        held.append(look(shared, painter, value)[1:, ::2])  # views of views count, too
    assert not shared.take_turn()
    assert [int(one.max()) for one in held] == [0, 1, 2, 3]
    del held[0]
    assert shared.take_turn()
    held.append(look(shared, painter, 4))
    assert not shared.take_turn()
    assert not shared.take_turn()
    assert [int(one.max()) for one in held] == [1, 2, 3, 4]
    del held
    for value in range(20):
        assert shared.take_turn()
        look(shared, painter, value)
        assert all(len(loans) <= 2 for loans in shared._loans)


def test_after_a_refusal_nobody_knows_which_is_next(shared: SharedPictures, painter: Painter) -> None:
    held = look(shared, painter, 1)
    assert shared.take_turn()
    painter.paint(2)  # nobody looks at it
    assert not shared.take_turn()
    assert (held == 1).all()
    del held
    assert shared.take_turn()
    held = look(shared, painter, 3)
    assert shared.take_turn()  # now it is known again
    assert (held == 3).all()


def test_pictures_outlive_everything(shared: SharedPictures, painter: Painter, path: Path) -> None:
    picture = look(shared, painter, 5)
    path.unlink()
    del shared, painter
    gc.collect()
    assert (picture == 5).all()
    picture[:] = 6
    assert (picture == 6).all()


def test_floats(shared: SharedPictures, painter: Painter) -> None:
    start = HEAD_BYTES + 48 * 2
    painter.memory[start : start + DEPTH.size_bytes] = np.arange(32, dtype=np.float32).view(np.uint8)[:]
    picture = shared.read({"eye.depth": np.array([[0, start, 64], [0, start + 64, 64]])}, SPECS)["eye.depth"]
    assert picture.dtype == np.float32
    assert picture.ravel().tolist() == list(range(32))


@pytest.mark.parametrize(
    "place",
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
def test_places_that_cannot_be(shared: SharedPictures, place: list[list[int]]) -> None:
    with pytest.raises(BadReply, match=r"'eye\.rgb' is said to lie at"):
        shared.read({"eye.rgb": np.array(place)}, SPECS)


def test_memory_that_can_only_be_read(painter: Painter, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_to_read(file: str, flags: int, opened: object = __import__("os").open) -> int:
        if flags & 3:
            raise PermissionError
        return int(opened(file, flags))  # type: ignore[operator]

    monkeypatch.setattr("os.open", open_to_read)
    picture = look(SharedPictures(str(path), SIZE_BYTES, SLOTS, TOKEN), painter, 7)
    assert not picture.flags.writeable
    assert (picture == 7).all()


@pytest.mark.usefixtures("painter")
def test_memory_that_cannot_be_had(path: Path) -> None:
    with pytest.raises(OSError, match="other memory"):
        SharedPictures(str(path), SIZE_BYTES, SLOTS, "another")
    for size_bytes in (SIZE_BYTES * 2, SIZE_BYTES - 1):
        with pytest.raises(OSError, match="other memory"):
            SharedPictures(str(path), size_bytes, SLOTS, TOKEN)
    with pytest.raises(OSError, match="other memory"):
        SharedPictures("/dev/null", 0, SLOTS, TOKEN)
    with pytest.raises(FileNotFoundError):
        SharedPictures(str(path.with_name("none")), SIZE_BYTES, SLOTS, TOKEN)
