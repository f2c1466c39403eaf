"""The layout of a dataset: its columns, its shards, and the file that describes them.

    DIRECTORY/
        dataset.json        this description; written first, and changed only if a part moves to another node
        index.jsonl         a line for each complete shard, and a last one for the complete dataset (`data/index.py`)
        shards/             00000.parquet, …, or directories 00000, … of .npy files (`data/parquet_shards.py`, …)
        README.md           the card: contents, and how to make it again
        contact_sheet.png, film.gif
        parts/000, …        only if several collectors worked on it: each is such a directory, with lanes of its own

A dataset has a row for each observation: `steps` rows for each of `lanes` lanes. Shard k has the rows from step
`k * shard_steps` of all lanes. A row has the observation, the action that was chosen by it, and the action's outcome.
The last row of an episode has the observation that the episode ended with, and no action: its column `last` is true,
action and reward are 0. So is the last row of a lane, whose episode the end of the collection has cut.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from worldloom.data.errors import DamagedDataset, DatasetError
from worldloom.data.files import checksum_of

LAYOUT_VERSION = 1
DESCRIPTION_FILE, INDEX_FILE, SHARDS_DIRECTORY, PARTS_DIRECTORY = "dataset.json", "index.jsonl", "shards", "parts"
CARD_FILE, SHEET_FILE, FILM_FILE = "README.md", "contact_sheet.png", "film.gif"

Role: TypeAlias = Literal["key", "observation", "action", "outcome"]
Format: TypeAlias = Literal["parquet", "npy"]
Arrays: TypeAlias = dict[str, np.ndarray]

KEY_COLUMNS = {"episode": "int64", "lane": "int32", "step": "int32", "seed": "uint64"}
OUTCOME_COLUMNS = {"reward": "float64", "terminated": "bool", "truncated": "bool", "last": "bool"}
"""Columns that every dataset has, and their dtypes."""
GROUP_BYTES = 4 << 20
"""Size that row groups of Parquet files have about, before compression."""
PAGE_BYTES = 128 << 10
"""Size that pages of frames in Parquet files have at most, before compression, unless one frame is larger: the least
that has to be decompressed to read a frame."""
RAW = "raw"
IMAGE_ENCODINGS = ("png", "jpeg", "webp")
LOSSY = ("jpeg", "webp")


@dataclass(frozen=True)
class Column:
    """A column of a dataset. In memory all its values are of one dtype and shape."""

    name: str
    role: Role
    dtype: str
    shape: tuple[int, ...] = ()
    """Shape of the value of one row."""
    encoding: str = ""
    """Encoding of frames in files: `raw`, `png`, `jpeg` or `webp`. Empty for columns that are no frames."""
    low: Any = None
    """Least value: of all elements, or nested lists of the shape. None is that of the dtype."""
    high: Any = None
    """Greatest value, in the same form."""

    @property
    def is_frame(self) -> bool:
        """True for frames of a camera."""
        return bool(self.encoding)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row in memory."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def empty(self, *leading: int) -> np.ndarray:
        """Return an array [*leading, *shape] that is not initialized."""
        return np.empty((*leading, *self.shape), self.dtype)

    def zeros(self, *leading: int) -> np.ndarray:
        """Return an array of zeros [*leading, *shape]."""
        return np.zeros((*leading, *self.shape), self.dtype)


@dataclass(frozen=True)
class Pictures:
    """Encoding and compression of frames, as it is given to `--pictures`: `raw`, `zstd`, `zstd:3`, `png`, `jpeg:90`."""

    kind: str = "zstd"
    level: int | None = None
    """Level of zstd or PNG, quality of JPEG or WebP."""

    @classmethod
    def parse(cls, text: str) -> "Pictures":
        """Parse the text of the option; ValueError if it is none."""
        kind, colon, level = str(text).partition(":")
        if kind in _LEVELS:
            least, default, greatest = _LEVELS[kind]
            if not colon:
                return cls(kind, default)
            if least is not None and level.lstrip("-").isdigit() and least <= int(level) <= greatest:
                return cls(kind, int(level))
        expected = ", ".join(
            name if least is None else f"{name}[:{least}…{greatest}]" for name, (least, _, greatest) in _LEVELS.items()
        )
        raise ValueError(f"pictures are {text!r}: expected one of {expected}")

    def __str__(self) -> str:
        return self.kind if self.level is None else f"{self.kind}:{self.level}"

    @property
    def compression(self) -> tuple[str, int | None]:
        """The codec of Parquet columns that are not encoded as images, and its level."""
        if self.kind == RAW:
            return "NONE", None
        return "ZSTD", self.level if self.kind == "zstd" else 1

    def encoding_of(self, name: str, dtype: str) -> str:
        """Return the encoding of frames of this name: depth cannot be an image, and labels no lossy one."""
        is_possible = dtype == "uint8" and (self.kind == "png" or not name.endswith(".segmentation"))
        return self.kind if self.kind in IMAGE_ENCODINGS and is_possible else RAW


_LEVELS: Mapping[str, tuple[int | None, int | None, int]] = {
    RAW: (None, None, 0),
    "zstd": (-7, 1, 22),
    "png": (0, 1, 9),
    "jpeg": (1, 90, 100),
    "webp": (1, 80, 100),
}
"""Least level, default and greatest level of each kind of pictures."""


@dataclass(frozen=True)
class PartPlace:
    """Lanes that a collector of their own has collected, and the directory that they are in."""

    path: str
    """Directory, relative to that of the dataset, or absolute."""
    first_lane: int
    lanes: int
    node: str = ""
    """Name of the machine, if the directory is on that machine alone."""


@dataclass(frozen=True)
class Description:
    """Everything about a dataset but its rows: how it was made, and how it is laid out."""

    family: str
    settings: Mapping[str, Any]
    seed: int
    lanes: int
    first_lane: int
    """Number of the first of these lanes. 0 but for parts."""
    all_lanes: int
    """Lanes of the whole dataset: more than `lanes` for parts."""
    steps: int
    """Rows for each lane."""
    shard_steps: int
    format: Format
    pictures: str
    policy: str
    policy_hash: str
    """Hash of the file that the policy is in; empty for policies of worldloom and those given as objects."""
    arguments: Mapping[str, Any]
    """Further arguments of the env that change rows: width, height, samples, shadows, action_repeat."""
    renderer: str
    """Renderer that drew the frames, `cpu` or `gl`, and its device."""
    versions: Mapping[str, str]
    columns: Sequence[Column]
    parts: Sequence[PartPlace] = field(default=())
    steps_per_s: float = 20.0
    """Steps of a lane in a second of the world's time."""
    lossy_pictures: str = ""
    """Pictures that frames had in the dataset that this one was exported from, if these were lossy."""
    drawn: Mapping[str, str] = field(default_factory=dict)
    """Commands that have drawn columns of frames from states of the dataset, by name of the column."""

    @property
    def shards(self) -> int:
        """Number of shards when the dataset is complete."""
        return -(-self.steps // self.shard_steps)

    @property
    def rows(self) -> int:
        """Number of rows when the dataset is complete."""
        return self.steps * self.lanes

    @property
    def frames(self) -> Sequence[Column]:
        """Columns of frames."""
        return [column for column in self.columns if column.is_frame]

    def column(self, name: str) -> Column:
        """Return the column of a name; DatasetError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise DatasetError(f"no column {name!r}: expected some of {', '.join(one.name for one in self.columns)}")

    def of_role(self, role: Role) -> list[Column]:
        """Return the columns of a role, in their order."""
        return [column for column in self.columns if column.role == role]

    def steps_in(self, shard: int) -> int:
        """Return the steps of each lane that a shard has; the last may have fewer than others."""
        return min(self.shard_steps, self.steps - shard * self.shard_steps)

    def part(self, place: PartPlace) -> "Description":
        """Return the description of a part."""
        return replace(self, lanes=place.lanes, first_lane=place.first_lane, parts=())

    def to_json(self) -> bytes:
        """Return the content of dataset.json. Its last entry is the checksum of everything before."""
        content = {"worldloom_dataset": LAYOUT_VERSION, **_to_plain(self)}
        text = json.dumps(content, indent=2, ensure_ascii=False).encode().removesuffix(b"\n}")
        return text + b',\n  "checksum": "%s"\n}\n' % checksum_of(text).encode()

    @classmethod
    def from_json(cls, data: bytes, path: Path) -> "Description":
        """Parse the content of dataset.json, read from a path; DatasetError if it is not as it was written."""
        try:
            content = json.loads(data)
            version = content.pop("worldloom_dataset")
            if version != LAYOUT_VERSION:
                raise DatasetError(
                    f"{path} is of version {version}: expected {LAYOUT_VERSION}; read it with the version of worldloom "
                    f"that wrote it ({content.get('versions', {}).get('worldloom', 'unknown')})"
                )
            match = re.fullmatch(rb'(.*),\n  "checksum": "(\w+)"\n}\n', data, re.DOTALL)
            if match is None or checksum_of(match[1]).encode() != match[2]:
                raise ValueError("its checksum differs")
            del content["checksum"]
            columns = [Column(**{**one, "shape": tuple(one["shape"])}) for one in content.pop("columns")]
            parts = [PartPlace(**one) for one in content.pop("parts")]
            return cls(**content, columns=columns, parts=parts)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedDataset(f"{path} is damaged ({error}): expected what worldloom wrote; restore it") from None


def _to_plain(description: Description) -> dict[str, Any]:
    found = dict(vars(description))
    found["columns"] = [vars(column) | {"shape": list(column.shape)} for column in description.columns]
    found["parts"] = [dict(vars(place)) for place in description.parts]
    return found


def shard_name(shard: int) -> str:
    """Return the name of a shard's file, without its suffix, or of its directory."""
    return f"{shard:05d}"


def group_rows(columns: Sequence[Column]) -> int:
    """Return the number of rows that a row group of Parquet files has at most."""
    return max(1, GROUP_BYTES // sum(column.row_bytes for column in columns))


def group_shape(columns: Sequence[Column], lanes: int, steps: int) -> tuple[int, int]:
    """Return the lanes and steps of a row group of Parquet files: of one lane, or all steps of several."""
    rows = group_rows(columns)
    return (1, rows) if rows < steps else (min(lanes, max(1, rows // steps)), steps)
