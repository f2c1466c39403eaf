"""Environments of Gymnasium: made by id, closed when they are dropped, and their errors as texts."""

import contextlib
import copy
import importlib
import logging
import os
import re
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from worldloom.worlds.settings import SettingError

log = logging.getLogger("worldloom.worlds")

_NUMBER = re.compile(r"\d+")
_MAX_TEXT = 300
"""Most characters of an error's text that are repeated."""
_MAX_LOGGED = 32
"""Most reasons that a family logs."""
_EXTRAS = {
    "gymnasium.envs.box2d": "gymnasium[box2d]",
    "gymnasium.envs.phys2d": "gymnasium[jax]",
    "gymnasium.envs.tabular": "gymnasium[jax]",
    "gymnasium.": "worldloom[gym]",
    "gymnasium_robotics.": "worldloom[gym]",
}
"""Extras that install the packages of environments, by the beginning of their modules; the first that fits counts."""

# pygame, which some environments draw with, greets on the standard output when it is imported.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")


def make_environment(
    spec: EnvSpec, kwargs: Mapping[str, object], max_steps: int, render_mode: str | None = None
) -> gymnasium.Env[Any, Any]:
    """Make an environment with its own wrappers and time limit; `max_steps` replaces the latter unless it is 0.

    Checks of Gymnasium that would run in each step are left out: actions and observations are checked here.
    """
    unchecked = copy.copy(spec)
    unchecked.order_enforce = False
    given = {**kwargs, **({} if render_mode is None else {"render_mode": render_mode})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as for bounds of a Box that are rounded
        return gymnasium.make(unchecked, max_steps or None, disable_env_checker=True, **given)


def make_or_refuse(spec: EnvSpec, kwargs: Mapping[str, object], max_steps: int) -> gymnasium.Env[Any, Any]:
    """Make an environment; raise SettingError if it cannot be made with these arguments, or lacks a package."""
    if not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # else pygame prints that it finds no screen
    with contextlib.suppress(ImportError):
        importlib.import_module("worldloom.worlds.mujoco")  # sets where MuJoCo's warnings go, before it has any
    try:
        made = make_environment(spec, kwargs, max_steps)
        made.reset(seed=0)  # arguments that no episode can begin with are refused too
        return made
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        module = str(spec.entry_point).partition(":")[0]
        extra = next((extra for prefix, extra in _EXTRAS.items() if module.startswith(prefix)), None)
        missing = getattr(error, "name", None)
        needed = f"the module {missing!r}, which cannot be imported" if missing else "a package that is not installed"
        advice = f"it to be installed, such as by pip install '{extra}'"
        if extra is None:
            advice = "it to be installed, or to lie in the directory that worldloom is started in"
        raise SettingError(
            f"setting 'id' is {spec.id!r}, which needs {needed} ({error_text(error)}): expected {advice}"
        ) from None
    except BaseException as error:
        raise_interrupt(error)
        raise refusal(spec.id, kwargs, "cannot be made", error) from None


def refusal(env_id: str, kwargs: Mapping[str, object], problem: str, error: BaseException) -> SettingError:
    """Return the refusal of an environment that raised an error; `problem` says when, such as 'cannot be made'."""
    given, expected = "here", "an environment that works with the packages that are installed"
    if kwargs:
        given, expected = f"with the keyword arguments {describe_kwargs(kwargs)}", "arguments that it accepts"
    advice = ""
    if isinstance(error, AssertionError) and not error.args:
        advice = "; docs/gym.md names tasks that newer packages cannot make"
    return SettingError(
        f"setting 'id' is {env_id!r}, which {problem} {given}: expected {expected} ({error_text(error)}){advice}"
    )


def describe_kwargs(kwargs: Mapping[str, object]) -> str:
    """Return keyword arguments as a short text."""
    text = ", ".join(f"{name}={value!r}" for name, value in kwargs.items()) or "none"
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def raise_interrupt(error: BaseException) -> None:
    """Raise an error of an environment again if it may be the user's Ctrl-C, and return for all others.

    Python raises KeyboardInterrupt on the main thread alone. A server calls environments on other threads, where it is
    the environment's own error.
    """
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


def error_text(error: BaseException) -> str:
    """Return the type and message of an error in one line of limited length; of an assertion without one, the code."""
    try:
        message = str(error)
    except BaseException as another:
        raise_interrupt(another)
        message = f"its text cannot be made, which raises {type(another).__name__}"
    if isinstance(error, AssertionError) and not message and error.__traceback__ is not None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{place.line} ({os.path.basename(place.filename)}, line {place.lineno})"
    text = " ".join(f"{type(error).__name__}: {message}".split())
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


class LaneEnvironment:
    """The environment of a lane. It is closed when nothing refers to this object any more."""

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        self.env = environment
        weakref.finalize(self, _close, environment).atexit = False


def _close(environment: gymnasium.Env[Any, Any]) -> None:
    try:
        with _pygame_kept():
            environment.close()
    except BaseException as error:
        raise_interrupt(error)
        log.info("an environment could not be closed: %s", error_text(error))


@contextlib.contextmanager
def _pygame_kept() -> Iterator[None]:
    """Keep an environment that is closed from ending pygame, which the others draw with."""
    pygame: Any = sys.modules.get("pygame")
    if pygame is None:
        yield
        return
    kept = pygame.quit, pygame.display.quit
    pygame.quit = pygame.display.quit = lambda: None
    try:
        yield
    finally:
        pygame.quit, pygame.display.quit = kept


class FailureLog:
    """Log of what went wrong in environments, with each reason once."""

    def __init__(self, env_id: str) -> None:
        self._env_id = env_id
        self._reasons: set[str] = set()

    def add(self, what: str, error: BaseException) -> None:
        """Log that an environment raised an error; `what` says in which call, and what follows from it."""
        reason = f"{what}: {error_text(error)}"
        key = _NUMBER.sub("0", reason)  # reasons that differ in a number are one
        if key not in self._reasons and len(self._reasons) < _MAX_LOGGED:
            self._reasons.add(key)
            log.warning("an environment %s raised an error %s", self._env_id, reason)
