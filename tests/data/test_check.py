"""The check of datasets: every change is found, and what a killed run leaves is no damage."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.collect_faults import make_flip_targets, run_flips
from worldloom.data.check import check_dataset
from worldloom.data.collection import Step
from worldloom.data.collector import Collector
from worldloom.data.errors import DamagedDataset, DatasetError
from worldloom.data.index import Index, parse_index, read_index
from worldloom.data.layout import Description


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small datasets of each kind."""
    folder = tmp_path_factory.mktemp("originals")
    make_flip_targets(folder)
    return folder


@pytest.fixture
def datasets(originals: Path, tmp_path: Path) -> Path:
    """A copy of these, to damage."""
    return shutil.copytree(originals, tmp_path / "datasets")


def test_changed_bytes_are_found() -> None:
    assert run_flips(150, seed=5).total() == 150  # the script does 1,000


@pytest.mark.parametrize("name", ["parquet", "incomplete", "parts"])
def test_every_changed_bit_of_an_index_and_a_description_is_found(originals: Path, name: str) -> None:
    index = (originals / name / "index.jsonl").read_bytes()
    path = originals / name / "dataset.json"
    description = path.read_bytes()
    for bit in range(8):
        for place in range(len(index)):
            changed = bytearray(index)
            changed[place] ^= 1 << bit
            assert parse_index(bytes(changed))[1], (place, bit)
        for place in range(len(description)):
            changed = bytearray(description)
            changed[place] ^= 1 << bit
            with pytest.raises(DatasetError):
                Description.from_json(bytes(changed), path)


@pytest.mark.parametrize("character", [b"\n", b"\t", b"\0"])
def test_every_byte_of_an_index_that_becomes_a_separator_is_found(originals: Path, character: bytes) -> None:
    for name in ("npy", "incomplete"):
        index = (originals / name / "index.jsonl").read_bytes()
        for place in range(len(index)):
            if index[place : place + 1] != character:
                assert parse_index(index[:place] + character + index[place + 1 :])[1], place


def test_an_index_that_ends_anywhere_is_that_of_a_killed_run(originals: Path) -> None:
    data = (originals / "parquet" / "index.jsonl").read_bytes()
    whole, _ = parse_index(data)
    for size in range(len(data)):
        index, problems = parse_index(data[:size])
        assert problems == []
        assert index.shards == whole.shards[: data[:size].count(b"\n")]
        assert index.end is None


@given(data=st.binary(max_size=300) | st.text(alphabet='{}"kind:\t\n0f', max_size=60).map(str.encode))
def test_any_bytes_are_an_index_or_damage(data: bytes) -> None:
    index, problems = parse_index(data)
    assert problems or index == Index(valid_bytes=0)


@given(
    data=st.binary(max_size=100) | st.sampled_from([b"{}", b"[]", b"3", b'{"worldloom_dataset": 1}', b"null", b'""'])
)
def test_any_bytes_are_a_description_or_damage(data: bytes) -> None:
    with pytest.raises(DatasetError, match="damaged"):
        Description.from_json(data, Path("dataset.json"))


def edit_lines(directory: Path, edit: Callable[[list[bytes]], list[bytes]]) -> None:
    path = directory / "index.jsonl"
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))


@pytest.mark.parametrize("name", ["parquet", "incomplete"])
@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 1 is about shard 1, where shard 0 was expected"),
        (lambda lines: [lines[0], *lines], "line 2 is about shard 0, where shard 1 was expected"),
        (lambda lines: lines[1:], "line 1 is about shard 1"),
        (lambda lines: [lines[0], b"\n", *lines[1:]], "line 2 is damaged"),
        (lambda lines: [*lines, b"x\n"], "is damaged"),
    ],
)
def test_lines_that_moved_are_damage(
    datasets: Path, name: str, edit: Callable[[list[bytes]], list[bytes]], text: str
) -> None:
    edit_lines(datasets / name, edit)
    assert any(text in problem for problem in check_dataset(datasets / name).problems)
    with pytest.raises(DamagedDataset, match=r"index.jsonl, line \d+ is"):
        read_index(datasets / name)


