"""The Cogment API of one server: the services that are beside dm_env_rpc where `--cogment` names a file."""

import grpc

from worldloom.protos.cogment.api import environment_pb2, orchestrator_pb2
from worldloom.protos.cogment.api.environment_pb2_grpc import add_EnvironmentServicer_to_server
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import add_TrialServicer_to_server
from worldloom.protos.worldloom import trials_pb2
from worldloom.server.cogment.environments.engine_environment import EngineEnvironment
from worldloom.server.cogment.environments.service import EnvironmentService
from worldloom.server.cogment.orchestrator.service import TrialService
from worldloom.server.cogment.orchestrator.trials import Trials
from worldloom.server.cogment.settings import BUILT_IN, TrialSettings
from worldloom.server.engine.engine import Engine

SERVICES: tuple[str, ...] = (
    environment_pb2.DESCRIPTOR.services_by_name["Environment"].full_name,
    orchestrator_pb2.DESCRIPTOR.services_by_name["Trial"].full_name,
)


def add_services(server: grpc.aio.Server, engine: Engine, settings: TrialSettings) -> Trials:
    """Have a server offer them. The trials that come back are to be drained and closed when it ends."""
    limits = engine.limits
    environment = EngineEnvironment(engine, _defaults(settings))
    trials = Trials(settings, environment, limits)
    engine.counters.played = lambda: trials.played
    add_EnvironmentServicer_to_server(EnvironmentService(environment, limits), server)
    add_TrialServicer_to_server(TrialService(trials), server)
    return trials


def _defaults(settings: TrialSettings) -> trials_pb2.EnvironmentConfig | None:
    """What trials of other orchestrators have that configure nothing: the world of the file, if it has one."""
    environment = settings.params.environment
    if environment.endpoint != BUILT_IN:
        return None
    defaults: trials_pb2.EnvironmentConfig = trials_pb2.EnvironmentConfig.FromString(environment.config.content)
    return defaults
