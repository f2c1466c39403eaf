"""Type and text of an exception for people elsewhere: one line, without directories of this machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.protos.errors import Internal, exception_text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("it broke"), "ValueError: it broke"),
        (ValueError(), "ValueError"),
        (ValueError("two\nlines\n  of it"), "ValueError: two lines of it"),
        (KeyError("name"), "KeyError: 'name'"),
        (OSError("in /srv/models/private/arm.xml, line 3"), "OSError: in arm.xml, line 3"),
        (
            FileNotFoundError(2, "No such file or directory", "/home/some one/a b/arm.xml"),
            "FileNotFoundError: [Errno 2] No such file or directory: 'arm.xml'",
        ),
        (ValueError(r"C:\Users\me\arm.xml is bad"), "ValueError: arm.xml is bad"),
        (ValueError("1/2 of a/b, 3 m/s"), "ValueError: 1/2 of a/b, 3 m/s"),
        (ValueError("expected shape [3] / got [4]"), "ValueError: expected shape [3] / got [4]"),
    ],
)
def test_texts(error: Exception, text: str) -> None:
    assert exception_text(error) == text


def test_a_long_text_is_cut() -> None:
    text = exception_text(ValueError("x" * 1_000_000))
    assert len(text) < 1100
    assert text.endswith(" ...")


@given(st.text())
def test_any_text_is_one_line(text: str) -> None:
    assert "\n" not in exception_text(ValueError(text))


@given(st.lists(st.text("abc.-_", min_size=1, max_size=8), min_size=2, max_size=5))
def test_directories_are_left_out(parts: list[str]) -> None:
    text = exception_text(ValueError(f"cannot read /{'/'.join(parts)} at all"))
    assert text == f"ValueError: cannot read {parts[-1]} at all"


def test_what_failed_and_why() -> None:
    assert str(Internal.caused_by("the family failed", ValueError("it broke"))) == (
        "the family failed: ValueError: it broke"
    )
