"""Calls of C functions by address: plain ones, and guarded ones, which an error inside ends without ending the process.

A C library that meets an error it cannot handle calls a hook that must not return. Ours jumps back to where the guarded
call began, as C programs do with setjmp and longjmp; whoever made the call then learns of it. Each thread has a place
of its own to jump to, so calls on many threads do not know of each other.

numba has no such jumps, so the guard is written in the compiler's own language and compiled when first asked for, in
some milliseconds.
"""

import ctypes
import functools
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from worldloom.kernels.simd import Generated

TEXT_BYTES = 256
"""How much of an error's text is kept."""
_JUMP_BYTES = 512
"""More than a jmp_buf takes on any machine we know (200 on x86-64, 312 on aarch64)."""
_ERROR_LEVEL = 3
_SUBJECT_AT = 8
"""Of a MuJoCo log message: its level comes first, its text here."""

_WORD, _INT, _BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)
_POINTER = _BYTE.as_pointer()


class Guard(NamedTuple):
    """Addresses of the two halves."""

    call: int
    """`call(function, first, second, text)`: run function(first, second). 0, or 1 if it ended in an error, whose text
    is then at the address `text`."""
    hook: int
    """To be called with a log message: an error ends the guarded call, anything else is let pass."""


@intrinsic  # type: ignore[untyped-decorator]
def call_one(typing_context: Any, address: Any, argument: Any) -> Generated:
    """Call the function at an address with one word; the word it returns."""
    return types.int64(types.int64, types.int64), _call_words


@intrinsic  # type: ignore[untyped-decorator]
def call_four(typing_context: Any, address: Any, one: Any, two: Any, three: Any, four: Any) -> Generated:
    """Call the function at an address with four words; the word it returns."""
    return types.int64(*[types.int64] * 5), _call_words


def _call_words(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return _call_at(builder, _WORD, arguments[0], arguments[1:])


def _call_at(builder: Any, result: Any, address: Any, arguments: Any) -> Any:
    """A call of the function at an address, which may be a plain number."""
    address = ir.Constant(_WORD, address) if isinstance(address, int) else address
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)


@functools.cache
def make_guard() -> Guard:
    """Compile the guard; there is one for all."""
    module = ir.Module("guard")
    key = ir.Constant(_INT, _thread_key())
    _write_call(module, key)
    _write_hook(module, key)
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=0
    )  # values that outlive the jump stay in memory
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    _kept.append(engine)
    return Guard(engine.get_function_address("call"), engine.get_function_address("hook"))


_kept: list[Any] = []
"""The machine code lives as long as what is in here."""


def _write_call(module: Any, key: Any) -> None:
    set_jump = ir.Function(module, ir.FunctionType(_INT, [_POINTER]), "_setjmp")
    set_jump.attributes.add("returns_twice")
    call = ir.Function(module, ir.FunctionType(_WORD, [_WORD] * 4), "call")
    function, first, second, text = call.args
    begin, run, leave = (call.append_basic_block(name) for name in ("begin", "run", "leave"))
    builder = ir.IRBuilder(begin)
    place = builder.alloca(ir.ArrayType(_BYTE, _JUMP_BYTES + 8))
    place.align = 16
    place = builder.bitcast(place, _POINTER)
    text_at = builder.gep(place, [ir.Constant(_WORD, _JUMP_BYTES)])
    builder.store(text, builder.bitcast(text_at, _WORD.as_pointer()))
    _call_at(builder, _INT, _address("pthread_setspecific"), [key, place])
    came_back = builder.icmp_unsigned("!=", builder.call(set_jump, [place]), ir.Constant(_INT, 0))
    builder.cbranch(came_back, leave, run)
    builder.position_at_end(run)
    _call_at(builder, ir.VoidType(), function, [first, second])
    builder.ret(ir.Constant(_WORD, 0))
    builder.position_at_end(leave)
    builder.ret(ir.Constant(_WORD, 1))


def _write_hook(module: Any, key: Any) -> None:
    hook = ir.Function(module, ir.FunctionType(ir.VoidType(), [_POINTER]), "hook")
    (message,) = hook.args
    begin, jump, leave = (hook.append_basic_block(name) for name in ("begin", "jump", "leave"))
    builder = ir.IRBuilder(begin)
    level = builder.load(builder.bitcast(message, _INT.as_pointer()), typ=_INT)
    builder.cbranch(builder.icmp_signed("==", level, ir.Constant(_INT, _ERROR_LEVEL)), jump, leave)
    builder.position_at_end(jump)
    place = _call_at(builder, _POINTER, _address("pthread_getspecific"), [key])
    text_at = builder.bitcast(builder.gep(place, [ir.Constant(_WORD, _JUMP_BYTES)]), _WORD.as_pointer())
    subject = builder.gep(message, [ir.Constant(_WORD, _SUBJECT_AT)])
    copied = [builder.load(text_at, typ=_WORD), subject, ir.Constant(_WORD, TEXT_BYTES)]
    _call_at(builder, _POINTER, _address("memcpy"), copied)
    _call_at(builder, ir.VoidType(), _address("longjmp"), [place, ir.Constant(_INT, 1)])
    builder.unreachable()
    builder.position_at_end(leave)
    builder.ret_void()


def _address(name: str) -> int:
    """Where a function of the C library is."""
    found = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    assert found is not None
    return found


def _thread_key() -> int:
    """A new key under which each thread keeps a pointer of its own."""
    key = ctypes.c_uint()
    failed = ctypes.CDLL(None).pthread_key_create(ctypes.byref(key), None)
    if failed:
        raise OSError(failed, "no key for a thread's own memory can be had")
    return key.value
