"""Families are found by name, whether offered by packages or added; errors say why one is not."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.support.toy import SameName, Toy
from worldloom.worlds import registry
from worldloom.worlds.registry import GROUP, FamilyError, Registry

ROOT = Path(__file__).parents[2]
TOY = "tests.support.toy:Toy"


class Offers:
    """Entry points as packages have them; counts how often they are listed."""

    def __init__(self, **places: str) -> None:
        self.points = [EntryPoint(name, place, GROUP) for name, place in places.items()]
        self.listed = 0

    def __call__(self) -> list[EntryPoint]:
        self.listed += 1
        return self.points


def refusal(offers: Offers, name: str) -> str:
    with pytest.raises(FamilyError) as refused:
        Registry(offers).find(name)
    return str(refused.value)


def test_a_family_is_found_through_its_entry_point() -> None:
    offers = Offers(toy=TOY, broken="no.such.module:Broken")
    found = Registry(offers)
    assert found.known() == ("broken", "toy")
    assert found.find("toy") is Toy
    assert found.find("toy") is Toy
    assert offers.listed == 1


def test_nothing_is_imported_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap_of_registry.py").write_text("raise RuntimeError('sprung')")
    monkeypatch.syspath_prepend(tmp_path)
    found = Registry(Offers(toy=TOY, trap="trap_of_registry:Trap"))
    assert found.known() == ("toy", "trap")
    assert found.find("toy") is Toy
    with pytest.raises(FamilyError, match=r"family 'trap' of .* cannot be loaded: .*RuntimeError: sprung"):
        found.find("trap")


def test_listing_loads_no_family_of_the_box() -> None:
    code = (
        "import sys; from worldloom.worlds.registry import known_families; known_families();"
        "print([n for n in ('catch', 'cartpole', 'maze') if f'worldloom.worlds.{n}' in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_the_box_is_offered_by_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    offered = {offer.name: offer.value for offer in registry.installed_entry_points()}
    assert offered.items() >= project["entry-points"][GROUP].items()
    assert set(registry.known_families()) >= {"cartpole", "catch", "maze"}


def test_a_third_party_package_is_seen(tmp_path: Path) -> None:
    """A package is a folder with metadata on the search path; a new process finds its family."""
    package = tmp_path / "kites-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: kites\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{GROUP}]\nkite = kites:Kite\nlost = kites:Lost\n")
    (tmp_path / "kites.py").write_text("from tests.support.toy import Toy\nclass Kite(Toy):\n    name = 'kite'\n")
    code = (
        "from worldloom.worlds.registry import find_family, known_families\n"
        "print('kite' in known_families(), 'maze' in known_families(), find_family('kite').__module__)\n"
        "try:\n    find_family('lost')\nexcept ValueError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(tmp_path), str(ROOT)]}\n{code}"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [
        "True True kites",
        "family 'lost' of package kites cannot be loaded: 'kites' has no 'Lost': expected one of its families, Kite",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tyo", "unknown family 'tyo' (did you mean 'toy'?): expected one of kite, toy"),
        ("Toy", "unknown family 'Toy' (did you mean 'toy'?): expected one of kite, toy"),
        ("zzz", "unknown family 'zzz': expected one of kite, toy"),
        ("", "unknown family '': expected one of kite, toy"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known(name: str, message: str) -> None:
    assert refusal(Offers(toy=TOY, kite="nowhere:Kite"), name) == message


def test_without_families_it_says_so() -> None:
    assert refusal(Offers(), "toy") == "unknown family 'toy': expected one of none"


def test_an_offer_under_another_name_is_refused() -> None:
    assert "family 'kite' of tests.support.toy:Toy is a class with the name 'toy'" in refusal(Offers(kite=TOY), "kite")


def test_two_offers_of_one_name_are_refused_and_nothing_else() -> None:
    offers = Offers(toy=TOY, unfinished="tests.support.toy:Unfinished")
    offers.points += [EntryPoint("toy", "tests.support.toy:SameName", GROUP), EntryPoint("toy", TOY, GROUP)]
    assert refusal(offers, "toy") == (
        "several families are named 'toy': tests.support.toy:Toy and tests.support.toy:SameName; "
        "uninstall all but one of the packages"
    )
    assert Registry(offers).known() == ("toy", "unfinished")


def test_a_package_found_in_two_places_counts_once() -> None:
    offers = Offers(toy=TOY)
    offers.points.append(EntryPoint("toy", TOY, GROUP))
    assert Registry(offers).find("toy") is Toy


def test_a_family_is_added_by_its_place() -> None:
    found = Registry(Offers())
    assert found.add(TOY) is Toy
    assert found.add(TOY) is Toy
    assert found.known() == ("toy",)
    assert found.find("toy") is Toy


def test_adding_what_is_offered_already_is_no_clash() -> None:
    found = Registry(Offers(toy=TOY))
    assert found.add(TOY) is Toy
    assert found.known() == ("toy",)


@pytest.mark.parametrize("place", ["toy", "tests.support.toy", ":Toy", "tests.support.toy:", ""])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(FamilyError, match=re.escape(f"family {place!r}: expected MODULE:CLASS, such as")):
        Registry(Offers()).add(place)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("no_such_module:Toy", "cannot import 'no_such_module': ModuleNotFoundError: No module named 'no_such_module'"),
        (
            "tests.support.toy:Tyo",
            "'tests.support.toy' has no 'Tyo': expected one of its families, Toy, Unfinished",
        ),
        (
            "tests.support.toy:NOT_A_CLASS",
            "'tests.support.toy' has no family 'NOT_A_CLASS': expected one of its",
        ),
        ("tests.support.toy:np", "'tests.support.toy' has no family 'np': expected one of its families"),
        ("json:JSONDecoder", "'json' has no family 'JSONDecoder': expected a subclass of worldloom.worlds.family.Fam"),
        (
            "tests.support.toy:Unfinished",
            "family tests.support.toy:Unfinished is incomplete: it lacks step",
        ),
        (
            "tests.support.toy:Nameless",
            "it lacks name, text, settings, labels, observe, place_camera, reset, state_fields, s",
        ),
        (
            "tests.support.toy:Loud",
            "family tests.support.toy:Loud is named 'Loud Toy': expected lower case letters",
        ),
    ],
    ids=lambda one: one.partition(":")[2] if one.startswith(("tests", "no", "json")) else None,
)
def test_a_place_without_a_family_is_refused(place: str, message: str) -> None:
    with pytest.raises(FamilyError, match=re.escape(message)):
        Registry(Offers()).add(place)


def test_two_families_of_one_name_are_refused() -> None:
    found = Registry(Offers())
    found.add(TOY)
    with pytest.raises(
        FamilyError, match=r"toy:SameName is a family named 'toy', which is already the name of a family that was added"
    ):
        found.add("tests.support.toy:SameName")
    assert found.find("toy") is Toy
    offered = Registry(Offers(toy=TOY))
    with pytest.raises(
        FamilyError, match=r"SameName is a family named 'toy', which is already the name of tests.support.toy:Toy"
    ):
        offered.add("tests.support.toy:SameName")
    assert offered.find("toy") is Toy
    assert SameName.name == Toy.name


def test_the_process_has_a_registry_of_its_own(fresh_registry: Registry) -> None:
    before = registry.known_families()
    assert registry.add_family(TOY) is Toy
    assert registry.known_families() == tuple(sorted([*before, "toy"]))
    assert registry.find_family("toy") is fresh_registry.find("toy") is Toy


def test_a_module_may_pass_on_a_family_that_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding it imports the module, which may do more: that is how an operator's code is run."""
    (tmp_path / "passes_on_toys.py").write_text("from tests.support.toy import Toy\nran = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = Registry(Offers(toy=f"{TOY} [toys]"))
    assert found.add("passes_on_toys:Toy") is Toy
    assert sys.modules["passes_on_toys"].ran
    assert found.find("toy") is Toy
    assert found.needs_extra("toy")


def test_what_needs_an_extra_says_so_without_being_loaded() -> None:
    found = Registry(Offers(toy=TOY, physics="no.such.module:Physics [physics]"))
    assert found.known() == ("physics", "toy")
    assert found.needs_extra("physics")
    assert not found.needs_extra("toy")
    assert not found.needs_extra("unknown")
    assert Registry(Offers(toy=f"{TOY} [toys]")).find("toy") is Toy
    derived = Registry(Offers(toy=f"{TOY} [toys]"))
    derived.add("tests.support.toy:NamedToy")
    assert derived.needs_extra("named_toy")
