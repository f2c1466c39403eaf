"""The check of a dataset: every byte that belongs to it is compared with the checksums that were written with it.

dataset.json has a checksum of its own, and so has each line of the index. The index has those of the shards, of the
policy's state and, once the dataset is complete, of all other files. A collection that was stopped leaves files that no
line of the index names; they are not part of the dataset, and the next `--resume` removes them.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from worldloom.data.collection import STATE_FILES
from worldloom.data.errors import DamagedDataset, DatasetError
from worldloom.data.files import TEMPORARY_SUFFIX, StoredFile, checksum_of_file, is_locked
from worldloom.data.index import Index, parse_index
from worldloom.data.layout import (
    CARD_FILE,
    DESCRIPTION_FILE,
    FILM_FILE,
    INDEX_FILE,
    PARTS_DIRECTORY,
    SHARDS_DIRECTORY,
    SHEET_FILE,
    Description,
    PartPlace,
)

_MAX_THREADS = 16
_OF_ONE_MACHINE = ("renderer", "versions")
"""Fields in which descriptions of parts may differ."""
_TO_RESTORE = "restore it from a copy, or collect the dataset again"


@dataclass
class Check:
    """Result of the check of a dataset."""

    problems: list[str] = field(default_factory=list)
    """Sentences about damage: what is damaged, and what to do. Empty if there is none."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what is no damage: leftovers of runs that were stopped, files of others, parts elsewhere."""
    files: int = 0
    """Files whose checksums were compared."""
    size_bytes: int = 0
    """Size of these files."""
    rows: int = 0
    """Rows in complete shards."""
    all_rows: int = 0
    """Rows that the dataset has when it is complete; 0 if that cannot be read."""
    is_complete: bool = False
    """True if the collection has ended."""

    @property
    def is_good(self) -> bool:
        """True if nothing is damaged. The dataset may still be incomplete."""
        return not self.problems


def require_good(directory: "str | os.PathLike[str]") -> None:
    """Raise DamagedDataset if a file of a dataset is not as it was written."""
    problems = check_dataset(directory).problems
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise DamagedDataset(f"{directory} is damaged: {problems[0]}{more}; `worldloom data check` lists all")


def check_dataset(
    directory: "str | os.PathLike[str]", on_progress: Callable[[float, int], object] | None = None
) -> Check:
    """Compare all files of a dataset with their checksums, in several threads.

    `on_progress` is called with the fraction of the bytes that were read, and their number. DatasetError if there is no
    dataset in the directory, or if a collector is at work on it.
    """
    path = Path(directory)
    if not (path / DESCRIPTION_FILE).exists() and not (path / INDEX_FILE).exists():
        raise DatasetError(f"{path} has no {DESCRIPTION_FILE}: expected the directory of a dataset")
    survey = _Survey()
    found = survey.found
    found.rows, found.is_complete = survey.survey(path, "", None)
    total = max(1, sum(file.size_bytes for _, _, file in survey.files))
    with ThreadPoolExecutor(min(_MAX_THREADS, len(os.sched_getaffinity(0)) * 2)) as pool:
        for size, problem in pool.map(_compare, survey.files):
            found.files += 1
            found.size_bytes += size
            if problem:
                found.problems.append(problem)
            if on_progress is not None:
                on_progress(found.size_bytes / total, found.size_bytes)
    return found


class _Listed(NamedTuple):
    """A file to compare: its name in messages, its path, and its entry in the index."""

    title: str
    path: Path
    file: StoredFile


def _compare(listed: _Listed) -> tuple[int, str]:
    """Return the size that a file should have, and what is wrong with it, if something is."""
    title, path, file = listed
    problem = ""
    try:
        size, checksum = checksum_of_file(path)
        if size != file.size_bytes:
            problem = f"{title} has {size:,} bytes instead of {file.size_bytes:,}: {_TO_RESTORE}"
        elif checksum != file.checksum:
            problem = f"{title} is damaged, its checksum differs: {_TO_RESTORE}"
    except FileNotFoundError:
        problem = f"{title} is missing: {_TO_RESTORE}"
    except OSError as error:
        problem = f"{title} cannot be read ({error.strerror}): expected a file that can be"
    return file.size_bytes, problem


