"""Compiling uploaded models in a process of its own, one for each (`compile_child.py`)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import mujoco
import numpy as np

from worldloom.worlds.mujoco.models import compile_child
from worldloom.worlds.settings import SettingTooLargeError
from worldloom.worlds.uploads import UploadRules, running_compilers

CHILD_BYTES = 4 << 30
"""Address space of the process: the files of a model several times, the compiler's tables, and the model twice."""
_START_S = 5.0
"""Time for the process to start and for its input and output, beside the time to compile."""
_MAX_PROBLEM_LENGTH = 1000
_MODEL_NAME = "model.mjb"
_ENVIRONMENT = {
    "MUJOCO_GL": "disable",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",  # others would take address space by the number of cores
}
_KEPT_VARIABLES = ("LD_LIBRARY_PATH",)


def compile_in_child(xml: str, files: Mapping[str, bytes], rules: UploadRules) -> mujoco.MjModel:
    """Return a compiled model.

    ValueError: the model is invalid, or the compiler crashed. SettingTooLargeError: it takes too much time or memory.
    """
    text = xml.encode()
    header = {"xml_bytes": len(text), "files": [(name, len(content)) for name, content in files.items()]}
    message = b"".join((json.dumps(header).encode(), b"\n", text, *files.values()))
    output = _run_child(message, rules)
    line, _, content = output.partition(b"\n")
    try:
        reply = json.loads(line)
        problem = reply.get("problem")
        if problem is None and len(content) == reply["model_bytes"]:
            return mujoco.MjModel.from_binary_path(_MODEL_NAME, {_MODEL_NAME: content})
    except (ValueError, KeyError, AttributeError, mujoco.FatalError):
        problem = None
    if problem is None:
        raise ValueError("MuJoCo's compiler failed without a message")
    problem = str(problem)[:_MAX_PROBLEM_LENGTH]
    raise SettingTooLargeError(problem) if reply.get("is_excessive") else ValueError(problem)


def _run_child(message: bytes, rules: UploadRules) -> bytes:
    """Run the process with this input, and return its output."""
    packages = {str(Path(module.__file__ or "").parents[1]) for module in (mujoco, np)}
    order = {"timeout_s": rules.timeout_s, "memory_bytes": CHILD_BYTES, "paths": sorted(packages)}
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", compile_child.__file__, json.dumps(order)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_ENVIRONMENT | kept,
        start_new_session=True,
    )
    running_compilers.add(process)
    try:
        with process:
            try:
                output, _ = process.communicate(message, timeout=rules.timeout_s + _START_S)
            except BaseException as error:
                process.kill()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise _took_too_long(rules) from None
                raise
    finally:
        running_compilers.discard(process)
    if process.returncode:
        raise _explain_end(process.returncode, rules)
    return output


def _explain_end(code: int, rules: UploadRules) -> ValueError:
    """Return the error for a process that has ended without a result."""
    if code in (-signal.SIGXCPU, -signal.SIGALRM):
        return _took_too_long(rules)
    if code == -signal.SIGKILL:
        return SettingTooLargeError("its compiler was killed: it took too much memory, or the server is stopping")
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
    return ValueError(f"MuJoCo's compiler crashed on it ({name})")


def _took_too_long(rules: UploadRules) -> SettingTooLargeError:
    return SettingTooLargeError(
        f"it takes more than {rules.timeout_s:g} s to compile: expected a simpler model, or a server with a larger "
        "--upload-timeout-s"
    )
