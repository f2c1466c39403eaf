"""The generated code is what the .proto files give, and says what Cogment's own packages say."""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, MethodDescriptor, ServiceDescriptor

from scripts.generate_protos import SOURCES, generate, generated_in
from tests.support.cogment_wire import WIRE
from worldloom.protos.cogment.api import (
    agent_pb2,
    common_pb2,
    data_pb2,
    environment_pb2,
    hooks_pb2,
    orchestrator_pb2,
)

_TYPES: dict[str, int] = {name: number for name, number in vars(FieldDescriptor).items() if name.startswith("TYPE_")}
MODULES = (agent_pb2, common_pb2, data_pb2, environment_pb2, hooks_pb2, orchestrator_pb2)


def test_the_committed_code_is_what_is_generated(tmp_path: Path) -> None:
    generate(tmp_path)
    made = {path.relative_to(tmp_path): path.read_text() for path in generated_in(tmp_path)}
    committed = {path.relative_to(SOURCES): path.read_text() for path in generated_in(SOURCES)}
    assert set(committed) == set(made)
    for path, text in made.items():
        assert committed[path] == text, f"{path}: make protos"


def test_every_message_and_service_is_as_on_the_wire() -> None:
    files: list[FileDescriptor] = [module.DESCRIPTOR for module in MODULES]
    assert {file.package for file in files} == {"cogment"}
    lines = [line for file in files for line in _told(file)]
    assert _blocks(lines) == _blocks(WIRE.splitlines())


def test_fields_are_those_of_proto3() -> None:
    """Numbers are packed, and those that are zero are not sent."""
    sent = environment_pb2.ObservationSet(tick_id=0, timestamp=1, actors_map=[0, 300])
    assert sent.SerializeToString() == bytes([0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0x22, 3, 0, 0xAC, 2])


def _blocks(lines: list[str]) -> dict[str, set[str]]:
    """What is in each message and service, in whatever order."""
    blocks: dict[str, set[str]] = {}
    for line in lines:
        if line.startswith(" "):
            next(reversed(blocks.values())).add(line.strip())
        else:
            blocks[line] = set()
    return blocks


def _told(file: FileDescriptor) -> Iterator[str]:
    yield file.name
    for message in file.message_types_by_name.values():
        yield from _told_message(message)
    for service in file.services_by_name.values():
        yield from _told_service(service)


def _told_message(message: Descriptor) -> Iterator[str]:
    yield f"message {_short(message.full_name)}"
    for field in message.fields:
        repeated = "repeated " if field.is_repeated else ""
        oneof = " in a oneof" if field.containing_oneof is not None else ""
        yield f"    {field.number} {repeated}{_type(field)} {field.name}{oneof}"
    for inner in message.nested_types:
        yield from _told_message(inner)


def _told_service(service: ServiceDescriptor) -> Iterator[str]:
    yield f"service {service.name}"
    for method in service.methods:
        yield f"    {_told_method(method)}"


def _told_method(method: MethodDescriptor) -> str:
    taken = "stream " * method.client_streaming + _short(method.input_type.full_name)
    given = "stream " * method.server_streaming + _short(method.output_type.full_name)
    return f"{method.name} {taken} -> {given}"


def _type(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return _short(field.message_type.full_name)
    return next(name for name, number in _TYPES.items() if number == field.type).removeprefix("TYPE_").lower()


def _short(name: str) -> str:
    return name.removeprefix("cogment.")
