"""MuJoCo's C library: calls by name, simulations without their Python objects, and variants of a model.

An MjData of Python has 270 KB of objects around 160 KB of its own, and takes four times as long to create. A lane needs
none of them: kernels work on addresses. So lanes have a `Simulation`, which is MuJoCo's struct and nothing else. Nearly
all of that is room for statistics of the solver, and its arena has megabytes for more contacts than there ever are; the
memory of both is given back to the operating system.

Where a model is needed that differs in a few values, a copy of its struct will do, since that refers to the arrays by
their addresses: a copy of the whole model would have meshes and textures of up to hundreds of megabytes again.
"""

import ctypes
import functools
import mmap
from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np

from worldloom.kernels.tables import F64, I64, U8
from worldloom.render.arena import PROCESS_FLOAT64, PROCESS_MEMORY, float64_index_of
from worldloom.worlds.family import State
from worldloom.worlds.mujoco.simulation.c_calls import ARGUMENTS, MESSAGE_BYTES, compile_guard
from worldloom.worlds.mujoco.simulation.data import FIELDS
from worldloom.worlds.mujoco.simulation.kernels import WARNING_KINDS

_ANCHOR = "xpos"
"""An array that every model has, since the world is a body: the others are found from its address."""
_ALIGNMENT_BYTES = 64

STATE: dict[str, tuple[str, tuple[int, ...]]] = {
    "simulation": ("object", ()),
    "data_address": ("int64", ()),
    "addresses": ("int64", (len(FIELDS),)),
    "warning_address": ("int64", ()),
}
"""State fields of a lane's simulation: the Simulation, the address of its struct, and addresses in it. A family adds
`overrides`, the bytes of the model that are the lane's own."""


@functools.cache
def load_library() -> ctypes.CDLL:
    """Return the library that the package mujoco uses."""
    (path,) = Path(mujoco.__file__).parent.glob("libmujoco.so.*")
    return ctypes.CDLL(str(path))


@functools.cache
def function_address(name: str) -> int:
    """Return the address of a function of the library."""
    address = ctypes.cast(getattr(load_library(), name), ctypes.c_void_p).value
    assert address is not None
    return address


@functools.cache
def guard_addresses() -> I64:
    """Return the addresses of the guard's call, of its hook, and of the function that sets this thread's hook.

    The first time, MuJoCo gets the guard's clock. The package mujoco gives it one to measure each stage with; in a step
    of a small model, reading that takes a tenth to a third of the time, and nothing here reads the measurements.
    """
    clock = ctypes.c_void_p.in_dll(load_library(), "mjcb_time")
    guard = compile_guard(clock.value or 0)
    if clock.value:
        clock.value = guard.clock
    return np.array([guard.call, guard.hook, function_address("_mjPRIVATE_setTlsLogHandler")], np.int64)


def call(name: str, *arguments: int) -> int:
    """Call a function of the library with addresses or integers, and return its result as a word.

    An error inside raises mujoco.FatalError, as it does where Python's own functions are used.
    """
    guarded_call, hook, set_hook = _guarded_call()
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    words = [*arguments, *[0] * (ARGUMENTS - len(arguments))]
    previous_hook = set_hook(hook)
    has_failed = guarded_call(function_address(name), *words, ctypes.addressof(message))
    set_hook(previous_hook)
    if has_failed:
        raise mujoco.FatalError(message.value.decode(errors="replace"))
    return int.from_bytes(message.raw[:8], "little", signed=True)


@functools.cache
def _guarded_call() -> tuple[Callable[..., int], int, Callable[[int], int]]:
    """Return the guard's call, the address of its hook, and the function that sets this thread's hook."""
    guarded_call, hook, set_hook = guard_addresses().tolist()
    word = ctypes.c_int64
    call_type = ctypes.CFUNCTYPE(word, *[word] * (ARGUMENTS + 2))
    return call_type(guarded_call), hook, ctypes.CFUNCTYPE(word, word)(set_hook)


def free_compiler_memory() -> None:
    """Free what MuJoCo's compiler keeps of the models it has compiled, in case they are compiled or saved again.

    That is decoded meshes and textures, up to 500 MB of them, and the description of the last model. The models
    themselves are not affected.
    """
    mujoco.mj_clearCache(mujoco.mj_getCache())
    load_library().mj_freeLastXML()


