"""What a world offers, as Gymnasium spaces of one lane."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import spaces

from worldloom.client.errors import BadReply
from worldloom.client.specs import Spec


def action_space(specs: Iterable[Spec], lanes: int) -> spaces.Dict:
    """Actions of one lane: a number among few is Discrete, everything else a Box."""
    return spaces.Dict({spec.name: _action(spec, lanes) for spec in specs})


def observation_space(specs: Iterable[Spec], lanes: int) -> spaces.Dict:
    """Observations of one lane, all of them Boxes: what comes has exactly their dtypes."""
    return spaces.Dict({spec.name: _box(spec, lanes) for spec in specs})


def _action(spec: Spec, lanes: int) -> spaces.Space[Any]:
    box = _box(spec, lanes)
    if np.dtype(spec.dtype).kind in "iu" and box.shape == () and spec.low is not None and spec.high is not None:
        start = int(box.low)
        return spaces.Discrete(int(box.high) - start + 1, start=start)
    return box


def _box(spec: Spec, lanes: int) -> "spaces.Box[Any]":
    shape = spec.shape[1:]
    if spec.shape[:1] != (lanes,):
        raise BadReply(f"{spec.name!r} has shape {list(spec.shape)}: expected a leading dimension of {lanes} lanes")
    dtype = np.dtype(spec.dtype)
    least: Any = -np.inf
    most: Any = np.inf
    if dtype.kind in "iu":
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    elif dtype.kind == "b":
        least, most = 0, 1
    low, high = (
        np.array(np.broadcast_to(np.asarray(limit if bound is None else bound, dtype), spec.shape)[0])
        for limit, bound in ((least, spec.low), (most, spec.high))
    )
    return spaces.Box(low, high, shape, dtype)
