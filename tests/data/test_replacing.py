"""Directories that take the place of others: what is not replaced stays, whenever the process ends."""

import json
from pathlib import Path

import pytest

from worldloom.data import layout
from worldloom.data.errors import DatasetError
from worldloom.data.files import StoredFile, checksum_of_file
from worldloom.data.index import EndEntry, append_entry
from worldloom.data.replacing import MARKER_FILE, put_in_place, read_marker, remove_marker

OWN = {
    "dataset": [
        *(layout.DESCRIPTION_FILE, layout.INDEX_FILE, layout.CARD_FILE, layout.SHEET_FILE, layout.FILM_FILE),
        *("policy_00003.state", "README.md.tmp", "shards/00000.parquet", "shards/00001.parquet.tmp"),
        *("shards/00002/rows.npy", "shards/00002/side.rgb.npy", "shards/00003.tmp/rows.npy"),
        *("parts/000/dataset.json", "parts/000/index.jsonl", "parts/000/shards/00000.parquet"),
    ],
    "png": ["frames.json", "000000.png", "1000000.png", "side.rgb/000000.png", "top.depth/000001.png"],
}
OTHERS = {
    "dataset": [
        *("notes.txt", "README", "frames/000000.png", "frames/frames.json", "shards/notes.txt", "parts/001/mine"),
        *("readme.md", "shards/old/00000.parquet", "side.rgb/000000.png", ".git/config", "x.parquet", "a.tmp"),
    ],
    "png": [
        "notes.txt",
        "dataset.json",
        "cover.png",
        "other.rgb/frames.json",
        "other.rgb/000000.png",
        "raw/000000.png",
    ],
}


def make_files(folder: Path, names: list[str], content: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def write_index(folder: Path) -> None:
    """Write an index that ends with the files that show a dataset to people, as they are."""
    files = [
        StoredFile(name, *checksum_of_file(folder / name))
        for name in (layout.CARD_FILE, layout.SHEET_FILE, layout.FILM_FILE)
        if (folder / name).exists()
    ]
    (folder / layout.INDEX_FILE).unlink()
    append_entry(folder, EndEntry(rows=0, episodes=0, return_sum=0.0, length_sum=0, files=files))


def read_files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["dataset", "png"])
def test_what_is_not_of_the_layout_stays(tmp_path: Path, kind: str) -> None:
    out, new = tmp_path / "out", tmp_path / "out.partial"
    make_files(out, OWN[kind] + OTHERS[kind], "old")
    if kind == "dataset":
        write_index(out)
    (out / "link").symlink_to(tmp_path)
    make_files(new, OWN[kind][:3], "new")
    put_in_place(out, {"as": kind})
    assert read_marker(out) == {"as": kind}
    remove_marker(out)
    assert read_files(out) == dict.fromkeys(OWN[kind][:3], "new") | dict.fromkeys(OTHERS[kind], "old")
    assert (out / "link").readlink() == tmp_path
    assert not new.exists()


def test_a_file_that_was_made_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    make_files(tmp_path / "out", ["notes.txt", "README.md"], "old")
    make_files(tmp_path / "out.partial", ["notes.txt", "README.md"], "new")
    put_in_place(tmp_path / "out", {"as": "dataset"})
    remove_marker(tmp_path / "out")
    assert read_files(tmp_path / "out") == {"notes.txt": "new", "notes.txt~": "old", "README.md": "new"}


def test_a_new_place_and_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new"):
        make_files(tmp_path / f"{name}.partial", ["README.md"], "new")
        put_in_place(tmp_path / name, {"as": "dataset"})
        assert read_files(tmp_path / name) == {"README.md": "new", MARKER_FILE: json.dumps({"as": "dataset"})}


@pytest.mark.parametrize("content", ["", "null", "[]", "{}", '{"as": "film"}', '{"as": []}'])
def test_a_damaged_marker_removes_nothing(tmp_path: Path, content: str) -> None:
    make_files(tmp_path, [MARKER_FILE], content)
    with pytest.raises(DatasetError, match="is damaged: expected what worldloom wrote"):
        read_marker(tmp_path)
    assert (tmp_path / MARKER_FILE).exists()
