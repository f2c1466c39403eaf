"""`worldloom render`: states of a MuJoCo model in a file or a dataset become a film, PNG files, an array or columns."""

import argparse
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from worldloom.client import ClientError, MujocoRenderer
from worldloom.client.model_files import collect_model
from worldloom.client.model_sources import load_model, parse_task
from worldloom.data.console import (
    StopSignals,
    add_server_arguments,
    find_server,
    format_bytes,
    format_seconds,
    parse_size,
)
from worldloom.data.frame_files import FILM_SUFFIXES, FilmFrames, Form, FrameWriter, NpyFrames, PngFrames
from worldloom.data.render_job import (
    Journal,
    RenderProgress,
    Stopped,
    draw_states,
    finish_earlier,
    frame_forms,
    open_journal,
    part_size,
)
from worldloom.data.replacing import PARTIAL_SUFFIX, partial_path
from worldloom.data.state_files import DatasetStates, StateFile, StepOrderedStates, open_states
from worldloom.kernels.outputs import STATE_OUTPUT_NAMES
from worldloom.server.cli import EXIT_INTERRUPTED, EXIT_OK
from worldloom.terminal import show_progress

_KINDS = ("film", "png", "npy", "dataset")
_OTHER_SUFFIXES = (".avi", ".h5", ".hdf5", ".jpeg", ".jpg", ".mkv", ".mov", ".mp4", ".npz", ".parquet", ".png", ".webm")
"""Suffixes of files that people expect, and that are not written."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `worldloom render`."""
    parser.add_argument(
        "--model",
        required=True,
        metavar="FILE",
        help="the .xml file of a MuJoCo model, or a task of dm_control, such as walker/walk",
    )
    parser.add_argument(
        "--states",
        type=Path,
        required=True,
        metavar="FILE",
        help="a .npz or Parquet file with qpos and, if needed, act, mocap_pos, mocap_quat and geom_rgba, a row for "
        "each state; a .npy file of qpos; or the directory of a dataset",
    )
    parser.add_argument("--qpos", default="qpos", metavar="NAME", help="name of joint positions in that file")
    parser.add_argument("--range", metavar="A:B", help="draw states A to before B only, counted from 0")
    parser.add_argument("--camera", metavar="NAMES", help="cameras, with commas between (default: the model's first)")
    parser.add_argument(
        "--output", default="rgb", metavar="NAMES", help=f"{', '.join(STATE_OUTPUT_NAMES)}, with commas between"
    )
    parser.add_argument(
        "--size", type=parse_size, default="64", metavar="PIXELS", help="size of frames, such as 84 or 160x120"
    )
    parser.add_argument("--samples", type=int, choices=(1, 4), default=1, help="samples per pixel")
    parser.add_argument("--shadows", action="store_true", help="draw the shadows of lights")
    files = parser.add_argument_group("files")
    files.add_argument(
        "-o",
        "--out",
        type=Path,
        required=True,
        metavar="PATH",
        help="a film (.gif, .webp), an array (.npy), or a directory of PNG files or of a dataset",
    )
    files.add_argument(
        "--as",
        dest="kind",
        choices=_KINDS,
        help="kind of output; dataset: the dataset of the states with columns of frames, also in its own place "
        "(default: by the name, PNG files for a directory)",
    )
    files.add_argument("--fps", type=float, default=25.0, metavar="N", help="frames a second of a film")
    files.add_argument(
        "--pictures", metavar="KIND", help="frames in a dataset, as for `worldloom collect` (default: as its own)"
    )
    files.add_argument(
        "--overwrite", action="store_true", help="replace output that exists, and draw columns of frames anew"
    )
    add_server_arguments(parser.add_argument_group("where it is drawn; in this process by default"))


