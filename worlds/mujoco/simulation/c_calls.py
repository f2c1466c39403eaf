"""Calls of C functions by address from kernels: plain calls, and guarded calls that survive an error inside.

A C library that meets an error it cannot handle calls an error hook that must not return, and usually ends the process.
The hook of this module jumps back to the start of the guarded call instead, as C programs do with setjmp and longjmp,
and the call returns 1 and the text of the error, else 0 and the result. The jump buffer is thread-local, so guarded
calls on several threads are independent.

A library that measures its own stages reads a clock before and after each, which in small simulations takes longer than
some of the stages. The clock of this module stands still within guarded calls, and is the library's own elsewhere.

numba cannot express such jumps, so the guard is written in LLVM IR. It is compiled when first used, in a few
milliseconds, and lives as long as the process.
"""

import ctypes
import functools
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from worldloom.kernels.simd import Generated

MESSAGE_BYTES = 256
"""Bytes of an error message that are kept."""
_JUMP_BYTES = 512
"""Size of the jump buffer: more than a jmp_buf takes on x86-64 (200) and aarch64 (312)."""
_ERROR_LEVEL = 3
"""mjLOG_ERROR, the level of an error in an mjLogMessage."""
_SUBJECT_OFFSET = 8
"""Byte offset of the text in an mjLogMessage, which begins with its level."""

_WORD, _INT, _BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)
_POINTER = _BYTE.as_pointer()


ARGUMENTS = 4
"""Words that the function of a guarded call gets. One with fewer arguments ignores the others."""


class Guard(NamedTuple):
    """Addresses of the functions of the guard."""

    call: int
    """`call(function, first, second, third, fourth, message)`: run `function(first, second, third, fourth)` and return
    0, or 1 after an error. At the address `message` is then the word that the function returned, or the text of the
    error."""
    hook: int
    """`hook(log_message)`: end the guarded call if the message is an error, else do nothing."""
    clock: int
    """`clock()`: return 0.0 within a guarded call, else what the given clock returns, as a double."""


@intrinsic  # type: ignore[untyped-decorator]
def call_one(typing_context: Any, address: Any, argument: Any) -> Generated:
    """Call the function at an address with one 64-bit word and return the word it returns."""
    return types.int64(types.int64, types.int64), _call_words


@intrinsic  # type: ignore[untyped-decorator]
def call_six(
    typing_context: Any, address: Any, one: Any, two: Any, three: Any, four: Any, five: Any, six: Any
) -> Generated:
    """Call the function at an address with six 64-bit words and return the word it returns."""
    return types.int64(*[types.int64] * 7), _call_words


