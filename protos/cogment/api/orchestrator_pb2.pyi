from worldloom.protos.cogment.api import common_pb2 as _common_pb2
from worldloom.protos.cogment.api import agent_pb2 as _agent_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TrialHeartbeatRequest(_message.Message):
    __slots__ = ("trial_id",)
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    def __init__(self, trial_id: _Optional[str] = ...) -> None: ...

class TrialHeartbeatReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrialStartRequest(_message.Message):
    __slots__ = ("config", "user_id")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    config: _common_pb2.TrialConfig
    user_id: str
    def __init__(self, config: _Optional[_Union[_common_pb2.TrialConfig, _Mapping]] = ..., user_id: _Optional[str] = ...) -> None: ...

class TrialJoinRequest(_message.Message):
    __slots__ = ("trial_id", "actor_id")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    actor_id: int
    def __init__(self, trial_id: _Optional[str] = ..., actor_id: _Optional[int] = ...) -> None: ...

class TrialStartReply(_message.Message):
    __slots__ = ("trial_id", "actor_id", "human_config", "observation", "actor_counts")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    HUMAN_CONFIG_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    ACTOR_COUNTS_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    actor_id: int
    human_config: _common_pb2.ActorConfig
    observation: _common_pb2.Observation
    actor_counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, trial_id: _Optional[str] = ..., actor_id: _Optional[int] = ..., human_config: _Optional[_Union[_common_pb2.ActorConfig, _Mapping]] = ..., observation: _Optional[_Union[_common_pb2.Observation, _Mapping]] = ..., actor_counts: _Optional[_Iterable[int]] = ...) -> None: ...

class TrialEndRequest(_message.Message):
    __slots__ = ("trial_id",)
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    def __init__(self, trial_id: _Optional[str] = ...) -> None: ...

class TrialEndReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrialActionRequest(_message.Message):
    __slots__ = ("trial_id", "actor_id", "action")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    actor_id: int
    action: _common_pb2.Action
    def __init__(self, trial_id: _Optional[str] = ..., actor_id: _Optional[int] = ..., action: _Optional[_Union[_common_pb2.Action, _Mapping]] = ...) -> None: ...

class TrialActionReply(_message.Message):
    __slots__ = ("observation", "reward", "trial_is_over", "messages")
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TRIAL_IS_OVER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    observation: _common_pb2.Observation
    reward: _agent_pb2.Reward
    trial_is_over: bool
    messages: _agent_pb2.MessageCollection
    def __init__(self, observation: _Optional[_Union[_common_pb2.Observation, _Mapping]] = ..., reward: _Optional[_Union[_agent_pb2.Reward, _Mapping]] = ..., trial_is_over: bool = ..., messages: _Optional[_Union[_agent_pb2.MessageCollection, _Mapping]] = ...) -> None: ...

class TrialFeedbackRequest(_message.Message):
    __slots__ = ("trial_id", "feedbacks")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    FEEDBACKS_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    feedbacks: _containers.RepeatedCompositeFieldContainer[_common_pb2.Feedback]
    def __init__(self, trial_id: _Optional[str] = ..., feedbacks: _Optional[_Iterable[_Union[_common_pb2.Feedback, _Mapping]]] = ...) -> None: ...

class TrialFeedbackReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrialMessageRequest(_message.Message):
    __slots__ = ("trial_id", "messages")
    TRIAL_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    trial_id: str
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    def __init__(self, trial_id: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]] = ...) -> None: ...

class TrialMessageReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
