"""Tables passed to kernels by address: one array of integers instead of dozens of arrays.

numba needs 0.05 µs to unbox an array and twice that for one in a named tuple, at every call: 8 µs for all tables that
drawing reads, more than the drawing of a small view. A description of a table holds the address and shape of each
column; it is written once, and stays valid while the table has the same arrays. Whoever writes it keeps those alive.
"""

import typing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np import arrayobj, numpy_support

from worldloom.kernels.simd import Generated
from worldloom.kernels.tables import I64

COLUMN_WORDS = 4
"""Numbers that describe a column: its address and up to three lengths, or the value of a column that is an integer."""
_LONG = ir.IntType(64)


def describe(table: Any, out: I64) -> None:
    """Write the description of a table (a named tuple) into `out` [columns, COLUMN_WORDS]."""
    for column, row in zip(table, out, strict=True):
        if isinstance(column, np.ndarray):
            assert column.flags.c_contiguous, "expected contiguous columns"
            row[0] = column.__array_interface__["data"][0]
            row[1 : 1 + column.ndim] = column.shape
        else:
            row[0] = column


def make_reader(kind: type, dimensions: Sequence[int]) -> Callable[..., Any]:
    """Return a function for kernels, `read(descriptions, first)`, that gives a table of this kind from its description.

    `dimensions` is the number of dimensions of each column, 0 for an integer; `first` the row of the first column.
    """
    hints = typing.get_type_hints(kind)
    columns = [_column_type(hints[name], count) for name, count in zip(hints, dimensions, strict=True)]
    table_type = types.NamedTuple(columns, kind)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        start = builder.mul(arguments[1], ir.Constant(_LONG, COLUMN_WORDS))

        def number(column: int, word: int) -> Any:
            at = builder.add(start, ir.Constant(_LONG, COLUMN_WORDS * column + word))
            return builder.load(builder.gep(data, [at]))

        values = []
        for k, column in enumerate(columns):
            if column == types.int64:
                values.append(number(k, 0))
                continue
            array = context.make_array(column)(context, builder)
            size = context.get_abi_sizeof(context.get_data_type(column.dtype))
            shape = [number(k, 1 + axis) for axis in range(column.ndim)]
            strides = [ir.Constant(_LONG, size)]
            for length in reversed(shape[1:]):
                strides.insert(0, builder.mul(strides[0], length))
            arrayobj.populate_array(
                array,
                data=builder.inttoptr(number(k, 0), array.data.type),
                shape=shape,
                strides=strides,
                itemsize=ir.Constant(_LONG, size),
                meminfo=None,
            )
            values.append(array._getvalue())
        return context.make_tuple(builder, signature.return_type, values)

    @intrinsic  # type: ignore[untyped-decorator]
    def read(typing_context: Any, descriptions: Any, first: Any) -> Generated:
        return table_type(descriptions, types.int64), generate

    reader: Callable[..., Any] = read
    return reader


def _column_type(hint: Any, dimensions: int) -> Any:
    """Return the numba type of a column from its annotation, such as NDArray[np.float32]."""
    if hint is int:
        return types.int64
    (scalar,) = typing.get_args(typing.get_args(hint)[1])
    return types.Array(numpy_support.from_dtype(np.dtype(scalar)), dimensions, "C")