def test_a_complete_index_that_is_changed_at_its_end_is_damage(datasets: Path) -> None:
    directory = datasets / "npy"
    original = (directory / "index.jsonl").read_bytes()
    lines = original.splitlines(keepends=True)
    for changed in (original + lines[-1], original + lines[0], original + b"{", original[:-1] + b" "):
        (directory / "index.jsonl").write_bytes(changed)
        assert check_dataset(directory).problems
    (directory / "index.jsonl").write_bytes(b"".join(lines[:-2]))  # the card was written after these
    assert "index.jsonl has" in check_dataset(directory).problems[0]
    (directory / "index.jsonl").unlink()
    assert check_dataset(directory).problems


def test_missing_shortened_and_foreign_files_are_named(datasets: Path) -> None:
    directory = datasets / "parquet"
    (directory / "shards" / "00001.parquet").unlink()
    with (directory / "shards" / "00002.parquet").open("rb+") as file:
        file.truncate(100)
    (directory / "shards" / "copy.parquet").write_bytes(b"")
    (directory / "letter.txt").write_text("dear")
    found = check_dataset(directory)
    assert not found.is_good
    problems = sorted(found.problems)
    assert problems[0].startswith("shards/00001.parquet is missing: restore it from a copy, or collect the dataset")
    assert problems[1].startswith("shards/00002.parquet has 100 bytes instead of ")
    assert problems[2].startswith("shards/copy.parquet is no part of the dataset")
    assert found.notes == ["letter.txt is no part of the dataset, and was not checked"]


def test_an_incomplete_dataset_is_good(datasets: Path) -> None:
    directory = datasets / "incomplete"
    found = check_dataset(directory)
    assert (found.problems, found.notes, found.is_complete) == ([], [], False)
    assert 0 < found.rows < found.all_rows == 120
    with (directory / "index.jsonl").open("ab") as file:
        file.write(b'{"kind": "shard", "sh')
    shutil.copy(directory / "shards" / "00000.parquet", directory / "shards" / "00099.parquet")
    (directory / "shards" / "00100.parquet.tmp").write_bytes(b"half")
    (directory / "policy_00099.state").write_bytes(b"1")
    found = check_dataset(directory)
    assert found.problems == []
    assert found.notes == [
        "index.jsonl ends with half a line, written when the run was stopped",
        "3 files that a stopped run has begun; --resume replaces them",
    ]
    next(directory.glob("policy_0000*.state")).unlink()
    assert "state is missing" in check_dataset(directory).problems[0]


def test_parts_are_checked_with_the_whole(datasets: Path) -> None:
    directory = datasets / "parts"
    found = check_dataset(directory)
    assert (found.problems, found.is_complete, found.rows, found.all_rows) == ([], True, 240, 240)
    for name in ("dataset.json", "index.jsonl"):  # of a dataset that is good, but another
        shutil.copy(datasets / "parquet" / name, directory / "parts" / "001" / name)
    assert any("001/dataset.json is of another dataset" in problem for problem in check_dataset(directory).problems)
    shutil.rmtree(directory / "parts" / "001")
    assert check_dataset(directory).problems == [
        "the lanes from 4 are in parts/001, which is missing: restore it from a copy, or collect the dataset again"
    ]


def test_a_directory_without_a_dataset_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(DatasetError, match=r"has no dataset.json: expected the directory of a dataset"):
            check_dataset(path)


def test_a_collection_under_way_is_not_called_damaged(tmp_path: Path) -> None:
    def look(step: Step) -> None:
        if step.number == 20:
            with pytest.raises(DatasetError, match="a collector works on"):
                check_dataset(tmp_path / "d")

    Collector(tmp_path / "d", "catch", lanes=2, steps=60, width=8, height=8, on_step=look).run()
    assert check_dataset(tmp_path / "d").is_complete


def test_files_that_cannot_be_read_are_named(datasets: Path) -> None:
    path = datasets / "npy" / "README.md"
    path.unlink()
    path.mkdir()  # nobody can read this, not even root
    assert any(one.startswith("README.md cannot be read") for one in check_dataset(datasets / "npy").problems)
    assert os.listdir(path) == []


def test_progress_is_told(originals: Path) -> None:
    told: list[float] = []
    found = check_dataset(originals / "npy", lambda fraction, _: told.append(fraction))
    assert len(told) == found.files
    assert told == sorted(told)
    assert told[-1] == 1.0
