"""The modules between a client's Action and the engine's step, compared with the list in docs/architecture.md."""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
import numpy as np

from tests.support.call_path import NOT_ON_THE_PATH
from tests.support.environment_server import LIMITS, EngineThread
from tests.support.trial_engine import action, actor_class, config
from tests.support.trial_services import CallLog, FakeAgent, listening, run
from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Action, TrialParams
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialStub
from worldloom.server.cogment.environments.environment import EngineEnvironment, TrialWorlds
from worldloom.server.cogment.orchestrator.trials import Trials
from worldloom.server.cogment.services import TrialService
from worldloom.server.cogment.settings import BUILT_IN, HUMAN, TrialSettings
from worldloom.server.engine.engine import Engine

ROOT = Path(__file__).parents[3]
SECTION = "## Data flow of a trial's tick\n"
MAX_FILES = 10
WARM_UP_TICKS = 3
MOVE = action(move=np.array([1, 0], np.float32))


class PathRecorder:
    """Profile function that records the modules of the server from TrialService.Action to Engine.step.

    On the engine's thread only the posted call is recorded, not what the engine does in every tick.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        """In the order in which calls enter them."""
        self.is_armed = False
        """Record from the next Action on."""
        self._is_recording = self._is_in_posted_call = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not (self.is_armed or self._is_recording):
            return
        if code is TrialService.Action.__code__ and self.is_armed:
            self.is_armed, self._is_recording = False, True
        if not self._is_recording:
            return
        if threading.current_thread().name == "worldloom-engine":
            self._is_in_posted_call |= code is TrialWorlds.serve.__code__
            if not self._is_in_posted_call:
                return
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT / "server") and str(path.relative_to(ROOT)) not in NOT_ON_THE_PATH:
            self.files[str(path.relative_to(ROOT))] = None
            self._is_recording = code is not Engine.step.__code__


@contextmanager
def profiled(recorder: PathRecorder) -> Iterator[None]:
    """Profile this thread and those that are started meanwhile."""
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class MovingAgent(FakeAgent):
    async def Decide(self, request: Any, context: Any) -> Any:  # noqa: N802
        reply = await super().Decide(request, context)
        reply.action.content = MOVE
        return reply


def record_tick() -> list[str]:
    """Return the modules that a warm tick of a trial with a human and an agent enters."""
    recorder = PathRecorder()

    async def scenario() -> None:
        async with listening(MovingAgent("a", CallLog())) as (agent_endpoint, _):
            params = TrialParams()
            params.environment.endpoint = BUILT_IN
            environment_config = config(actor_class("player", "reward"), family="maze", seed=1)
            params.environment.config.content = environment_config.SerializeToString()
            for endpoint in (HUMAN, agent_endpoint):
                params.actors.add(actor_class="player", endpoint=endpoint)
            engine = EngineThread().engine
            trials = Trials(TrialSettings(("player",), params), EngineEnvironment(engine, None), LIMITS)
            async with listening(TrialService(trials)) as (endpoint, _):
                async with grpc.aio.insecure_channel(endpoint.removeprefix("grpc://")) as channel:
                    stub = TrialStub(channel)
                    trial_id = (await stub.Start(api.TrialStartRequest())).trial_id
                    for tick in range(WARM_UP_TICKS + 1):
                        recorder.is_armed = tick == WARM_UP_TICKS
                        request = api.TrialActionRequest(trial_id=trial_id, action=Action(content=MOVE))
                        await stub.Action(request)
                await trials.close()
            engine.stop()

    with profiled(recorder):
        run(scenario)
    return list(recorder.files)


def listed_files() -> list[str]:
    """Return the first file that each item of the numbered list in the page names."""
    section = (ROOT / "docs" / "architecture.md").read_text().partition(SECTION)[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


def test_a_tick_passes_the_modules_that_the_page_lists() -> None:
    files = record_tick()
    assert files == listed_files()
    assert len(files) <= MAX_FILES
