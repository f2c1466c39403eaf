"""The card of a dataset, README.md: its contents, how it was made, how to make it again, and how to read it.

It begins with a block of YAML, by which the Hugging Face Hub and `datasets` find the Parquet files. The text depends on
the description and the index alone: a dataset that is collected again has the same card, byte for byte.
"""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from worldloom.data.index import EndEntry
from worldloom.data.layout import FILM_FILE, PARTS_DIRECTORY, RAW, SHEET_FILE, Column, Description

_DEFAULT_SHARD_MB = 128
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"),
          (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**12, "n>1B"))  # fmt: skip
"""Categories of size of the Hugging Face Hub, by the number of rows that they end at."""
_COLUMN_TEXTS = {
    "episode": "number of the episode: lane + lanes of the dataset × number of the episode in its lane",
    "lane": "lane of the row",
    "step": "step of the row in its episode, from 0",
    "seed": "seed of the collection",
    "reward": "reward of the action",
    "terminated": "the action ended the episode",
    "truncated": "the action ended the episode by a limit of time",
    "last": "last row of an episode, or of the lane: its observation is final, and there is no action",
}
_ABOUT_ROWS = """A row has an observation, the action that was chosen by it, and the outcome of that action.
The last row of an episode has its final observation: `last` is true, action and reward are 0. The end of the collection
cuts the last episode of each lane: its last row has `last`, but no row before it is `terminated` or `truncated`.
"""


def make_card(description: Description, end: EndEntry, size_bytes: int, has_pictures: bool) -> bytes:
    """Return the content of README.md. `size_bytes` is the size of all shards."""
    sections = [
        _front_matter(description),
        _title(description, has_pictures),
        _contents(description, end, size_bytes),
        _columns(description),
        _origin(description),
        _readers(description),
    ]
    return ("\n".join(sections)).encode()


def make_command(description: Description) -> str | None:
    """Return the command that collects the dataset again, and a line for each that draws columns; None if none can."""
    if _is_part(description) or (":" in description.policy and not description.policy_hash):
        return None
    if description.drawn:
        collected = [column for column in description.columns if column.name not in description.drawn]
        first = make_command(replace(description, columns=collected, drawn={}))
        return "\n".join([first or "", *dict.fromkeys(description.drawn.values())])
    arguments = description.arguments
    words = ["worldloom", "collect", description.family]
    words += [f"{name}={_format_setting(value)}" for name, value in description.settings.items()]
    words += ["--lanes", str(description.lanes), "--steps", str(description.rows), "--seed", str(description.seed)]
    words += ["--policy", description.policy]
    words += ["--observations", ",".join(column.name for column in description.of_role("observation"))]
    words += ["--size", f"{arguments.get('width', 64)}x{arguments.get('height', 64)}"]
    for name in ("samples", "action_repeat"):
        if arguments.get(name, 1) != 1:
            words += [f"--{name.replace('_', '-')}", str(arguments[name])]
    words += ["--shadows"] if arguments.get("shadows", False) else []
    words += ["--format", description.format]
    words += ["--pictures", description.pictures] if description.format == "parquet" else []
    shard_mb = _find_shard_mb(description)
    words += [] if shard_mb == _DEFAULT_SHARD_MB else ["--shard-mb", f"{shard_mb!r}"]
    renderer = description.renderer.partition(":")[0]
    words += ["--fleet"] if description.parts else ["--renderer", renderer]
    return shlex.join([*words, "-o", description.family])


def _format_setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_part(description: Description) -> bool:
    return description.lanes != description.all_lanes


def _find_shard_mb(description: Description) -> float:
    """Return a size of shards that gives as many steps to each: the default, or the roundest number that does."""
    step_bytes = sum(column.row_bytes for column in description.columns) * description.lanes
    least, most = (count * step_bytes / 2**20 for count in (description.shard_steps, description.shard_steps + 1))
    if description.shard_steps == description.steps:
        most = math.inf
    if description.shard_steps == 1:
        least = 0.0  # a shard has at least one step, however large that is
    if least <= _DEFAULT_SHARD_MB < most:
        return _DEFAULT_SHARD_MB
    for digits in range(12):
        rounded: float = math.ceil(least * 10**digits) / 10**digits
        if rounded > 0 and least <= rounded < most:
            return rounded
    return most / 2 if least == 0 else least