def run(args: argparse.Namespace) -> int:
    """Draw states, and say where the frames are; return the exit code. What was stopped goes on by the same command."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else clients log that their server has ended
    signals, given = StopSignals(), args.out
    try:
        progress, paths = _draw(args, signals)
    except (KeyboardInterrupt, Stopped) as stopped:
        start = "\n" if sys.stderr.isatty() else ""  # after the ^C that a terminal shows
        print(f"{start}{str(stopped) or 'stopped; the same command goes on'}", file=sys.stderr)
        return EXIT_INTERRUPTED if signals.number is None else 128 + signals.number
    except ClientError as error:
        raise RuntimeError(str(error)) from error
    finally:
        signals.restore()
    drawn = progress.done - progress.first_done
    rate = f" at {progress.states_per_s:,.0f} states/s" if drawn else ""
    for path in paths:
        print(f"{path}: {progress.count:,} states{rate}, {format_bytes(_size(path))}")
    if given.is_dir() and not given.samefile(args.out):  # the current directory, which others still stand in
        print(f"{args.out} has replaced the current directory: `cd {shlex.quote(str(args.out))}` goes into the new one")
    return EXIT_OK


def _draw(args: argparse.Namespace, signals: StopSignals) -> tuple[RenderProgress, list[Path]]:
    args.out = _find_place(args.out)
    kind = _find_kind(args)
    if not 0.1 <= args.fps <= 1000:
        raise ValueError(f"--fps is {args.fps:g}: expected a number from 0.1 to 1000")
    earlier = finish_earlier(args.out)
    states = open_states(args.states, args.qpos)
    if kind == "dataset":
        if not isinstance(states, DatasetStates):
            raise ValueError(f"--as dataset, and {args.states} is a file: expected the states of a dataset")
        if args.range is not None:
            raise ValueError("--as dataset with --range: expected one of them; a dataset has frames in all rows")
    elif args.pictures is not None:
        raise ValueError("--pictures: expected --as dataset with it")
    span = _parse_range(args.range, states.count)
    address, client_arguments = find_server(args)
    arguments = _identify(args, kind, states, span)
    if earlier is not None and _is_same_run(earlier, arguments, kind == "dataset" and args.out.samefile(args.states)):
        return RenderProgress(len(span), len(span), len(span), 0.0), [args.out]
    with (
        open_journal(args.out, arguments, args.overwrite) as journal,
        show_progress(f"drawing {args.out}") as update,
        closing(_open_renderer(args, address, client_arguments)) as renderer,
    ):
        states.check(renderer.shapes)
        forms = frame_forms(renderer, states)
        writer = _make_writer(args, kind, states, span, forms)
        _refuse_existing(args, writer, journal, len(span))
        if kind == "dataset":
            assert isinstance(states, DatasetStates)
            states = StepOrderedStates(states)
        size = part_size(sum(form.size_bytes for form in forms.values()))
        return draw_states(
            renderer,
            states,
            span,
            size,
            writer,
            journal,
            lambda now: update(now.done / max(1, now.count), _describe(now, kind)),
            signals.poll,
        )


def _find_place(out: Path) -> Path:
    """Return the path of an output, which ends with a name of its own; ValueError if it cannot be one."""
    try:
        if out.name in ("", "..") or out.is_symlink():  # which may be a directory that is to be replaced
            out = out.resolve()
    except FileNotFoundError:
        raise ValueError(f"--out is {out}, which was removed: expected a path; `cd` to a directory first") from None
    if not out.name:
        raise ValueError(f"--out is {out}: expected a file or directory in it, as outputs are renamed when complete")
    whole = out.with_name(out.name.removesuffix(PARTIAL_SUFFIX))
    if whole != out and out.with_name(f"{out.name}.jsonl").exists():
        raise ValueError(f"--out is {out}, which a run that was stopped has left: expected {whole}, to go on with it")
    return out


def _find_kind(args: argparse.Namespace) -> str:
    """Return the kind of output, by option or name; ValueError if they do not fit."""
    if args.out.exists() and args.states.is_file() and args.out.samefile(args.states):
        raise ValueError(f"--out is {args.out}, the file of the states: expected another file")
    suffix = args.out.suffix.lower()
    by_name = "film" if suffix in FILM_SUFFIXES else "npy" if suffix == ".npy" else None
    if args.kind is not None:
        if args.kind in ("film", "npy") and by_name != args.kind:
            expected = " or ".join(FILM_SUFFIXES) if args.kind == "film" else ".npy"
            raise ValueError(f"--as {args.kind}, and {args.out} ends with {suffix!r}: expected {expected}")
        return str(args.kind)
    if by_name is None and suffix in _OTHER_SUFFIXES:
        raise ValueError(
            f"{args.out} ends with {suffix!r}: expected a film (.gif, .webp), an array (.npy), or a directory, which "
            "gets PNG files"
        )
    if by_name is None and args.out.exists() and args.states.is_dir() and args.out.samefile(args.states):
        return "dataset"
    return by_name or "png"


def _parse_range(text: str | None, count: int) -> range:
    if text is None:
        return range(count)
    match = re.fullmatch(r"(\d*):(\d*)", text)
    if match is None:
        raise ValueError(f"--range is {text!r}: expected A:B, such as 0:1000, 500: or :500")
    begin, end = int(match[1] or 0), int(match[2] or count)
    if not begin < end <= count:
        raise ValueError(f"--range is {text!r}, and there are {count:,} states: expected A < B <= {count}")
    return range(begin, end)


def _names(text: str | None, option: str) -> list[str] | None:
    if text is None:
        return None
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError(f"--{option} is {text!r}: expected names, with commas between")
    return names


def _identify(args: argparse.Namespace, kind: str, states: StateFile, span: range) -> dict[str, Any]:
    """Return everything that the frames depend on, by which a run knows that it goes on with its own output."""
    return {
        "states": [str(args.states.resolve()), *states.identity],
        "qpos": args.qpos,
        "range": [span.start, span.stop],
        "model": [args.model, *([_hash_model(args)] if Path(args.model).is_file() else [])],
        "camera": _names(args.camera, "camera"),
        "output": _names(args.output, "output"),
        "size": list(args.size),
        "samples": args.samples,
        **({"shadows": True} if args.shadows else {}),  # as journals without it are of runs without shadows
        "as": kind,
        "fps": args.fps if kind == "film" else None,
        "pictures": args.pictures,
    }


def _hash_model(args: argparse.Namespace) -> str:
    """Return a checksum of the file of a model and of all files that it refers to, wherever they are."""
    try:
        xml, files = collect_model(args.model)
        return hashlib.sha256(hashlib.sha256(xml.encode()).digest() + files).hexdigest()
    except (ValueError, OSError):
        if args.server is not None:
            raise  # no server could draw it
        return _hash_compiled(args.model)


def _hash_compiled(path: str) -> str:
    """Return a checksum of the compiled model of a file."""
    import mujoco  # of an extra, and without need where a server draws

    model = load_model(path)
    memory = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, memory)
    return hashlib.sha256(memory.data).hexdigest()


def _is_same_run(earlier: Mapping[str, Any], arguments: Mapping[str, Any], is_in_place: bool) -> bool:
    """Return True if arguments are those of an earlier run, which may have replaced the dataset of the states."""
    some = slice(0, 1) if is_in_place else slice(None)
    one, other = ({**run, "states": run["states"][some]} for run in (earlier, json.loads(json.dumps(arguments))))
    return one == other


def _open_renderer(args: argparse.Namespace, address: str, client_arguments: Mapping[str, Any]) -> MujocoRenderer:
    if parse_task(args.model) is None and address == "local" and not Path(args.model).is_file():
        raise ValueError(
            f"--model: {args.model} does not exist: expected the .xml file of a model, or a task of dm_control, such "
            "as walker/walk"
        )
    width, height = args.size
    return MujocoRenderer(
        address,
        model=args.model,
        width=width,
        height=height,
        samples=args.samples,
        shadows=args.shadows,
        cameras=_names(args.camera, "camera"),
        outputs=_names(args.output, "output") or (),
        **client_arguments,
    )


def _make_writer(
    args: argparse.Namespace, kind: str, states: StateFile, span: range, forms: Mapping[str, Form]
) -> FrameWriter:
    if kind == "film":
        return FilmFrames(args.out, forms, len(span), args.fps)
    if kind == "npy":
        return NpyFrames(args.out, forms, len(span))
    if kind == "dataset":
        from worldloom.data.dataset_frames import DatasetFrames  # needs libraries of an extra

        assert isinstance(states, DatasetStates)
        command = _make_command(args, states, forms)
        return DatasetFrames(args.out, states.whole, forms, args.pictures, command, args.overwrite)
    about = {
        "states": args.states.name,
        "model": args.model,
        "first_state": span.start,
        "count": len(span),
        "frames": {name: {"shape": form.shape, "dtype": form.dtype} for name, form in forms.items()},
        "depth": "millimetres, at most 65535",
    }
    return PngFrames(args.out, list(forms), span.start, len(span), about)


def _make_command(args: argparse.Namespace, states: DatasetStates, forms: Mapping[str, Form]) -> str:
    """Return the command that draws the frames of a dataset again, once that is collected again."""
    place = states.whole.description.family
    words = ["worldloom", "render", "--model", args.model, "--states", place, "-o", place]
    words += ["--qpos", args.qpos] if args.qpos != "qpos" else []
    words += ["--camera", ",".join(dict.fromkeys(name.rpartition(".")[0] for name in forms))]
    words += ["--output", ",".join(dict.fromkeys(name.rpartition(".")[2] for name in forms))]
    words += ["--size", "x".join(map(str, args.size))]
    words += ["--samples", str(args.samples)] if args.samples != 1 else []
    words += ["--shadows"] if args.shadows else []
    words += ["--pictures", args.pictures] if args.pictures else []
    return shlex.join(words)


def _refuse_existing(args: argparse.Namespace, writer: FrameWriter, journal: Journal, count: int) -> None:
    """Raise ValueError if there is output already, unless it may be lost or is what this run has to finish."""
    existing = writer.find_existing()
    # Complete files without partial ones beside them were put into their places by a run that was killed then.
    existing = [path for path in existing if journal.done < count or partial_path(path).exists()]
    if existing and not args.overwrite:
        raise ValueError(f"{existing[0]} exists: expected a new path; --overwrite replaces it")


def _describe(progress: RenderProgress, kind: str) -> str:
    if kind == "film" and progress.done == progress.count:
        return f"{progress.count:,} states are drawn, the film is encoded"
    left = "" if progress.left_s == float("inf") else f", {format_seconds(progress.left_s)} left"
    return f"{progress.done:,} of {progress.count:,} states, {progress.states_per_s:,.0f} states/s{left}"


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
