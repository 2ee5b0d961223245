from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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
