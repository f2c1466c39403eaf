"""Names of environments for `gymnasium.make` and `gymnasium.make_vec`, such as `worldloom/Maze-v0`.

`import worldloom` registers them. Gymnasium takes longer to import than worldloom, and servers and commands do without
it. So if it has not been imported yet, the names are registered at the end of its import, whoever asks for that.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from worldloom.client.single_env import SingleEnv
    from worldloom.client.vector_env import VectorEnv

_FAMILIES = {"Catch": "catch", "Cartpole": "cartpole", "Maze": "maze"}
DMC_TASKS = {
    "acrobot": ("swingup", "swingup_sparse"),
    "ball_in_cup": ("catch",),
    "cartpole": ("balance", "balance_sparse", "swingup", "swingup_sparse", "three_poles", "two_poles"),
    "cheetah": ("run",),
    "dog": ("fetch", "run", "stand", "trot", "walk"),
    "finger": ("spin", "turn_easy", "turn_hard"),
    "fish": ("swim", "upright"),
    "hopper": ("hop", "stand"),
    "humanoid": ("run", "run_pure_state", "stand", "walk"),
    "humanoid_CMU": ("run", "stand", "walk"),
    "lqr": ("lqr_2_1", "lqr_6_2"),
    "manipulator": ("bring_ball", "bring_peg", "insert_ball", "insert_peg"),
    "pendulum": ("swingup",),
    "point_mass": ("easy", "hard"),
    "quadruped": ("escape", "fetch", "run", "walk"),
    "reacher": ("easy", "hard"),
    "stacker": ("stack_2", "stack_4"),
    "swimmer": ("swimmer15", "swimmer6"),
    "walker": ("run", "stand", "walk"),
}
"""The tasks of dm_control's suite by domain. Written out, because a client need not have dm_control."""


def make_vector_env(
    family: str,
    num_envs: int = 1,
    *,
    address: str = "local",
    flat: bool = True,
    settings: Mapping[str, Any] | None = None,
    task_settings: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> "VectorEnv":
    """Make a VectorEnv for `gymnasium.make_vec`: flat, in this process. Other arguments are those of VectorEnv."""
    from worldloom.client.arguments import check_keywords
    from worldloom.client.vector_env import VectorEnv

    check_keywords(VectorEnv, arguments)
    return VectorEnv(
        address, family, num_envs, flat=flat, settings={**(task_settings or {}), **(settings or {})}, **arguments
    )


def make_single_env(
    family: str,
    *,
    address: str = "local",
    settings: Mapping[str, Any] | None = None,
    task_settings: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> "SingleEnv":
    """Make a SingleEnv for `gymnasium.make`, in this process. Other arguments are those of SingleEnv."""
    from worldloom.client.single_env import SingleEnv

    return SingleEnv(address, family, settings={**(task_settings or {}), **(settings or {})}, **arguments)


def register_envs() -> None:
    """Register all names with Gymnasium now, or at the end of its first import."""
    if sys.modules.get("gymnasium") is not None:
        _register_now()
    else:
        sys.meta_path.insert(0, _GymnasiumImport())


def list_env_ids() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each name with the keyword arguments of its env."""
    for name, family in _FAMILIES.items():
        yield f"worldloom/{name}-v0", {"family": family}
    for domain, tasks in DMC_TASKS.items():
        for task in tasks:
            arguments = {"family": "dmc", "task_settings": {"domain": domain, "task": task}}
            yield f"worldloom/dmc-{domain}-{task}-v0", arguments


def _register_now() -> None:
    import gymnasium

    for env_id, arguments in list_env_ids():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point=f"{__name__}:make_single_env",
                vector_entry_point=f"{__name__}:make_vector_env",
                kwargs=arguments,
            )


class _GymnasiumImport:
    """A finder of modules that asks the others, and adds the registration to the import of Gymnasium.

    It stays until Gymnasium has been imported: programs also look for a module without importing it.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> "ModuleSpec | None":
        """Return None, so that other finders are asked; for Gymnasium, what they find, with the registration added."""
        if name != "gymnasium":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: "ModuleType") -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _register_now()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]  # of this spec alone
        return spec
