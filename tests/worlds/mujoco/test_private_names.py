"""Private names and memory layouts of MuJoCo and dm_control that worlds/mujoco relies on, all in one list.

Their makers may change them in any release. If a test fails here after an upgrade, its message says what is missing,
where it is used, and what to do. The list is complete: another test compares it with the source.
"""

import ast
import ctypes
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
import pytest

from worldloom.worlds.mujoco.dm_control.suite import core, suite
from worldloom.worlds.mujoco.simulation import library
from worldloom.worlds.mujoco.simulation.library import load_library

FOLDER = Path(__file__).parents[3] / "worlds/mujoco"
FAMILY, SUITE = "dm_control/family.py", "dm_control/suite.py"
ARMS, WALKERS = "dm_control/rewards/arms.py", "dm_control/rewards/walkers.py"
STATES, LIBRARY, C_CALLS, TENDONS = "states.py", "simulation/library.py", "simulation/c_calls.py", "models/tendons.py"


class PrivateName(NamedTuple):
    package: str
    owner: str
    """The object that has the name, in words of its package."""
    name: str
    file: str
    """The file that uses it, from worlds/mujoco on."""
    purpose: str
    find: Callable[[], Any]
    """Returns the object that has the name."""


def environment(domain: str, task: str) -> Any:
    return suite.load(domain, task, task_kwargs={"random": 0})


def task_of(domain: str, task: str) -> Callable[[], Any]:
    return lambda: environment(domain, task).task


def empty_model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string("<mujoco/>")


PRIVATE_NAMES = (
    PrivateName(
        *("mujoco", "libmujoco", "_mjPRIVATE_setTlsLogHandler", LIBRARY, "an error inside MuJoCo ends one lane's step"),
        load_library,
    ),
    PrivateName("mujoco", "MjModel", "_address", STATES, "kernels set states and pose them", empty_model),
    PrivateName("mujoco", "MjModel", "_address", LIBRARY, "kernels call MuJoCo's functions", empty_model),
    PrivateName(
        *("mujoco", "MjData", "_address", LIBRARY, "kernels call MuJoCo's functions"),
        lambda: mujoco.MjData(empty_model()),
    ),
    PrivateName(
        *("mujoco", "MjData", "_address", SUITE, "a lane's state is loaded into dm_control's physics"),
        lambda: mujoco.MjData(empty_model()),
    ),
    PrivateName(
        *("dm_control", "mujoco.wrapper.core", "_LAST_PARSED_MODEL_PTR", SUITE, "the memory of models that are gone"),
        lambda: core,
    ),
    PrivateName(
        *("dm_control", "rl.control.Environment", "_step_limit", FAMILY, "the number of steps of an episode"),
        lambda: environment("cartpole", "swingup"),
    ),
    PrivateName(
        *("dm_control", "rl.control.Environment", "_n_sub_steps", FAMILY, "MuJoCo steps in a control step"),
        lambda: environment("cartpole", "swingup"),
    ),
    PrivateName(
        *("dm_control", "suite.base.Task", "_random", SUITE, "the random generator of each lane"),
        task_of("cartpole", "swingup"),
    ),
    PrivateName(
        *("dm_control", "suite.cartpole.Balance", "_sparse", ARMS, "rewards of cartpole"),
        task_of("cartpole", "swingup"),
    ),
    PrivateName(
        *("dm_control", "suite.cartpole.Balance", "_ANGLE_COSINE_RANGE", ARMS, "sparse rewards of cartpole"),
        task_of("cartpole", "swingup_sparse"),
    ),
    PrivateName(
        *("dm_control", "suite.cartpole.Balance", "_CART_RANGE", ARMS, "sparse rewards of cartpole"),
        task_of("cartpole", "swingup_sparse"),
    ),
    PrivateName(
        *("dm_control", "suite.acrobot.Balance", "_sparse", ARMS, "rewards of acrobot"),
        task_of("acrobot", "swingup"),
    ),
    PrivateName(
        *("dm_control", "suite.pendulum", "_COSINE_BOUND", ARMS, "rewards of pendulum"),
        lambda: suite.pendulum,
    ),
    PrivateName(
        *("dm_control", "suite.reacher.Reacher", "_target_size", ARMS, "rewards of reacher"),
        task_of("reacher", "easy"),
    ),
    PrivateName(
        *("dm_control", "suite.finger", "_SPIN_VELOCITY", ARMS, "rewards of finger spin"),
        lambda: suite.finger,
    ),
    PrivateName(
        *("dm_control", "suite.finger.Turn", "_target_radius", ARMS, "rewards of finger turn"),
        task_of("finger", "turn_easy"),
    ),
    PrivateName(
        *("dm_control", "suite.walker", "_STAND_HEIGHT", WALKERS, "rewards of walker"),
        lambda: suite.walker,
    ),
    PrivateName(
        *("dm_control", "suite.walker.PlanarWalker", "_move_speed", WALKERS, "rewards of walker"),
        task_of("walker", "walk"),
    ),
    PrivateName(
        *("dm_control", "suite.humanoid", "_STAND_HEIGHT", WALKERS, "rewards of humanoid"),
        lambda: suite.humanoid,
    ),
    PrivateName(
        *("dm_control", "suite.humanoid.Humanoid", "_move_speed", WALKERS, "rewards of humanoid"),
        task_of("humanoid", "walk"),
    ),
    PrivateName(
        *("dm_control", "suite.cheetah", "_RUN_SPEED", WALKERS, "rewards of cheetah"),
        lambda: suite.cheetah,
    ),
    PrivateName(
        *("dm_control", "suite.hopper", "_STAND_HEIGHT", WALKERS, "rewards of hopper"),
        lambda: suite.hopper,
    ),
    PrivateName(
        *("dm_control", "suite.hopper", "_HOP_SPEED", WALKERS, "rewards of hopper"),
        lambda: suite.hopper,
    ),
    PrivateName(
        *("dm_control", "suite.hopper.Hopper", "_hopping", WALKERS, "rewards of hopper"),
        task_of("hopper", "hop"),
    ),
)