def _front_matter(description: Description) -> str:
    rows = description.steps * description.all_lanes
    size = next(name for limit, name in _SIZES if rows < limit or limit == _SIZES[-1][0])
    lines = [
        "---",
        f"pretty_name: {json.dumps(f'{description.family} by worldloom')}",
        "tags:",
        "- reinforcement-learning",
        "- worldloom",
        "task_categories:",
        "- reinforcement-learning",
        "size_categories:",
        f"- {size}",
    ]
    if description.format == "parquet":
        lines += [
            "configs:",
            "- config_name: default",
            "  data_files:",
            "  - split: train",
            f"    path: {_pattern(description)}",
        ]
    return "\n".join([*lines, "---", ""])


def _pattern(description: Description) -> str:
    return f"{PARTS_DIRECTORY}/*/shards/*.parquet" if description.parts else "shards/*.parquet"


def _title(description: Description, has_pictures: bool) -> str:
    settings = ", ".join(f"{name} {_format_setting(value)}" for name, value in description.settings.items())
    about = f"`{description.family}`" + (f" ({settings})" if settings else "")
    lanes = f"{description.lanes:,} lanes" if description.lanes > 1 else "1 lane"
    text = f"# {description.family}\n\nSteps of worlds of the family {about} in {lanes}, collected with worldloom.\n"
    if _is_part(description):
        last = description.first_lane + description.lanes - 1
        text += f"\nThis is a part of a dataset: lanes {description.first_lane} to {last} of {description.all_lanes}.\n"
    if has_pictures:
        text += f"\n![Lanes, one a row, at times from the first to the last step]({SHEET_FILE})\n"
        text += f"\n![The first steps of some lanes]({FILM_FILE})\n"
    return text