class DataLayout:
    """The positions of arrays in the simulations of one model. They are the same in all of them."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model = model
        template = mujoco.MjData(model)
        self.shapes = {name: getattr(template, name).shape for name in FIELDS}
        """Shapes of the arrays FIELDS."""
        self.buffer_bytes = int(template.nbuffer)
        """Bytes of all arrays of a simulation but those in its arena."""
        statistics = template.solver.improvement
        self.statistics_offset = statistics.ctypes.data - template._address
        self.statistics_bytes = statistics.size * statistics.strides[0]
        """Place in the struct of what the solver notes of its iterations, for as many as there may be."""
        anchor = getattr(template, _ANCHOR)
        self.anchor_offset = _find_pointers(template._address, anchor)[0]
        self.field_offsets: I64 = np.array(
            [float64_index_of(getattr(template, name)) - float64_index_of(anchor) for name in FIELDS], np.int64
        )
        warning_counts = template.warning.number
        assert (warning_counts.size, warning_counts.strides, warning_counts.dtype) == (WARNING_KINDS, (8,), np.int32)
        self._warning_offset = warning_counts.ctypes.data - template._address

    def attach(self, state: State, lane: int) -> "Simulation":
        """Give a lane a new simulation in the default pose, and note the addresses in it."""
        simulation = Simulation(self)
        anchor = _read_pointer(simulation.address + self.anchor_offset)
        state.simulation[lane] = simulation
        state.data_address[lane] = simulation.address
        state.addresses[lane] = _offset_of(anchor) // 8 + self.field_offsets
        state.warning_address[lane] = _offset_of(simulation.address + self._warning_offset) // 4
        return simulation


_madvise = ctypes.CDLL(None).madvise
_delete = ctypes.CFUNCTYPE(None, ctypes.c_int64)(function_address("mj_deleteData"))


class Simulation:
    """An mjData of the C library, freed with this object. Its arrays FIELDS are attributes, as those of an MjData."""

    __slots__ = ("address", "layout")

    def __init__(self, layout: DataLayout) -> None:
        self.address = 0
        self.layout = layout
        self.address = call("mj_makeData", layout.model._address)
        self._release_arena()
        self.release_statistics()

    def __del__(self, delete: Callable[[int], None] = _delete) -> None:  # as an argument it is there until the end
        if self.address:
            delete(self.address)

    def __getattr__(self, name: str) -> F64:
        if name not in FIELDS:
            raise AttributeError(f"unknown array {name!r}: expected one of {', '.join(FIELDS)}")
        layout = self.layout
        anchor = _read_pointer(self.address + layout.anchor_offset)
        first = _offset_of(anchor) // 8 + int(layout.field_offsets[FIELDS.index(name)])
        shape = layout.shapes[name]
        return PROCESS_FLOAT64[first : first + int(np.prod(shape))].reshape(shape)

    def _release_arena(self) -> None:
        """Give the memory of the arena back to the operating system: it is taken again page by page, when it is used.

        An arena has many megabytes, of which little is ever used. Where the C library makes it of memory that was freed
        before, all of that would be taken.
        """
        _release_pages(_read_pointer(self.address + _arena_offset()), int(self.layout.model.narena))

    def release_statistics(self) -> None:
        """Give the memory of the solver's statistics back: nearly all of the struct, and nothing here reads them."""
        layout = self.layout
        _release_pages(self.address + layout.statistics_offset, layout.statistics_bytes)

    def call(self, name: str, *more: int) -> None:
        """Call a function of the library with the model, this simulation and what it needs more."""
        call(name, self.layout.model._address, self.address, *more)

    def copy_from(self, address: int) -> None:
        """Copy the simulation of the same model at this address."""
        call("mj_copyData", self.address, self.layout.model._address, address)
        self.release_statistics()

    def copy_to(self, address: int) -> None:
        """Copy to the simulation of the same model at this address."""
        call("mj_copyData", address, self.layout.model._address, self.address)


class ModelVariant:
    """A model that shares all its arrays with another but those of these names, which are copies."""

    def __init__(self, model: mujoco.MjModel, own: dict[str, np.ndarray], has_sensors: bool = True) -> None:
        self._kept_alive = model, own
        size_bytes = _usable_bytes(model._address)
        memory = np.empty(size_bytes + _ALIGNMENT_BYTES, np.uint8)
        self._struct: U8 = memory[-memory.ctypes.data % _ALIGNMENT_BYTES :][:size_bytes]
        self._struct[:] = _memory_at(model._address, size_bytes)
        for name, array in own.items():
            for offset in _find_pointers(model._address, getattr(model, name)):
                self._struct[offset : offset + 8] = np.array([array.ctypes.data], np.int64).view(np.uint8)
        if not has_sensors:
            flags = self._struct[_disable_flags_offset() :][:4].view(np.int32)
            flags |= int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
        self.address = int(self._struct.ctypes.data)


@functools.cache
def _arena_offset() -> int:
    """Return where the struct of a simulation has the address of its arena: after that of its buffer.

    The buffer begins with qpos, and so has the same address.
    """
    body = '<body><joint/><geom size="1"/></body>'
    data = mujoco.MjData(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{body}</worldbody></mujoco>"))
    return _find_pointers(data._address, data.qpos)[0] + 8


@functools.cache
def _disable_flags_offset() -> int:
    """Return the offset of `opt.disableflags` in the struct of a model, found by changing it."""
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    struct = _memory_at(model._address, _usable_bytes(model._address))
    before = struct.copy()
    model.opt.disableflags = -1
    return int(np.flatnonzero(struct != before)[0])


def _release_pages(address: int, size_bytes: int) -> None:
    """Give the whole pages of a block of memory back to the operating system: they are zeros when next read."""
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    whole_bytes = (address + size_bytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if whole_bytes > 0:
        _madvise(ctypes.c_void_p(first), ctypes.c_size_t(whole_bytes), mmap.MADV_DONTNEED)


def _find_pointers(struct: int, array: np.ndarray) -> list[int]:
    """Return where a struct has the address of an array, as offsets in bytes.

    Empty arrays before it and a buffer that begins with it have the same address; no function of a step reads those.
    """
    words = _memory_at(struct, _usable_bytes(struct) // 8 * 8).view(np.int64)
    return [8 * index for index in np.flatnonzero(words == array.ctypes.data).tolist()]


def _read_pointer(address: int) -> int:
    return int(_memory_at(address, 8).view(np.int64)[0])


def _memory_at(address: int, size_bytes: int) -> U8:
    start = _offset_of(address)
    return PROCESS_MEMORY[start : start + size_bytes]


def _offset_of(address: int) -> int:
    """Return the offset of an address in PROCESS_MEMORY."""
    return address - _FIRST_ADDRESS


_FIRST_ADDRESS = int(PROCESS_MEMORY.ctypes.data)


def _usable_bytes(address: int) -> int:
    """Return the size of a block that the C library allocated: that asked for, or some bytes more."""
    usable_size = ctypes.CDLL(None).malloc_usable_size
    usable_size.restype, usable_size.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    return int(usable_size(address))
