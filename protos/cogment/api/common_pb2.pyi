from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VersionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VersionInfo(_message.Message):
    __slots__ = ("versions",)
    class Version(_message.Message):
        __slots__ = ("name", "version")
        NAME_FIELD_NUMBER: _ClassVar[int]
        VERSION_FIELD_NUMBER: _ClassVar[int]
        name: str
        version: str
        def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[VersionInfo.Version]
    def __init__(self, versions: _Optional[_Iterable[_Union[VersionInfo.Version, _Mapping]]] = ...) -> None: ...

class TrialConfig(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class ActorConfig(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class EnvironmentConfig(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class EnvironmentParams(_message.Message):
    __slots__ = ("endpoint", "config")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    config: EnvironmentConfig
    def __init__(self, endpoint: _Optional[str] = ..., config: _Optional[_Union[EnvironmentConfig, _Mapping]] = ...) -> None: ...

class ActorParams(_message.Message):
    __slots__ = ("actor_class", "endpoint", "config")
    ACTOR_CLASS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    actor_class: str
    endpoint: str
    config: ActorConfig
    def __init__(self, actor_class: _Optional[str] = ..., endpoint: _Optional[str] = ..., config: _Optional[_Union[ActorConfig, _Mapping]] = ...) -> None: ...

class TrialParams(_message.Message):
    __slots__ = ("trial_config", "environment", "actors", "max_steps", "max_inactivity")
    TRIAL_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    ACTORS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    MAX_INACTIVITY_FIELD_NUMBER: _ClassVar[int]
    trial_config: TrialConfig
    environment: EnvironmentParams
    actors: _containers.RepeatedCompositeFieldContainer[ActorParams]
    max_steps: int
    max_inactivity: int
    def __init__(self, trial_config: _Optional[_Union[TrialConfig, _Mapping]] = ..., environment: _Optional[_Union[EnvironmentParams, _Mapping]] = ..., actors: _Optional[_Iterable[_Union[ActorParams, _Mapping]]] = ..., max_steps: _Optional[int] = ..., max_inactivity: _Optional[int] = ...) -> None: ...

class ObservationData(_message.Message):
    __slots__ = ("content", "snapshot")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    snapshot: bool
    def __init__(self, content: _Optional[bytes] = ..., snapshot: bool = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("tick_id", "timestamp", "data")
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    tick_id: int
    timestamp: int
    data: ObservationData
    def __init__(self, tick_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., data: _Optional[_Union[ObservationData, _Mapping]] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class Feedback(_message.Message):
    __slots__ = ("actor_id", "tick_id", "value", "confidence", "content", "agent_id")
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    TICK_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    actor_id: int
    tick_id: int
    value: float
    confidence: float
    content: bytes
    agent_id: int
    def __init__(self, actor_id: _Optional[int] = ..., tick_id: _Optional[int] = ..., value: _Optional[float] = ..., confidence: _Optional[float] = ..., content: _Optional[bytes] = ..., agent_id: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("sender_id", "receiver_id", "payload")
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    sender_id: int
    receiver_id: int
    payload: _any_pb2.Any
    def __init__(self, sender_id: _Optional[int] = ..., receiver_id: _Optional[int] = ..., payload: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
