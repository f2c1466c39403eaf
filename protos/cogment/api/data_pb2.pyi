from worldloom.protos.cogment.api import common_pb2 as _common_pb2
from worldloom.protos.cogment.api import agent_pb2 as _agent_pb2
from worldloom.protos.cogment.api import environment_pb2 as _environment_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DatalogMsg(_message.Message):
    __slots__ = ("trial_params", "sample")
    TRIAL_PARAMS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    trial_params: _common_pb2.TrialParams
    sample: DatalogSample
    def __init__(self, trial_params: _Optional[_Union[_common_pb2.TrialParams, _Mapping]] = ..., sample: _Optional[_Union[DatalogSample, _Mapping]] = ...) -> None: ...

class DatalogSample(_message.Message):
    __slots__ = ("timestamp", "trial_id", "user_id", "observations", "actions", "rewards", "messages")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    trial_id: str
    user_id: str
    observations: _environment_pb2.ObservationSet
    actions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Action]
    rewards: _containers.RepeatedCompositeFieldContainer[_agent_pb2.Reward]
    messages: _containers.RepeatedCompositeFieldContainer[_agent_pb2.MessageCollection]
    def __init__(self, timestamp: _Optional[int] = ..., trial_id: _Optional[str] = ..., user_id: _Optional[str] = ..., observations: _Optional[_Union[_environment_pb2.ObservationSet, _Mapping]] = ..., actions: _Optional[_Iterable[_Union[_common_pb2.Action, _Mapping]]] = ..., rewards: _Optional[_Iterable[_Union[_agent_pb2.Reward, _Mapping]]] = ..., messages: _Optional[_Iterable[_Union[_agent_pb2.MessageCollection, _Mapping]]] = ...) -> None: ...

class LogReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
