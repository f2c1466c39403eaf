"""Values in range are converted to the setting's type; others raise an error that says what was expected."""

import math
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldloom.worlds.settings import Setting, SettingError, Value, parse_assignments, parse_settings

SIZE = Setting("size", 9, "Cells along a side.", minimum=3, maximum=1_000_000)
GAIN = Setting("gain", 1.0, "How strong.", minimum=-2.5, maximum=4.0)
ANY_COUNT = Setting("count", 0, "Any integer.")
ANY_NUMBER = Setting("number", 0.0, "Any number.")
FOG = Setting("fog", False, "Whether there is fog.")
LIGHT = Setting("light", "fixed", "Which light.", choices=("fixed", "random"))
TITLE = Setting("title", "", "Any text.")
DATA = Setting("data", b"", "Any bytes.")
TABLE = (SIZE, GAIN, ANY_COUNT, ANY_NUMBER, FOG, LIGHT, TITLE)

NUMPY_INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
NOT_NUMBERS: st.SearchStrategy[object] = st.one_of(
    st.none(), st.text(), st.booleans(), st.binary(), st.lists(st.integers(), max_size=3), st.complex_numbers()
)


def refusal(setting: Setting, value: object) -> str:
    with pytest.raises(SettingError) as refused:
        setting.parse(value)
    text = str(refused.value)
    assert f"{setting.name!r}" in text
    assert repr(value)[:100] in text
    assert f"expected {setting.expected}" in text
    return text


def forms_of_integer(value: int) -> list[object]:
    """Return all types that this integer may have."""
    fitting = [kind for kind in NUMPY_INTEGERS if np.iinfo(kind).min <= value <= np.iinfo(kind).max]
    return [value, *(kind(value) for kind in fitting), *(np.array([value], kind) for kind in fitting)]


@given(st.integers(3, 1_000_000))
def test_integers_in_range_are_taken_from_any_integer(value: int) -> None:
    for form in forms_of_integer(value):
        taken = SIZE.parse(form)
        assert (type(taken), taken) == (int, value)


@given(st.integers(-2, 4))
def test_numbers_are_taken_from_integers(value: int) -> None:
    for form in forms_of_integer(value):
        taken = GAIN.parse(form)
        assert (type(taken), taken) == (float, value)


@given(st.floats(-2.5, 4.0, width=16))
def test_numbers_in_range_are_taken_from_any_number(value: float) -> None:
    for form in (value, np.float16(value), np.float32(value), np.float64(value), np.array(value, np.float32)):
        taken = GAIN.parse(form)
        assert (type(taken), taken) == (float, value)


@given(st.booleans())
def test_truths_are_taken(value: bool) -> None:
    assert FOG.parse(value) is value
    assert FOG.parse(np.bool_(value)) is value


@given(st.text())
def test_texts_are_taken(value: str) -> None:
    taken = TITLE.parse(value)
    assert (type(taken), taken) == (str, value)


def test_choices_are_taken() -> None:
    for form in ("random", np.str_("random"), np.array("random")):
        taken = LIGHT.parse(form)
        assert (type(taken), taken) == (str, "random")


@given(st.integers().filter(lambda value: not 3 <= value <= 1_000_000))
def test_integers_out_of_range_are_refused(value: int) -> None:
    for form in forms_of_integer(value):
        assert "an integer from 3 to 1000000" in refusal(SIZE, form)


@given(st.one_of(st.floats(), st.integers()).filter(lambda value: not -2.5 <= value <= 4.0))
def test_numbers_out_of_range_are_refused(value: float) -> None:
    assert "a number from -2.5 to 4" in refusal(GAIN, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), 10**400, -(10**400)])
def test_numbers_that_are_not_finite_are_refused_even_without_a_range(value: object) -> None:
    refusal(ANY_NUMBER, value)


@given(NOT_NUMBERS)
def test_other_things_are_refused_where_a_number_is_wanted(value: object) -> None:
    for setting in (SIZE, GAIN, ANY_COUNT, ANY_NUMBER):
        refusal(setting, value)


@given(st.floats())
def test_a_fraction_is_refused_where_an_integer_is_wanted(value: float) -> None:
    refusal(SIZE, value)
    refusal(ANY_COUNT, value)


@pytest.mark.parametrize("setting", [SIZE, GAIN, ANY_COUNT, ANY_NUMBER, LIGHT, TITLE], ids=lambda one: one.name)
@pytest.mark.parametrize("value", [True, False, np.bool_(True)])
def test_a_truth_is_refused_elsewhere(setting: Setting, value: object) -> None:
    refusal(setting, value)


@given(st.one_of(st.integers(), st.floats(), st.text(), st.none()))
def test_only_truths_are_taken_where_one_is_wanted(value: object) -> None:
    assert "true or false" in refusal(FOG, value)


@given(st.text().filter(lambda text: text not in LIGHT.choices))
def test_other_texts_are_no_choice(value: str) -> None:
    assert "one of fixed, random" in refusal(LIGHT, value)


@pytest.mark.parametrize("value", [np.array([], np.int64), np.array([4, 5]), [4], (4,)])
def test_several_values_or_none_are_refused(value: object) -> None:
    refusal(SIZE, value)


