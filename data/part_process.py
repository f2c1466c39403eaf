"""Program of a collector on a node of a fleet: collects one part from the server beside it.

    python -m worldloom.data.part_process PARENT_PID        with a job, as JSON, on its standard input

It writes JSON objects to its standard output, a line each: progress, warnings, and at the end the index of the part or
an error. Ray is not loaded here: gRPC and Ray in one process disturb each other. The system kills it when the thread
that started it ends, and SIGTERM stops it as Ctrl-C does: what is complete stays.

The job comes through a pipe since it has the fleet's token, which nobody is to read from a command line.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from google.rpc import code_pb2

from worldloom.client.connections import is_on_this_machine
from worldloom.client.errors import ClientError, LostConnection, ServerError
from worldloom.data.collector import Collector
from worldloom.data.errors import DatasetError, PolicyError
from worldloom.data.files import replace_file
from worldloom.data.layout import DESCRIPTION_FILE, INDEX_FILE, SHARDS_DIRECTORY
from worldloom.fleet.serve_process import die_with_parent
from worldloom.protos.addresses import parse_address

_EXIT_FAILURE = 1


@dataclass(frozen=True)
class PartJob:
    """The work of a collector: describe a dataset that is to be, or collect a part of one."""

    directory: str
    """Directory of the whole dataset."""
    address: str
    """Address of the server."""
    token: str
    certificate: str
    """PEM of the certificate that the server's is signed with."""
    part: str = ""
    """Directory of the part, relative to that of the whole; empty to describe."""
    whole_description: str = ""
    """Content of dataset.json of the whole, if that has to be in the directory since nodes share it."""
    part_description: str = ""
    """Content of dataset.json of the part."""
    arguments: dict[str, Any] | None = None
    """Arguments of Collector."""

    def __repr__(self) -> str:
        return f"PartJob({self.directory!r}, {self.part!r}, {self.address!r})"


def main(words: Sequence[str]) -> int:
    """Do the job that is on the standard input; return the exit code."""
    die_with_parent(int(words[0]))
    signal.signal(signal.SIGTERM, _stop)
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else the client logs that its server has ended
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a policy may print
    lock = threading.Lock()

    def tell(**content: Any) -> None:
        with lock:
            print(json.dumps(content), file=output, flush=True)

    def tell_warning(message: Warning | str, *_: object, **__: object) -> None:
        tell(kind="warning", text=str(message))

    warnings.showwarning = tell_warning
    job = PartJob(**json.load(sys.stdin))
    try:
        _run(job, tell)
    except (ClientError, DatasetError, OSError, ValueError, TypeError) as error:
        tell(kind="error", text=str(error), is_temporary=is_temporary(error), is_policy=isinstance(error, PolicyError))
        return _EXIT_FAILURE
    return 0


def _stop(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def is_temporary(error: BaseException | None) -> bool:
    """True if an error may not come again at another server, or later."""
    while error is not None:
        is_unavailable = isinstance(error, ServerError) and error.code == code_pb2.UNAVAILABLE
        if is_unavailable or isinstance(error, LostConnection | BlockingIOError):  # the last is a locked directory
            return True
        error = error.__cause__ or error.__context__
    return False


def _run(job: PartJob, tell: Callable[..., None]) -> None:
    if not is_on_this_machine(parse_address(job.address)):
        raise DatasetError(f"the server at {job.address} is not on this node: expected one whose address the node has")
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as certificate:
        certificate.write(job.certificate)
        certificate.flush()
        arguments = dict(job.arguments or {})
        arguments |= {"address": job.address, "env_arguments": {"token": job.token, "tls_ca": certificate.name}}
        if not job.part:
            tell(kind="description", text=Collector(job.directory, **arguments).describe().to_json().decode())
            return
        directory = _prepare(job)
        collector = Collector(
            directory,
            resume=True,
            on_progress=lambda now: tell(kind="progress", progress=asdict(now), transport=collector.transport),
            **arguments,
        )
        progress = collector.run()
    tell(kind="progress", progress=asdict(progress), transport=collector.transport)
    tell(kind="end", index=(directory / INDEX_FILE).read_text(encoding="utf-8"))


def _prepare(job: PartJob) -> Path:
    """Write the description of the part, unless it is there; return the part's directory."""
    whole = Path(job.directory)
    if job.whole_description and not _has(whole / DESCRIPTION_FILE, job.whole_description):
        raise DatasetError(
            f"{whole} on this node is not the directory that the collection was begun in: expected one that all nodes "
            "share, or --own-directories"
        )
    directory = whole / job.part
    path = directory / DESCRIPTION_FILE
    if not path.exists():
        (directory / SHARDS_DIRECTORY).mkdir(parents=True, exist_ok=True)
        replace_file(path, job.part_description.encode())
    elif not _has(path, job.part_description):
        raise DatasetError(f"{directory} has another dataset: expected a directory that is new, or has this part")
    return directory


def _has(path: Path, text: str) -> bool:
    return path.exists() and path.read_bytes() == text.encode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