def advice(package: str, missing: str, file: str, purpose: str) -> str:
    return (
        f"{package} {importlib.metadata.version(package)}: {missing}. worlds/mujoco/{file} needs it for: {purpose}. "
        f"Find in {package}'s source what replaces it, adapt worlds/mujoco/{file} and this list, and set the bounds of "
        f"the extra `mujoco` in pyproject.toml to the versions that were tested."
    )


@pytest.mark.parametrize("private", PRIVATE_NAMES, ids=lambda private: f"{private.owner}.{private.name}")
def test_private_names_exist(private: PrivateName) -> None:
    missing = f"{private.owner} has no {private.name}"
    assert hasattr(private.find(), private.name), advice(private.package, missing, private.file, private.purpose)


def private_names_in(path: Path) -> set[str]:
    """Return the private names in a file that are attributes of anything but `self`, or names of C functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("_mj"):
            found.add(node.value)
    return found


def test_the_list_is_complete() -> None:
    used = {
        (path.relative_to(FOLDER).as_posix(), name) for path in FOLDER.rglob("*.py") for name in private_names_in(path)
    }
    listed = {(private.file, private.name) for private in PRIVATE_NAMES}
    assert used == listed, "every private name that worlds/mujoco uses of MuJoCo and dm_control belongs in this list"


class LogMessageHead(ctypes.Structure):
    """The first fields of mjLogMessage, as the guard reads them."""

    _fields_ = (("level", ctypes.c_int), ("topic", ctypes.c_int), ("subject", ctypes.c_char * 1024))


def test_log_messages_begin_with_level_and_text() -> None:
    seen = []

    def note(message: Any) -> None:
        seen.append((message.contents.level, message.contents.subject))

    handler = ctypes.CFUNCTYPE(None, ctypes.POINTER(LogMessageHead))(note)
    set_handler = load_library()._mjPRIVATE_setTlsLogHandler
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    before = set_handler(ctypes.cast(handler, ctypes.c_void_p))
    load_library().mju_warning(b"layout")
    set_handler(before)
    missing = f"a warning arrives as {seen}, expected level 2 and the text at byte 8 of mjLogMessage"
    assert seen == [(2, b"layout")], advice("mujoco", missing, C_CALLS, "errors inside MuJoCo")


def test_arrays_of_an_mjdata_are_at_fixed_offsets() -> None:
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><site name="a"/><body><geom size="1"/><site name="b" pos="0 0 1"/></body></worldbody>'
        '<tendon><spatial><site site="a"/><site site="b"/></spatial></tendon></mujoco>'
    )
    simulations = [mujoco.MjData(model) for _ in range(3)]
    offsets = {
        tuple(
            int(getattr(data, name).ctypes.data - data.wrap_xpos.ctypes.data)
            for name in ("ten_length", "ten_wrapadr", "ten_wrapnum", "wrap_obj")
        )
        for data in simulations
    }
    missing = f"the offsets of tendon arrays from wrap_xpos differ between MjData of one model: {sorted(offsets)}"
    assert len(offsets) == 1, advice("mujoco", missing, TENDONS, "drawing tendons")
    dtypes = [getattr(simulations[0], name).dtype for name in ("ten_wrapadr", "ten_wrapnum", "wrap_obj")]
    assert dtypes == [np.int32] * 3, advice(
        "mujoco", f"tendon paths are {dtypes}, not int32", TENDONS, "drawing tendons"
    )


def test_the_address_of_the_arena_is_after_that_of_the_buffer() -> None:
    model = mujoco.MjModel.from_xml_string('<mujoco><size memory="3M"/></mujoco>')
    data = mujoco.MjData(model)
    arena = library._read_pointer(data._address + library._arena_offset())
    size_bytes = library._usable_bytes(arena)
    missing = f"the pointer after that to the buffer is to {size_bytes} bytes, expected the {model.narena} of the arena"
    assert model.narena <= size_bytes < model.narena + 4096, advice("mujoco", missing, LIBRARY, "memory of lanes")


def test_warning_counts_are_every_other_int32() -> None:
    counts = mujoco.MjData(empty_model()).warning.number
    layout = (counts.size, counts.strides, counts.dtype)
    missing = f"MjData.warning.number has size, strides and dtype {layout}, expected 7, (8,) and int32"
    assert layout == (7, (8,), np.int32), advice("mujoco", missing, LIBRARY, "warnings of each lane")
