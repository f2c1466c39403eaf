from worldloom.protos.cogment.api import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentStartRequest(_message.Message):
    __slots__ = ("trial_id", "actor_id", "config", "trial_config", "actor_counts")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TRIAL_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ACTOR_COUNTS_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    actor_id: int
    config: _common_pb2.ActorConfig
    trial_config: _common_pb2.TrialConfig
    actor_counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, trial_id: _Optional[str] = ..., actor_id: _Optional[int] = ..., config: _Optional[_Union[_common_pb2.ActorConfig, _Mapping]] = ..., trial_config: _Optional[_Union[_common_pb2.TrialConfig, _Mapping]] = ..., actor_counts: _Optional[_Iterable[int]] = ...) -> None: ...

class AgentStartReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AgentEndRequest(_message.Message):
    __slots__ = ("trial_id", "actor_id")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    actor_id: int
    def __init__(self, trial_id: _Optional[str] = ..., actor_id: _Optional[int] = ...) -> None: ...

class AgentEndReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AgentDecideRequest(_message.Message):
    __slots__ = ("trial_id", "actor_id", "observation")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    actor_id: int
    observation: _common_pb2.Observation
    def __init__(self, trial_id: _Optional[str] = ..., actor_id: _Optional[int] = ..., observation: _Optional[_Union[_common_pb2.Observation, _Mapping]] = ...) -> None: ...

class AgentDecideReply(_message.Message):
    __slots__ = ("action", "feedbacks", "messages")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    FEEDBACKS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    action: _common_pb2.Action
    feedbacks: _containers.RepeatedCompositeFieldContainer[_common_pb2.Feedback]
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    def __init__(self, action: _Optional[_Union[_common_pb2.Action, _Mapping]] = ..., feedbacks: _Optional[_Iterable[_Union[_common_pb2.Feedback, _Mapping]]] = ..., messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]] = ...) -> None: ...

class Reward(_message.Message):
    __slots__ = ("value", "confidence", "feedbacks")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    FEEDBACKS_FIELD_NUMBER: _ClassVar[int]
    value: float
    confidence: float
    feedbacks: _containers.RepeatedCompositeFieldContainer[_common_pb2.Feedback]
    def __init__(self, value: _Optional[float] = ..., confidence: _Optional[float] = ..., feedbacks: _Optional[_Iterable[_Union[_common_pb2.Feedback, _Mapping]]] = ...) -> None: ...

class AgentRewardRequest(_message.Message):
    __slots__ = ("trial_id", "actor_id", "tick_id", "reward")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    actor_id: int
    tick_id: int
    reward: Reward
    def __init__(self, trial_id: _Optional[str] = ..., actor_id: _Optional[int] = ..., tick_id: _Optional[int] = ..., reward: _Optional[_Union[Reward, _Mapping]] = ...) -> None: ...

class AgentRewardReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MessageCollection(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]] = ...) -> None: ...

class AgentOnMessageRequest(_message.Message):
    __slots__ = ("trial_id", "actor_id", "messages")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    actor_id: int
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    def __init__(self, trial_id: _Optional[str] = ..., actor_id: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]] = ...) -> None: ...

class AgentOnMessageReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