@given(st.binary())
def test_bytes_are_taken_from_all_that_has_them(value: bytes) -> None:
    assert DATA.parse(value) is value, "not copied"
    for given_as in (bytearray(value), memoryview(value), np.frombuffer(value, np.uint8)):
        assert DATA.parse(given_as) == value


@given(st.one_of(st.none(), st.text(), st.integers(), st.lists(st.integers(0, 255)), st.just(np.zeros(3))))
def test_other_things_are_no_bytes(value: object) -> None:
    assert "expected bytes" in refusal(DATA, value)


def test_bytes_are_not_written_on_command_lines() -> None:
    with pytest.raises(SettingError, match="setting 'data' is for bytes: expected none on a command line"):
        parse_assignments([DATA], ["data=x"])


@pytest.mark.parametrize("value", [bytes(1 << 24), "x" * (1 << 24)])
def test_errors_repeat_the_beginning_of_large_values(value: object) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(SettingError) as refused:
            SIZE.parse(value)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(str(refused.value)) < 250
    assert peak_bytes < 1 << 20, "no repr of the whole value was made"


@given(st.fixed_dictionaries({}, optional={"size": st.integers(3, 99), "fog": st.booleans(), "title": st.text()}))
def test_what_is_not_given_is_the_default(some: dict[str, Value]) -> None:
    taken = parse_settings(TABLE, some)
    assert taken == {setting.name: some.get(setting.name, setting.default) for setting in TABLE}
    assert list(taken) == [setting.name for setting in TABLE]


@pytest.mark.parametrize(
    ("name", "nearest"), [("sise", "size"), ("SIZE", None), ("lights", "light"), ("gian", "gain"), ("qqq", None)]
)
def test_an_unknown_name_is_refused_with_the_nearest_known(name: str, nearest: str | None) -> None:
    with pytest.raises(SettingError) as refused:
        parse_settings(TABLE, {name: 3})
    text = str(refused.value)
    assert f"unknown setting {name!r}" in text
    assert "expected some of size, gain, count, number, fog, light, title" in text
    if nearest:
        assert f"(did you mean {nearest!r}?)" in text
    else:
        assert "did you mean" not in text


@given(st.text(min_size=1).filter(lambda name: name not in {setting.name for setting in TABLE}))
def test_any_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=re.escape(f"unknown setting {repr(name)[:100]}")):
        parse_settings(TABLE, {name: 3})


def test_a_setting_of_another_request_is_refused_with_its_place() -> None:
    elsewhere = {"width": "JoinWorld", "size": "JoinWorld"}
    assert parse_settings(TABLE, {"size": 7}, elsewhere)["size"] == 7
    with pytest.raises(
        SettingError, match=r"^setting 'width' is one of JoinWorld, to be given there: expected some of"
    ):
        parse_settings(TABLE, {"width": 3}, elsewhere)
    with pytest.raises(SettingError, match=r"^unknown setting 'widht' \(did you mean 'width' of JoinWorld\?\)"):
        parse_settings(TABLE, {"widht": 3}, elsewhere)


def test_a_family_without_settings_says_so() -> None:
    with pytest.raises(SettingError, match="unknown setting 'size': expected some of none"):
        parse_settings((), {"size": 3})


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (SIZE, "an integer from 3 to 1000000"),
        (GAIN, "a number from -2.5 to 4"),
        (Setting("steps", 1, "", minimum=1), "an integer of 1 or more"),
        (Setting("drag", 0.5, "", maximum=0.75), "a number of 0.75 or less"),
        (ANY_COUNT, "an integer"),
        (LIGHT, "one of fixed, random"),
        (TITLE, "a text"),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_what_is_expected_in_words(setting: Setting, words: str) -> None:
    assert setting.expected == words


WRITTEN: list[tuple[st.SearchStrategy[Any], Setting, Callable[[Any], str]]] = [
    (st.integers(3, 1_000_000), SIZE, str),
    (st.floats(-2.5, 4.0), GAIN, repr),
    (st.integers(-2, 4), GAIN, str),
    (st.booleans(), FOG, lambda value: str(value).lower()),
    (st.sampled_from(LIGHT.choices), LIGHT, str),
    (st.text(), TITLE, str),
]


@given(st.sampled_from(WRITTEN).flatmap(lambda one: st.tuples(one[0], st.just(one[1]), st.just(one[2]))))
def test_what_is_written_is_read(case: tuple[Value, Setting, Callable[[Any], str]]) -> None:
    value, setting, write = case
    read = parse_assignments(TABLE, [f"{setting.name}={write(value)}"])
    assert read == {setting.name: value}
    assert type(read[setting.name]) is type(setting.default)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["size=many"], "setting 'size' is 'many': expected an integer from 3 to 1000000"),
        (["size=2"], "setting 'size' is 2: expected an integer from 3 to 1000000"),
        (["size=4.5"], "setting 'size' is '4.5': expected an integer"),
        (["gain=nan"], "setting 'gain' is nan: expected a number from -2.5 to 4"),
        (["fog=1"], "setting 'fog' is '1': expected true or false"),
        (["size"], "setting 'size': expected NAME=VALUE, such as size=9"),
        (["=3"], "setting '=3': expected NAME=VALUE"),
        (["size=4", "size=5"], "setting 'size' is given twice"),
        (["sise=4"], "unknown setting 'sise' (did you mean 'size'?)"),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else None,
)
def test_what_cannot_be_read_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        parse_assignments(TABLE, words)
