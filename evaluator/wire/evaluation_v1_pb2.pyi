from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResolveRequest(_message.Message):
    __slots__ = ("flag_key", "context")
    FLAG_KEY_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    flag_key: str
    context: _struct_pb2.Struct
    def __init__(self, flag_key: _Optional[str] = ..., context: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ResolveAllRequest(_message.Message):
    __slots__ = ("context",)
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    context: _struct_pb2.Struct
    def __init__(self, context: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ResolveAllResponse(_message.Message):
    __slots__ = ("flags", "metadata")
    class FlagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: AnyFlag
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AnyFlag, _Mapping]] = ...) -> None: ...
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    flags: _containers.MessageMap[str, AnyFlag]
    metadata: _struct_pb2.Struct
    def __init__(self, flags: _Optional[_Mapping[str, AnyFlag]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class AnyFlag(_message.Message):
    __slots__ = ("reason", "variant", "bool_value", "string_value", "double_value", "object_value", "metadata")
    REASON_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_VALUE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    reason: str
    variant: str
    bool_value: bool
    string_value: str
    double_value: float
    object_value: _struct_pb2.Struct
    metadata: _struct_pb2.Struct
    def __init__(self, reason: _Optional[str] = ..., variant: _Optional[str] = ..., bool_value: _Optional[bool] = ..., string_value: _Optional[str] = ..., double_value: _Optional[float] = ..., object_value: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class EventStreamResponse(_message.Message):
    __slots__ = ("type", "data")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: str
    data: _struct_pb2.Struct
    def __init__(self, type: _Optional[str] = ..., data: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ResolveBooleanResponse(_message.Message):
    __slots__ = ("value", "reason", "variant", "metadata")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    value: bool
    reason: str
    variant: str
    metadata: _struct_pb2.Struct
    def __init__(self, value: _Optional[bool] = ..., reason: _Optional[str] = ..., variant: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ResolveStringResponse(_message.Message):
    __slots__ = ("value", "reason", "variant", "metadata")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    value: str
    reason: str
    variant: str
    metadata: _struct_pb2.Struct
    def __init__(self, value: _Optional[str] = ..., reason: _Optional[str] = ..., variant: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ResolveFloatResponse(_message.Message):
    __slots__ = ("value", "reason", "variant", "metadata")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    value: float
    reason: str
    variant: str
    metadata: _struct_pb2.Struct
    def __init__(self, value: _Optional[float] = ..., reason: _Optional[str] = ..., variant: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ResolveIntResponse(_message.Message):
    __slots__ = ("value", "reason", "variant", "metadata")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    value: int
    reason: str
    variant: str
    metadata: _struct_pb2.Struct
    def __init__(self, value: _Optional[int] = ..., reason: _Optional[str] = ..., variant: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ResolveObjectResponse(_message.Message):
    __slots__ = ("value", "reason", "variant", "metadata")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    value: _struct_pb2.Struct
    reason: str
    variant: str
    metadata: _struct_pb2.Struct
    def __init__(self, value: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., reason: _Optional[str] = ..., variant: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
