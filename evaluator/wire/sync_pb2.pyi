from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SyncState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_STATE_UNSPECIFIED: _ClassVar[SyncState]
    SYNC_STATE_ALL: _ClassVar[SyncState]
    SYNC_STATE_ADD: _ClassVar[SyncState]
    SYNC_STATE_UPDATE: _ClassVar[SyncState]
    SYNC_STATE_DELETE: _ClassVar[SyncState]
    SYNC_STATE_PING: _ClassVar[SyncState]
SYNC_STATE_UNSPECIFIED: SyncState
SYNC_STATE_ALL: SyncState
SYNC_STATE_ADD: SyncState
SYNC_STATE_UPDATE: SyncState
SYNC_STATE_DELETE: SyncState
SYNC_STATE_PING: SyncState

class SyncFlagsRequest(_message.Message):
    __slots__ = ("provider_id", "selector")
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    provider_id: str
    selector: str
    def __init__(self, provider_id: _Optional[str] = ..., selector: _Optional[str] = ...) -> None: ...

class SyncFlagsResponse(_message.Message):
    __slots__ = ("flag_configuration", "sync_context")
    FLAG_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    SYNC_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    flag_configuration: str
    sync_context: _struct_pb2.Struct
    def __init__(self, flag_configuration: _Optional[str] = ..., sync_context: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class OldSyncFlagsResponse(_message.Message):
    __slots__ = ("flag_configuration", "state")
    FLAG_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    flag_configuration: str
    state: SyncState
    def __init__(self, flag_configuration: _Optional[str] = ..., state: _Optional[_Union[SyncState, str]] = ...) -> None: ...

class FetchAllFlagsResponse(_message.Message):
    __slots__ = ("flag_configuration",)
    FLAG_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    flag_configuration: str
    def __init__(self, flag_configuration: _Optional[str] = ...) -> None: ...

class GetMetadataRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMetadataResponse(_message.Message):
    __slots__ = ("metadata",)
    METADATA_FIELD_NUMBER: _ClassVar[int]
    metadata: _struct_pb2.Struct
    def __init__(self, metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