def _contents(description: Description, end: EndEntry, size_bytes: int) -> str:
    mean = f"{end.return_sum / end.episodes:.6g}" if end.episodes else "none has ended"
    length = f"{end.length_sum / end.episodes:.6g} steps" if end.episodes else "none has ended"
    rows = [
        ("rows", f"{end.rows:,}: {description.steps:,} of each lane"),
        ("episodes that ended", f"{end.episodes:,}"),
        ("mean return of these", mean),
        ("mean length of these", length),
        ("size of the shards", f"{size_bytes:,} bytes, {size_bytes / max(1, end.rows):,.0f} a row"),
    ]
    return "\n".join(["## Contents", "", "| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows), ""])


def _columns(description: Description) -> str:
    lines = ["| column | dtype | shape | |", "|---|---|---|---|"]
    for column in description.columns:
        shape = " × ".join(map(str, column.shape))
        lines.append(f"| `{column.name}` | {column.dtype} | {shape} | {_column_text(column, description)} |")
    return "\n".join(["## Columns", "", *lines, "", _ABOUT_ROWS])


def _column_text(column: Column, description: Description) -> str:
    if column.name in _COLUMN_TEXTS and column.role in ("key", "outcome"):
        return _COLUMN_TEXTS[column.name]
    bounds = "" if column.low is None or column.high is None else f" from {column.low} to {column.high}"
    if not column.is_frame:
        return f"{column.role}{bounds}"
    if column.encoding != RAW:
        return f"frame, as {column.encoding.upper()} ({description.pictures})"
    kind = description.pictures if description.format == "parquet" and description.pictures.startswith("zstd") else ""
    return f"frame, bytes of its pixels{f', compressed with {kind}' if kind else ''}"


def _origin(description: Description) -> str:
    policy = f"`{description.policy}`"
    if description.policy_hash:
        policy += f", whose file has the XXH3 hash `{description.policy_hash}`"
    elif ":" in description.policy:
        policy += ", given as an object in Python"
    facts = [
        ("family", f"`{description.family}`"),
        *((f"setting `{name}`", f"`{_format_setting(value)}`") for name, value in description.settings.items()),
        *((name.replace("_", " "), f"`{_format_setting(value)}`") for name, value in description.arguments.items()),
        ("seed", f"`{description.seed}`"),
        ("policy", policy),
        ("renderer", description.renderer),
        ("steps of a lane in a second of the world's time", f"{description.steps_per_s:g}"),
        *((f"version of {name}", version) for name, version in description.versions.items()),
    ]
    if description.lossy_pictures:
        facts.append(
            ("frames were", f"`{description.lossy_pictures}` before this dataset was exported, which loses some")
        )
    if description.parts:
        facts.append(("collectors", f"{len(description.parts)}, each with lanes of its own"))
    return "\n".join(
        [
            "## How it was made",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {text} |" for name, text in facts),
            "",
            _again(description),
        ]
    )


def _again(description: Description) -> str:
    command = make_command(description)
    if command is not None:
        if description.drawn:
            return f"Make it again, with the same model in these files:\n\n```sh\n{command}\n```\n"
        same = "With the same versions, renderer and policy, every file is the same again."
        return f"Make it again:\n\n```sh\n{command}\n```\n\n{same}\n"
    if _is_part(description):
        return "Other parts have the other lanes. The dataset that they belong to tells how to make it again.\n"
    return "Make it again with `worldloom.data.Collector` and the same policy.\n"


def _readers(description: Description) -> str:
    where = description.family  # as the command above calls the directory
    code = [
        f'from worldloom.data import Dataset\n\ndataset = Dataset("{where}")\n'
        "for episode in dataset.episodes():\n"
        "    print(episode.number, episode.length, episode.rewards.sum())\n"
        "for batch in dataset.sequences(16).batches(4, seed=0):  # arrays [4, 16, ...] by column\n"
        '    print(batch["reward"].mean())\n'
    ]
    if description.format == "npy":
        part = f"{where}/{PARTS_DIRECTORY}/000" if description.parts else where
        code.append(_npy_code(f"{part}/shards/00000", description))
    else:
        code.append(_polars_code(f"{where}/{_pattern(description)}", description))
        code.append(
            f'import datasets\n\nrows = datasets.load_dataset("{where}", split="train", streaming=True)\n'
            'print(next(iter(rows))["reward"])\n'
        )
    return "\n".join(
        [
            "## How to read it",
            "",
            f"`{where}` is the directory that this file is in.",
            "",
            *(f"```python\n{one}```\n" for one in code),
        ]
    )


def _polars_code(pattern: str, description: Description) -> str:
    frames = next((column for column in description.frames if column.encoding == RAW), None)
    names: Sequence[str] = ["lane", "step", "reward", *([frames.name] if frames is not None else [])]
    lines = ["import numpy as np"] if frames is not None else []
    lines += [
        "import polars  # or pyarrow.dataset, or SQL with DuckDB",
        "",
        f'table = polars.scan_parquet("{pattern}")',
        f"rows = table.select({', '.join(json.dumps(name) for name in names)}).head(10).collect()",
    ]
    if frames is not None:
        shape = ", ".join(map(str, frames.shape))
        lines.append(f'frame = np.frombuffer(rows["{frames.name}"][0], np.{frames.dtype}).reshape({shape})')
    return "\n".join([*lines, "print(rows)", ""])


def _npy_code(shard: str, description: Description) -> str:
    lines = ["import numpy as np", "", f'rows = np.load("{shard}/rows.npy", mmap_mode="r")  # [steps, lanes]']
    lines += [f'frames = np.load("{shard}/{one.name}.npy", mmap_mode="r")' for one in description.frames[:1]]
    return "\n".join([*lines, 'print(rows["reward"].sum())', ""])
