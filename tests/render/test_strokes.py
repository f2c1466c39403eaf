"""Letters made of lines: all of them are there, apart, and where they should be."""

import numpy as np
import pytest

from worldloom.render.strokes import LETTERS, write

SIZE = 4.0


def written(text: str, align: float = 0.0) -> np.ndarray:
    canvas = np.full((100, 400, 3), 255, np.float32)
    write(canvas, text, 200, 50, align, (0, 0, 0), SIZE, thickness=3)
    return canvas[:, :, 0] < 128


def test_no_two_letters_look_alike() -> None:
    looks = {letter: written(letter).tobytes() for letter in LETTERS}
    alike = {("x", "×"), ("×", "x"), ("l", "I"), ("I", "l")}
    for one, look in looks.items():
        assert {other for other in looks if other != one and looks[other] == look} <= {b for a, b in alike if a == one}


@pytest.mark.parametrize("letter", [letter for letter in LETTERS if letter != " "])
def test_letters_stay_on_their_line(letter: str) -> None:
    rows, columns = np.nonzero(written(letter))
    assert rows.min() >= 50 - 4 * SIZE - 2
    assert rows.max() <= 50 + 5 * SIZE + 2
    assert columns.min() >= 200 - 2


@pytest.mark.parametrize(("align", "side"), [(0.0, 1), (0.5, 0), (1.0, -1)])
def test_text_is_aligned(align: float, side: int) -> None:
    columns = np.nonzero(written("HOH", align))[1]
    middle = (columns.min() + columns.max()) / 2
    assert np.sign(round((middle - 200) / 10)) == side


def test_what_is_no_letter_is_a_box() -> None:
    assert (written("\N{SNOWMAN}") == written("\N{UMBRELLA}")).all()
    assert written("\N{SNOWMAN}").any()
