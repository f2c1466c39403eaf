"""The index of a dataset, index.jsonl: a line for each complete shard, in order, and a last one for the whole.

A line is a JSON object, a tab and the checksum of that object. Lines are appended when what they name is on the disk,
and never changed. The end of the file may be half a line, if the run was killed or the disk was full: it is ignored,
and cut off when the collection is resumed. A line with its end that fails its checksum is damaged.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from worldloom.data.errors import DamagedDataset
from worldloom.data.files import StoredFile, checksum_of
from worldloom.data.layout import INDEX_FILE


@dataclass(frozen=True)
class ShardEntry:
    """A line of the index about one shard."""

    shard: int
    rows: int
    episodes: int
    """Episodes that ended in its rows, but for those that the end of the collection has cut."""
    return_sum: float
    """Sum of their returns."""
    length_sum: int
    """Sum of their lengths, in steps."""
    files: list[StoredFile]
    generator: Mapping[str, Any]
    """State of the generator of random numbers after its last row."""
    policy_state: StoredFile | None = None
    """File with the state of the policy after its last row; kept until there is a newer one."""


@dataclass(frozen=True)
class EndEntry:
    """The last line of the index of a complete dataset."""

    rows: int
    episodes: int
    return_sum: float
    length_sum: int
    files: list[StoredFile]
    """All files but the shards and the index."""


@dataclass
class Index:
    """The entries of an index."""

    shards: list[ShardEntry] = field(default_factory=list)
    end: EndEntry | None = None
    valid_bytes: int = 0
    """Size of the lines that are whole."""

    @property
    def rows(self) -> int:
        """Rows in complete shards."""
        return sum(entry.rows for entry in self.shards)

    @property
    def episodes(self) -> int:
        """Episodes that have ended in complete shards."""
        return sum(entry.episodes for entry in self.shards)

    @property
    def return_sum(self) -> float:
        """Sum of the returns of these episodes."""
        return sum((entry.return_sum for entry in self.shards), 0.0)

    @property
    def length_sum(self) -> int:
        """Sum of the lengths of these episodes."""
        return sum(entry.length_sum for entry in self.shards)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files of complete shards."""
        return sum(file.size_bytes for entry in self.shards for file in entry.files)


def read_index(directory: Path) -> Index:
    """Read the index of a dataset; empty if there is none yet. DamagedDataset if a line is not as it was written."""
    path = directory / INDEX_FILE
    found, problems = parse_index(path.read_bytes() if path.exists() else b"")
    if problems:
        raise DamagedDataset(f"{path}, {problems[0]}: expected what worldloom wrote; restore it")
    return found


def parse_index(data: bytes) -> tuple[Index, list[str]]:
    """Return the entries of an index that are as they were written, and what is wrong with the others.

    Half a line at the end is not wrong. Everything longer is: a line that was written whole had its end with it.
    """
    found, problems = Index(), []
    *lines, rest = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        problem = _parse_line(found, line)
        if problem:
            problems.append(f"line {number} {problem}")
        found.valid_bytes += len(line) + 1
    text, tab, checksum = rest.partition(b"\t")
    size = len(checksum_of(b""))
    if tab and len(checksum) > size and checksum_of(text).encode() == checksum[:size]:
        problems.append(f"line {len(lines) + 1} has no end")
    return found, problems


def _parse_line(found: Index, line: bytes) -> str:
    """Add the entry of a line to an index; return what is wrong with it, if something is."""
    text, _, checksum = line.rpartition(b"\t")
    if checksum_of(text).encode() != checksum:
        return "is damaged"
    if found.end is not None:
        return "is after the one that ends the index"
    try:
        content = json.loads(text)
        files = [StoredFile(*one) for one in content.pop("files")]
        if content.pop("kind") == "end":
            found.end = EndEntry(**content, files=files)
            return ""
        state = content.pop("policy_state")
        entry = ShardEntry(**content, files=files, policy_state=None if state is None else StoredFile(*state))
    except (ValueError, TypeError, KeyError) as error:
        return f"is of another version of worldloom ({error})"
    expected = found.shards[-1].shard + 1 if found.shards else 0
    found.shards.append(entry)
    return "" if entry.shard == expected else f"is about shard {entry.shard}, where shard {expected} was expected"


def append_entry(directory: Path, entry: ShardEntry | EndEntry) -> None:
    """Append a line to the index, and flush it to the disk."""
    content = {"kind": "end" if isinstance(entry, EndEntry) else "shard", **asdict(entry)}
    text = json.dumps(content, ensure_ascii=False).encode()
    descriptor = os.open(directory / INDEX_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        line = memoryview(text + b"\t" + checksum_of(text).encode() + b"\n")
        try:
            while len(line):
                line = line[os.write(descriptor, line) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def cut_index(directory: Path, index: Index) -> None:
    """Remove half a line from the end of the index."""
    path = directory / INDEX_FILE
    if path.exists() and path.stat().st_size > index.valid_bytes:
        with path.open("rb+") as file:
            file.truncate(index.valid_bytes)
            os.fsync(file.fileno())
