"""The process that compiles one uploaded model: reads it from stdin, and writes the compiled model to stdout.

MuJoCo's compiler may take very long, use gigabytes or crash on a model that was made to have it do so. Here it may:
this process has limits on time and memory, and can open no file. It is run as a file by itself, and imports nothing of
worldloom, so that it starts in a fifth of a second.

Messages in both directions are a line of JSON, then bytes. Input: `xml_bytes`, and `files`, pairs of name and size,
then the contents of all. Output: `model_bytes` and the model in MuJoCo's own format; or `problem`, and `is_excessive`
if the model is valid but too large.
"""

import json
import math
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import mujoco

MAXIMA = {
    "nbody": 4096,
    "njnt": 4096,
    "nv": 4096,
    "nu": 4096,
    "na": 4096,
    "neq": 4096,
    "ngeom": 16_384,
    "nsite": 16_384,
    "npair": 65_536,
    "ncam": 256,
    "nlight": 256,
    "ntendon": 4096,
    "nwrap": 65_536,
    "nsensor": 1024,
    "nsensordata": 65_536,
    "nkey": 1024,
    "nuserdata": 1 << 20,
    "nmesh": 4096,
    "nmeshvert": 4_000_000,
    "nmeshface": 8_000_000,
    "ntex": 1024,
    "ntexdata": 256 << 20,
    "nmat": 4096,
    "nhfielddata": 4_000_000,
    "nskinvert": 1_000_000,
    "nskinface": 2_000_000,
    "nflexvert": 100_000,
    "nflexelem": 400_000,
    "nbuffer": 512 << 20,
    "narena": 1 << 30,
}
"""Most of each that a model may have, by MuJoCo's names."""
OPTION_MAXIMA = {
    "iterations": 10_000,
    "ls_iterations": 1000,
    "noslip_iterations": 1000,
    "ccd_iterations": 1000,
    "sdf_iterations": 1000,
    "sdf_initpoints": 1000,
}
"""Most iterations of the solvers, by the names in <option>."""
MAX_DATA_BYTES = 512 << 20
"""Most memory of one simulation, without its arena."""
MAX_STEP_S = 0.5
"""Most processor time of a model's first step: steps of all clients wait for it."""
_CPU_SHARE = 2
"""Cores that it may use all the time."""
_GRACE_S = 10
"""Time after the limit at which this process ends itself, if the one that waits for it is gone."""


class ExcessiveModelError(ValueError):
    """A model that is valid but too large; the message has the limit."""


def main() -> None:
    """Compile the model of stdin. The only argument has the limits, and where mujoco is installed."""
    order = json.loads(sys.argv[1])
    _limit(order["timeout_s"], order["memory_bytes"])
    sys.path.extend(order["paths"])
    header: dict[str, Any]
    model_data: Any = b""
    try:
        import mujoco  # noqa: F401  # it opens files, which is not possible later

        xml, files = _read_input(sys.stdin.buffer)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        model_data = _compile(xml, files)
        header = {"model_bytes": len(model_data)}
    except MemoryError:
        header = {"problem": "it takes too much memory", "is_excessive": True}
    except Exception as error:
        header = {"problem": str(error), "is_excessive": isinstance(error, ExcessiveModelError)}
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n")
    sys.stdout.buffer.write(model_data)
    sys.stdout.buffer.flush()


def _limit(timeout_s: float, memory_bytes: int) -> None:
    """Limit this process. Processor time is that of all threads, of which the compiler has some for meshes."""
    seconds = math.ceil(timeout_s)
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, _CPU_SHARE * seconds),
        (resource.RLIMIT_AS, memory_bytes),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    signal.alarm(seconds + _GRACE_S)


def _read_input(stream: BinaryIO) -> tuple[str, dict[str, bytes]]:
    header = json.loads(stream.readline())
    xml = stream.read(header["xml_bytes"]).decode()
    return xml, {name: stream.read(size_bytes) for name, size_bytes in header["files"]}


def _compile(xml: str, files: dict[str, bytes]) -> Any:
    """Return the compiled model as bytes; raise ValueError for one that is invalid or too large."""
    import mujoco
    import numpy as np

    try:
        model = mujoco.MjModel.from_xml_string(xml, files)
        check_size(model)
        _check_simulation(model)
    except (ValueError, RuntimeError, mujoco.FatalError) as error:
        text = "; ".join(str(error).split("\n"))
        # MuJoCo calls it unknown if the C++ library has no memory left.
        is_memory = "alloc" in text.lower() or "unknown exception" in text
        is_memory = is_memory and not isinstance(error, ExcessiveModelError)
        raise ExcessiveModelError(f"it takes too much memory ({text})") if is_memory else type(error)(text) from None
    data = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, data)
    return data.data


def check_size(model: "mujoco.MjModel") -> None:
    """Raise ExcessiveModelError for a model that has more of something than it may."""
    for name, most in MAXIMA.items():
        if getattr(model, name) > most:
            raise ExcessiveModelError(f"its {name} is {getattr(model, name)}: expected {most} at most")
    for name, most in OPTION_MAXIMA.items():
        if getattr(model.opt, name) > most:
            raise ExcessiveModelError(f"its option {name} is {getattr(model.opt, name)}: expected {most} at most")


def _check_simulation(model: "mujoco.MjModel") -> None:
    """Raise ExcessiveModelError for a model whose simulation takes too much memory or time."""
    import mujoco

    data = mujoco.MjData(model)
    if data.nbuffer > MAX_DATA_BYTES:
        raise ExcessiveModelError(f"a simulation takes {data.nbuffer} bytes: expected {MAX_DATA_BYTES} at most")
    began_s = time.process_time()
    mujoco.mj_step(model, data)
    step_s = time.process_time() - began_s
    if step_s > MAX_STEP_S:
        raise ExcessiveModelError(f"its first step takes {step_s:.1f} s: expected {MAX_STEP_S} s at most")


if __name__ == "__main__":
    main()
