"""Message types of a project's own .proto files, to encode configurations that a trial file gives as mappings.

The files are those of the key `import.proto`, beside the trial file. They are compiled when the first mapping is
encoded, by grpcio-tools if it is installed, else by `protoc`; a file without such mappings needs neither.
"""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from functools import cached_property
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from worldloom.server.cogment.files.yaml_file import Entry

_TIMEOUT_S = 60.0
_BYTES = "bytes in base64, such as !!binary CgR0ZXN0"


class MessageTypes:
    """The message types of a trial file. `folder` is that of the file, `imports` its list of .proto files."""

    def __init__(self, folder: Path, imports: Entry | None) -> None:
        self._folder = folder
        self._imports = imports

    def encode(self, config: Entry, given_type: Entry | None, type_key: str) -> bytes:
        """Return the bytes of a configuration: a mapping, encoded as a message of a type, or bytes as they are.

        `type_key` is the key of the file that names the type.
        """
        if not config.is_mapping:
            return config.data()
        if given_type is None:
            config.fail(
                f"{config.path} is a mapping: expected {type_key} to name its message type, and import.proto its file; "
                f"or {_BYTES}"
            )
        type_name = given_type.text()
        try:
            kind = message_factory.GetMessageClass(self._pool(config).FindMessageTypeByName(type_name))
        except KeyError:
            given_type.raise_expected("a message type of the files in import.proto, with its package")
        try:
            data: bytes = json_format.ParseDict(config.plain(), kind()).SerializeToString(deterministic=True)
        except (json_format.ParseError, TypeError, AttributeError) as error:  # the latter for keys that are no texts
            config.fail(f"{config.path} is not a {type_name}: {_one_line(str(error))}")
        return data

    def _pool(self, config: Entry) -> descriptor_pool.DescriptorPool:
        if self._imports is None or not self._imports.items():
            config.fail(
                f"{config.path} is a mapping: expected import.proto to list the .proto files of its message type; or "
                f"{_BYTES}"
            )
        if not self._compiler:
            config.fail(
                f"{config.path} is a mapping, and there is no compiler for .proto files: expected one; install it with "
                f"pip install grpcio-tools, or give {_BYTES}"
            )
        return self._compiled

    @cached_property
    def _compiler(self) -> list[str]:
        if importlib.util.find_spec("grpc_tools") is not None:
            return [sys.executable, "-m", "grpc_tools.protoc"]
        found = shutil.which("protoc")
        return [] if found is None else [found]

    @cached_property
    def _compiled(self) -> descriptor_pool.DescriptorPool:
        assert self._imports is not None
        names = [one.text() for one in self._imports.items()]
        for one in self._imports.items():
            if one.text().startswith("-"):  # which the compiler would take for an option
                one.raise_expected("the path of a .proto file")
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "descriptors"
            options = [f"--proto_path={self._folder}", "--include_imports", f"--descriptor_set_out={out}"]
            command = [*self._compiler, *options, *names]
            try:
                subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
            except subprocess.CalledProcessError as error:
                self._imports.fail(f"{self._imports.path} cannot be compiled: {_one_line(error.stderr)}")
            files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:  # imported files come first
            pool.Add(file)
        return pool


def _one_line(text: str) -> str:
    return "; ".join(text.split("\n")).strip("; ")[:1000]
