"""Services that may change a trial's parameters before it begins."""

from collections.abc import Sequence

from worldloom.protos.cogment.api.common_pb2 import TrialParams
from worldloom.protos.cogment.api.hooks_pb2 import TrialContext
from worldloom.protos.cogment.api.hooks_pb2_grpc import TrialHooksStub
from worldloom.server.cogment.cast import cast_of
from worldloom.server.cogment.channels import Channels, ask
from worldloom.server.cogment.settings import TrialSettings
from worldloom.server.errors import FailedPrecondition, InvalidArgument


class Hooks:
    """The hooks of a server, called one after another."""

    def __init__(self, settings: TrialSettings, channels: Channels) -> None:
        self._endpoints = settings.pre_hooks
        self._actor_classes = settings.actor_classes
        self._deadline_s = settings.deadline_s
        self._channels = channels

    async def pre_trial(self, context: TrialContext) -> TrialParams:
        """What the hooks make of a trial's parameters. Of the rest of the context they change nothing."""
        params = context.params
        for endpoint in self._endpoints:
            given = TrialContext(params=params, trial_id=context.trial_id, user_id=context.user_id)
            params = (await self._call(endpoint, given)).params
            _check(endpoint, params, self._actor_classes)
        return params

    async def _call(self, endpoint: str, context: TrialContext) -> TrialContext:
        stub = TrialHooksStub(self._channels.take(endpoint))
        try:
            call = stub.PreTrial(context, timeout=self._deadline_s)
            reply: TrialContext = await ask(call, f"the hook at {endpoint}: PreTrial", self._deadline_s)
        finally:
            await self._channels.give_back(endpoint)
        return reply


def _check(endpoint: str, params: TrialParams, actor_classes: Sequence[str]) -> None:
    try:
        cast_of(params, actor_classes)
    except InvalidArgument as error:
        raise FailedPrecondition(f"the hook at {endpoint} gave a trial parameters that cannot be: {error}") from None