def _call_words(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return _call_at(builder, _WORD, arguments[0], arguments[1:])


def _call_at(builder: Any, result: Any, address: Any, arguments: Any) -> Any:
    """Emit a call of the function at an address, which is a value of the IR or a Python int."""
    address = ir.Constant(_WORD, address) if isinstance(address, int) else address
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(builder.inttoptr(address, function_type.as_pointer()), arguments)


@functools.cache
def compile_guard(clock: int) -> Guard:
    """Compile the guard, once for the process. `clock` is the address of a function that returns a double."""
    module = ir.Module("guard")
    key = ir.Constant(_INT, _create_thread_key())
    _emit_call(module, key)
    _emit_hook(module, key)
    _emit_clock(module, key, clock)
    # Without optimisation, values that are used after the jump stay in memory instead of registers.
    machine = llvm.Target.from_default_triple().create_target_machine(opt=0)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    _engines.append(engine)
    return Guard(*(engine.get_function_address(name) for name in ("call", "hook", "clock")))


_engines: list[Any] = []
"""Owners of the compiled machine code, kept alive for the process."""


def _emit_call(module: Any, key: Any) -> None:
    set_jump = ir.Function(module, ir.FunctionType(_INT, [_POINTER]), "_setjmp")
    set_jump.attributes.add("returns_twice")
    call = ir.Function(module, ir.FunctionType(_WORD, [_WORD] * (ARGUMENTS + 2)), "call")
    function, *arguments, message = call.args
    begin, run, leave = (call.append_basic_block(name) for name in ("begin", "run", "leave"))
    builder = ir.IRBuilder(begin)
    jump_buffer = builder.alloca(ir.ArrayType(_BYTE, _JUMP_BYTES + 8))  # followed by the message's address
    jump_buffer.align = 16
    jump_buffer = builder.bitcast(jump_buffer, _POINTER)
    message_field = builder.gep(jump_buffer, [ir.Constant(_WORD, _JUMP_BYTES)])
    builder.store(message, builder.bitcast(message_field, _WORD.as_pointer()))
    _call_at(builder, _INT, libc_address("pthread_setspecific"), [key, jump_buffer])
    has_jumped = builder.icmp_unsigned("!=", builder.call(set_jump, [jump_buffer]), ir.Constant(_INT, 0))
    builder.cbranch(has_jumped, leave, run)
    builder.position_at_end(run)
    result = _call_at(builder, _WORD, function, arguments)
    builder.store(result, builder.inttoptr(message, _WORD.as_pointer()))
    _emit_end(builder, key, 0)
    builder.position_at_end(leave)
    _emit_end(builder, key, 1)


def _emit_end(builder: Any, key: Any, has_failed: int) -> None:
    """Emit the end of a guarded call: this thread has no jump buffer any more."""
    _call_at(builder, _INT, libc_address("pthread_setspecific"), [key, ir.Constant(_POINTER, None)])
    builder.ret(ir.Constant(_WORD, has_failed))


def _emit_hook(module: Any, key: Any) -> None:
    hook = ir.Function(module, ir.FunctionType(ir.VoidType(), [_POINTER]), "hook")
    (log_message,) = hook.args
    begin, jump, leave = (hook.append_basic_block(name) for name in ("begin", "jump", "leave"))
    builder = ir.IRBuilder(begin)
    level = builder.load(builder.bitcast(log_message, _INT.as_pointer()), typ=_INT)
    builder.cbranch(builder.icmp_signed("==", level, ir.Constant(_INT, _ERROR_LEVEL)), jump, leave)
    builder.position_at_end(jump)
    jump_buffer = _call_at(builder, _POINTER, libc_address("pthread_getspecific"), [key])
    message_field = builder.bitcast(builder.gep(jump_buffer, [ir.Constant(_WORD, _JUMP_BYTES)]), _WORD.as_pointer())
    subject = builder.gep(log_message, [ir.Constant(_WORD, _SUBJECT_OFFSET)])
    copied = [builder.load(message_field, typ=_WORD), subject, ir.Constant(_WORD, MESSAGE_BYTES)]
    _call_at(builder, _POINTER, libc_address("memcpy"), copied)
    _call_at(builder, ir.VoidType(), libc_address("longjmp"), [jump_buffer, ir.Constant(_INT, 1)])
    builder.unreachable()
    builder.position_at_end(leave)
    builder.ret_void()


def _emit_clock(module: Any, key: Any, given_clock: int) -> None:
    clock = ir.Function(module, ir.FunctionType(ir.DoubleType(), []), "clock")
    begin, still, run = (clock.append_basic_block(name) for name in ("begin", "still", "run"))
    builder = ir.IRBuilder(begin)
    jump_buffer = _call_at(builder, _POINTER, libc_address("pthread_getspecific"), [key])
    builder.cbranch(builder.icmp_unsigned("!=", jump_buffer, ir.Constant(_POINTER, None)), still, run)
    builder.position_at_end(still)
    builder.ret(ir.Constant(ir.DoubleType(), 0.0))
    builder.position_at_end(run)
    builder.ret(_call_at(builder, ir.DoubleType(), given_clock, []))


@functools.cache
def libc_address(name: str) -> int:
    """Return the address of a function of the C library."""
    address = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    assert address is not None
    return address


def _create_thread_key() -> int:
    """Create a key of thread-local memory, which holds each thread's jump buffer."""
    key = ctypes.c_uint()
    error_number = ctypes.CDLL(None).pthread_key_create(ctypes.byref(key), None)
    if error_number:
        raise OSError(error_number, "pthread_key_create failed: no key for thread-local memory is left")
    return key.value
