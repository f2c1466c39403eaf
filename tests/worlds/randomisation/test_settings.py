"""Settings of what varies: what pools they need, and that each is documented."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.toy import Toy
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene
from worldloom.worlds.describe import describe
from worldloom.worlds.pool import Pool
from worldloom.worlds.randomisation.settings import (
    BUILT_IN,
    TIMES,
    VARIATION_SETTINGS,
    VARIATIONS,
    VISUAL,
    Randomisation,
    read_choice,
    read_randomisation,
)
from worldloom.worlds.settings import Value, parse_settings

AMOUNTS = [f"vary_{one.name}" for one in VARIATIONS]


def parse(**given: Any) -> dict[str, Value]:
    return parse_settings(VARIATION_SETTINGS, given)


def test_nothing_varies_by_default() -> None:
    assert read_randomisation(parse()) is None
    assert read_randomisation(parse(vary_colors_at="step", texture_set="x", vary_seed=3)) is None


@given(st.dictionaries(st.sampled_from(AMOUNTS), st.floats(0.001, 1)), st.sampled_from(TIMES[:2]), st.text(min_size=1))
def test_pools_are_the_same_where_the_same_varies(amounts: dict[str, float], when: str, name: str) -> None:
    """What has no effect, such as the time of what does not vary, needs no pool of its own."""
    times = {f"{one}_at": when for one in amounts}
    found = read_randomisation(parse(**amounts, **times))
    unused: dict[str, Any] = {f"{one}_at": "world" for one in AMOUNTS if one not in amounts}
    unused |= {} if "vary_textures" in amounts else {"texture_set": name}
    unused |= {} if "vary_background" in amounts else {"background_set": name}
    assert read_randomisation(parse(**amounts, **times, **unused, vary_seed=4, vary_count=9, variation=2)) == found
    if amounts:
        assert found is not None
        assert {one: amount for one, amount in zip(AMOUNTS, found.amounts, strict=True) if amount} == amounts
        assert (found.texture_set, found.background_set) == (BUILT_IN, BUILT_IN)


def test_a_seed_of_zero_is_a_seed() -> None:
    assert read_choice(parse(vary_seed=0), {"vary_seed"}).seed == 0
    assert read_choice(parse(), {}).seed is None
    assert read_choice(parse(variation=3), {"variation"}, (1, 2)).numbers == (1, 2)


def test_each_is_described_and_documented() -> None:
    described = {one["name"] for one in describe(Toy)["variations"]}
    page = (Path(__file__).parents[3] / "docs/randomisation.md").read_text()
    physical = {f"vary_{one.name}" for one in VARIATIONS if one.is_physical}
    for setting in VARIATION_SETTINGS:
        assert (setting.name in described) == (setting.name.removesuffix("_at") not in physical)
        assert f"`{setting.name}`" in page or setting.name.endswith("_at")


def test_a_family_that_knows_of_nothing_varies() -> None:
    """All families do, those of others too, without any of the attributes that say more."""
    assets = AssetLibrary(texture_size=32)
    amounts = tuple(0.5 if what in VISUAL else 0.0 for what in range(len(VARIATIONS)))
    everything = Randomisation(amounts, (1,) * len(VARIATIONS))
    pool = Pool(Toy({}, assets), Scene(assets), everything)
    assert [spec.name for spec in pool.variation_specs] == [
        "variation",
        *(f"variation.{VARIATIONS[what].name}" for what in VISUAL),
    ]


@pytest.mark.parametrize("setting", VARIATION_SETTINGS, ids=lambda setting: setting.name)
def test_texts_are_sentences(setting: Any) -> None:
    assert setting.text[0].isupper()
    assert setting.text.endswith(".")
