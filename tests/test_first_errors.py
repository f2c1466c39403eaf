"""Error messages of common first problems: one test each, through the command or client where they occur."""

import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc, tensor_utils
from dm_env_rpc.v1.extensions import properties_pb2
from google.rpc import code_pb2

from scripts.support.server_process import WORLDLOOM, serving
from worldloom.client import CannotConnect, NoSharedMemory, ServerError, VectorEnv, VersionMismatch, make_dm_env
from worldloom.client.world import own_version

WITHOUT_EGL = {"__EGL_VENDOR_LIBRARY_DIRS": "/nowhere", "__EGL_VENDOR_LIBRARY_FILENAMES": ""}
"""Settings with which EGL finds no driver."""
END_S = 60.0


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(WORLDLOOM), *words], env={**os.environ, **environment}, capture_output=True, text=True, timeout=END_S
    )


def test_no_egl() -> None:
    done = run("serve", "--renderer", "gl", "--listen", "127.0.0.1:0", **WITHOUT_EGL)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("worldloom")]
    assert line.startswith("worldloom serve: cannot create an OpenGL context")
    assert "Missing: " in line
    assert "To install it: `sudo apt-get install -y libegl1 " in line
    assert line.endswith("Or use the cpu renderer (--renderer cpu): it needs none of that.")


def test_without_egl_the_cpu_renderer_is_chosen() -> None:
    done = run("doctor", **WITHOUT_EGL)
    assert done.returncode == 0
    assert "auto chooses cpu: no graphics device was found. Missing: " in done.stdout
    assert "Missing for OpenGL\n  - " in done.stdout
    assert "sudo apt-get install" in done.stdout


def test_port_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run("serve", "--listen", f"127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"worldloom serve: cannot listen on 127.0.0.1:{port}: Address already in use; another server may be running "
        "there: stop it, or take another port with --listen; port 0 picks a free one\n"
    )


def test_wrong_family_name() -> None:
    text = "unknown family 'mase' (did you mean 'maze'?): expected one of cartpole, catch, dmc, gym, maze, mujoco"
    done = run("describe", "mase")
    assert (done.returncode, done.stderr) == (1, f"worldloom describe: {text}\n")
    with pytest.raises(ServerError) as refused:
        VectorEnv("local", "mase", 2)
    assert "did you mean 'maze'?" in refused.value.text
    assert "cartpole, catch, dmc, gym, maze, mujoco" in refused.value.text


def test_server_not_running() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    for make in (lambda: VectorEnv(address, "maze", 2), lambda: make_dm_env(address, "maze")):
        with pytest.raises(CannotConnect) as caught:
            make()
        assert str(caught.value) == f"no server at {address}: start one with `worldloom serve --listen {address}`"


def test_kernel_cache_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    chosen, fallback = tmp_path / "file" / "cache", tmp_path / "elsewhere"
    fallback.mkdir()
    done = run("doctor", WORLDLOOM_CACHE_DIR=str(chosen), TMPDIR=str(fallback), COLUMNS="400")  # unwrapped
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert line.startswith(f"worldloom: the kernel cache {chosen}/kernels ")
    assert f"cannot be written; using {fallback}/worldloom-" in line
    assert line.endswith("Set WORLDLOOM_CACHE_DIR to a writable folder to compile only once.")
    assert f"kernel cache  {fallback}/worldloom-" in done.stdout


class OtherServer(dm_env_rpc_pb2_grpc.EnvironmentServicer):  # type: ignore[misc]  # has no types
    """A dm_env_rpc server of another version, or without the property server.version (None)."""

    def __init__(self, version: str | None) -> None:
        self._version = version

    def Process(self, requests: Iterator[rpc.EnvironmentRequest], _: Any) -> Iterator[rpc.EnvironmentResponse]:  # noqa: N802
        for request in requests:
            response = rpc.EnvironmentResponse()
            if request.WhichOneof("payload") == "extension" and self._version is not None:
                value = tensor_utils.pack_tensor(self._version)
                answer = properties_pb2.ReadPropertyResponse(value=value)
                response.extension.Pack(properties_pb2.PropertyResponse(read_property=answer))
            else:
                response.error.code, response.error.message = code_pb2.UNIMPLEMENTED, "no extensions here"
            yield response


@contextmanager
def other_server(version: str | None) -> Iterator[str]:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(OtherServer(version), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait(END_S)


def test_version_mismatch() -> None:
    ours = own_version()
    minor = ".".join(ours.split(".")[:2])
    with other_server("77.1.0") as address:
        for make in (lambda: VectorEnv(address, "maze", 2), lambda: make_dm_env(address, "maze")):
            with pytest.raises(VersionMismatch) as caught:
                make()
            assert str(caught.value) == (
                f"the server at {address} is worldloom 77.1.0 and this client {ours}: expected {minor} on both sides; "
                "install the server's version here, or start the server with this one"
            )


def test_another_patch_version_is_accepted() -> None:
    with other_server(f"{own_version()}.post1") as address, pytest.raises(ServerError, match="no extensions here"):
        VectorEnv(address, "maze", 2)  # gets as far as CreateWorld, which this server does not know


def test_a_server_that_is_not_worldloom() -> None:
    with other_server(None) as address, pytest.raises(VersionMismatch) as caught:
        VectorEnv(address, "maze", 2)
    assert f"the server at {address} speaks dm_env_rpc but is not worldloom (no extensions here)" in str(caught.value)


def test_out_of_shared_memory() -> None:
    """A server that may not create files over 8 KiB, anonymous memory included."""
    with serving() as server:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (8192, 8192))
        with pytest.raises(NoSharedMemory) as caught:
            VectorEnv(server.address, "catch", 4, transport="shm")
        assert "bytes of shared memory cannot be had on the server's machine: File too large" in str(caught.value)
        assert "go without 'shm', or give the server more memory" in str(caught.value)
        with VectorEnv(server.address, "catch", 4, seed=1) as env, VectorEnv("local", "catch", 4, seed=1) as local:
            assert (env.transport, env.has_shared_frames) == ("socket", False)  # it falls back by itself
            assert np.array_equal(env.reset()[0]["eye.rgb"], local.reset()[0]["eye.rgb"])
