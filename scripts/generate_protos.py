"""Writes the Python code of protos/**/*.proto beside them: python -m scripts.generate_protos

The compiler comes from grpcio-tools, in the version below and in a folder of its own: what it writes must not change
with whatever else is installed. dm_env_rpc's messages come from its package, as a set of descriptors.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from dm_env_rpc.v1 import dm_env_rpc_pb2
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "protos"
COMPILER = "grpcio-tools==1.71.2"
"""Whoever uses what it writes needs protobuf 5.29 and grpcio 1.71.2, or newer."""


def main() -> None:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(description="Write the Python code of protos/**/*.proto.")
    parser.add_argument(
        "--out", type=Path, default=SOURCES, metavar="FOLDER", help="where to; beside them unless given"
    )
    generate(parser.parse_args().out)


def generate(out: Path) -> None:
    """Write messages, their types, and stubs into a folder, under the paths of their sources."""
    out.mkdir(parents=True, exist_ok=True)
    sources = sorted(SOURCES.rglob("*.proto"))
    with_services = [source for source in sources if "\nservice " in source.read_text()]
    _compile(sources, f"--python_out={out}", f"--pyi_out={out}")
    _compile(with_services, f"--grpc_python_out={out}")
    for path in generated_in(out):
        path.write_text(_in_our_package(path.read_text()))


def generated_in(folder: Path) -> list[Path]:
    """The files there that were written so."""
    return [path for path in sorted(folder.rglob("*_pb2*")) if path.suffix in (".py", ".pyi")]


def write_descriptors(path: Path) -> None:
    """Write dm_env_rpc's messages and those they are made of, as the compiler reads them."""
    found: dict[str, FileDescriptor] = {}
    _collect(dm_env_rpc_pb2.DESCRIPTOR, found)
    files = [descriptor_pb2.FileDescriptorProto.FromString(one.serialized_pb) for one in found.values()]
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


def _compile(sources: list[Path], *outputs: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "dm_env_rpc.pb"
        write_descriptors(known)
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SOURCES}", f"--descriptor_set_in={known}"]
        environment = {**os.environ, "PYTHONPATH": str(_compiler())}
        subprocess.run([*command, *outputs, *map(str, sources)], env=environment, check=True)


def _compiler() -> Path:
    """The folder of the compiler, which is fetched if it is not there."""
    folder = ROOT / "build" / COMPILER.replace("==", "-")
    if not (folder / "grpc_tools").is_dir():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), COMPILER]
        subprocess.run(install, check=True)
    return folder


def _collect(one: FileDescriptor, found: dict[str, FileDescriptor]) -> None:
    """A file after those that it imports."""
    for other in one.dependencies:
        _collect(other, found)
    found.setdefault(one.name, one)


def _in_our_package(code: str) -> str:
    """Imports of our own modules by their names in the wheel."""
    return re.sub(r"^from (cogment|worldloom)\b", r"from worldloom.protos.\1", code, flags=re.MULTILINE)


if __name__ == "__main__":
    main()