class _Survey:
    """Files of a dataset and its parts, with their expected checksums, found before they are compared."""

    def __init__(self) -> None:
        self.found = Check()
        self.files: list[_Listed] = []

    def survey(self, path: Path, prefix: str, expected: Description | None) -> tuple[int, bool]:
        """Check what is in a directory but the content of files; return its complete rows, and True if that is all.

        Names in messages begin with `prefix`. `expected` is the description that a part has to have.
        """
        if is_locked(path):
            raise DatasetError(f"a collector works on {path}: expected it to end first, as files change meanwhile")
        description = self._read_description(path, prefix, expected)
        index, is_sound = self._read_index(path, prefix)
        names = self._list_files(path, prefix, description, index)
        if is_sound:
            self._check_counts(path, prefix, description, index)
            self._find_others(path, prefix, names, description, index)
        if description is None:
            return index.rows, index.end is not None
        if expected is None:
            self.found.all_rows = description.rows
        rows = [self._survey_part(path, prefix, description, place) for place in description.parts]
        return sum(rows) + index.rows, index.end is not None

    def _survey_part(self, path: Path, prefix: str, whole: Description, place: PartPlace) -> int:
        directory = path / place.path
        if directory.exists():
            return self.survey(directory, f"{prefix}{place.path}/", whole.part(place))[0]
        where = f"the lanes from {place.first_lane} are in {place.path}"
        if place.node:
            self.found.notes.append(f"{where} on {place.node}: check them there")
        else:
            self.found.problems.append(f"{where}, which is missing: {_TO_RESTORE}")
        return 0

    def _read_description(self, path: Path, prefix: str, expected: Description | None) -> Description | None:
        title, problems = prefix + DESCRIPTION_FILE, self.found.problems
        try:
            description = Description.from_json((path / DESCRIPTION_FILE).read_bytes(), Path(title))
        except FileNotFoundError:
            problems.append(f"{title} is missing: {_TO_RESTORE}")
            return None
        except OSError as error:
            problems.append(f"{title} cannot be read ({error.strerror}): expected a file that can be")
            return None
        except DatasetError as error:
            problems.append(str(error))
            return None
        if expected is not None:
            own = {name: getattr(description, name) for name in _OF_ONE_MACHINE}
            if replace(expected, **own).to_json() != description.to_json():
                problems.append(f"{title} is of another dataset than this part: {_TO_RESTORE}")
        return description

    def _read_index(self, path: Path, prefix: str) -> tuple[Index, bool]:
        """Return the entries of the index that can be read, and True if these are all."""
        title = prefix + INDEX_FILE
        try:
            data = (path / INDEX_FILE).read_bytes() if (path / INDEX_FILE).exists() else b""
        except OSError as error:
            self.found.problems.append(f"{title} cannot be read ({error.strerror}): expected a file that can be")
            return Index(), False
        index, problems = parse_index(data)
        if len(data) > index.valid_bytes and not problems:
            if index.end is None:
                self.found.notes.append(f"{title} ends with half a line, written when the run was stopped")
            else:
                problems.append("has more after the line that ends it")
        self.found.problems += [f"{title}, {problem}: {_TO_RESTORE}" for problem in problems]
        return index, not problems

    def _list_files(self, path: Path, prefix: str, description: Description | None, index: Index) -> set[str]:
        """List the files to compare that the index names; return their names."""
        files = [file for entry in index.shards for file in entry.files]
        states = [entry.policy_state for entry in index.shards if entry.policy_state is not None]
        goes_on = description is not None and len(index.shards) < description.shards
        for state in states:
            is_needed = goes_on and index.end is None and state is index.shards[-1].policy_state
            if is_needed or (path / state.name).exists():
                files.append(state)
        files += index.end.files if index.end is not None else []
        self.files += [_Listed(prefix + file.name, path / file.name, file) for file in files]
        return {file.name for file in files}

    def _check_counts(self, path: Path, prefix: str, description: Description | None, index: Index) -> None:
        """Compare the numbers of the index with those of the description."""
        if description is None:
            return
        title, problems = prefix + INDEX_FILE, self.found.problems
        for entry in index.shards:
            rows = description.steps_in(entry.shard) * description.lanes
            if entry.rows != rows:
                problems.append(f"{title}: shard {entry.shard} has {entry.rows} rows instead of {rows}: {_TO_RESTORE}")
        shards = 0 if description.parts else description.shards
        is_after_drawing = index.end is not None or (path / CARD_FILE).exists()
        if is_after_drawing and len(index.shards) != shards:
            problems.append(f"{title} has {len(index.shards)} of {shards} shards: {_TO_RESTORE}")
        elif index.end is not None and index.end.rows != description.rows:
            problems.append(f"{title} ends with {index.end.rows} rows instead of {description.rows}: {_TO_RESTORE}")

    def _find_others(
        self, path: Path, prefix: str, names: set[str], description: Description | None, index: Index
    ) -> None:
        """Find files that the index does not name: leftovers of a run that was stopped, or files of others."""
        known = names | {DESCRIPTION_FILE, INDEX_FILE}
        if description is not None and description.parts:
            known |= {PARTS_DIRECTORY}
        directories = {str(parent) for name in known for parent in Path(name).parents} | {SHARDS_DIRECTORY}
        leftovers = 0
        pending = [path]
        while pending:
            for one in sorted(pending.pop().iterdir()):
                name = one.relative_to(path).as_posix()
                if name in known:
                    continue
                if name in directories and one.is_dir():
                    pending.append(one)
                elif index.end is None and _is_leftover(name, len(index.shards)):
                    leftovers += 1
                elif name.startswith(f"{SHARDS_DIRECTORY}/"):
                    self.found.problems.append(
                        f"{prefix}{name} is no part of the dataset, but programs may read it as one: remove it"
                    )
                else:
                    self.found.notes.append(f"{prefix}{name} is no part of the dataset, and was not checked")
        if leftovers:
            self.found.notes.append(f"{leftovers} files that a stopped run has begun; --resume replaces them")


def _is_leftover(name: str, shards: int) -> bool:
    """Return True for what a run that was stopped may have written beyond its index with so many shards."""
    path = Path(name)
    if name in (CARD_FILE, SHEET_FILE, FILM_FILE) or path.suffix == TEMPORARY_SUFFIX or path.match(STATE_FILES):
        return True
    stem = path.name.removesuffix(".parquet")
    return str(path.parent) == SHARDS_DIRECTORY and stem.isdecimal() and int(stem) >= shards
