from dm_env_rpc.v1 import dm_env_rpc_pb2 as _dm_env_rpc_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnvironmentConfig(_message.Message):
    __slots__ = ("world_settings", "actor_classes", "reward_confidence", "zero_reward_confidence", "actor_order")
    class WorldSettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _dm_env_rpc_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_dm_env_rpc_pb2.Tensor, _Mapping]] = ...) -> None: ...
    WORLD_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_CLASSES_FIELD_NUMBER: _ClassVar[int]
    REWARD_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    ZERO_REWARD_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_ORDER_FIELD_NUMBER: _ClassVar[int]
    world_settings: _containers.MessageMap[str, _dm_env_rpc_pb2.Tensor]
    actor_classes: _containers.RepeatedCompositeFieldContainer[ActorClass]
    reward_confidence: float
    zero_reward_confidence: float
    actor_order: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, world_settings: _Optional[_Mapping[str, _dm_env_rpc_pb2.Tensor]] = ..., actor_classes: _Optional[_Iterable[_Union[ActorClass, _Mapping]]] = ..., reward_confidence: _Optional[float] = ..., zero_reward_confidence: _Optional[float] = ..., actor_order: _Optional[_Iterable[str]] = ...) -> None: ...

class ActorClass(_message.Message):
    __slots__ = ("id", "join_settings", "requested_observations", "deltas")
    class JoinSettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _dm_env_rpc_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_dm_env_rpc_pb2.Tensor, _Mapping]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    JOIN_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    DELTAS_FIELD_NUMBER: _ClassVar[int]
    id: str
    join_settings: _containers.MessageMap[str, _dm_env_rpc_pb2.Tensor]
    requested_observations: _containers.RepeatedScalarFieldContainer[str]
    deltas: bool
    def __init__(self, id: _Optional[str] = ..., join_settings: _Optional[_Mapping[str, _dm_env_rpc_pb2.Tensor]] = ..., requested_observations: _Optional[_Iterable[str]] = ..., deltas: bool = ...) -> None: ...

class TrialConfig(_message.Message):
    __slots__ = ("world_settings", "reward_confidence", "zero_reward_confidence")
    class WorldSettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _dm_env_rpc_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_dm_env_rpc_pb2.Tensor, _Mapping]] = ...) -> None: ...
    WORLD_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    REWARD_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    ZERO_REWARD_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    world_settings: _containers.MessageMap[str, _dm_env_rpc_pb2.Tensor]
    reward_confidence: float
    zero_reward_confidence: float
    def __init__(self, world_settings: _Optional[_Mapping[str, _dm_env_rpc_pb2.Tensor]] = ..., reward_confidence: _Optional[float] = ..., zero_reward_confidence: _Optional[float] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("actions",)
    class ActionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _dm_env_rpc_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_dm_env_rpc_pb2.Tensor, _Mapping]] = ...) -> None: ...
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.MessageMap[str, _dm_env_rpc_pb2.Tensor]
    def __init__(self, actions: _Optional[_Mapping[str, _dm_env_rpc_pb2.Tensor]] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("observations",)
    class ObservationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _dm_env_rpc_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_dm_env_rpc_pb2.Tensor, _Mapping]] = ...) -> None: ...
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.MessageMap[str, _dm_env_rpc_pb2.Tensor]
    def __init__(self, observations: _Optional[_Mapping[str, _dm_env_rpc_pb2.Tensor]] = ...) -> None: ...

class ObservationDelta(_message.Message):
    __slots__ = ("observations",)
    class ObservationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _dm_env_rpc_pb2.Tensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_dm_env_rpc_pb2.Tensor, _Mapping]] = ...) -> None: ...
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.MessageMap[str, _dm_env_rpc_pb2.Tensor]
    def __init__(self, observations: _Optional[_Mapping[str, _dm_env_rpc_pb2.Tensor]] = ...) -> None: ...
