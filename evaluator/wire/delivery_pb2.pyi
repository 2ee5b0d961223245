from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Member(_message.Message):
    __slots__ = ("instance", "namespace", "pod", "pod_uid", "node", "version")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    instance: str
    namespace: str
    pod: str
    pod_uid: str
    node: str
    version: str
    def __init__(self, instance: _Optional[str] = ..., namespace: _Optional[str] = ..., pod: _Optional[str] = ..., pod_uid: _Optional[str] = ..., node: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("member", "selector", "digest", "revision", "served_for_ms", "replaced", "unsaved", "sets", "hidden")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SERVED_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    member: Member
    selector: str
    digest: str
    revision: str
    served_for_ms: int
    replaced: bool
    unsaved: str
    sets: _containers.RepeatedCompositeFieldContainer[ServedSet]
    hidden: _containers.RepeatedCompositeFieldContainer[HiddenFlag]
    def __init__(self, member: _Optional[_Union[Member, _Mapping]] = ..., selector: _Optional[str] = ..., digest: _Optional[str] = ..., revision: _Optional[str] = ..., served_for_ms: _Optional[int] = ..., replaced: _Optional[bool] = ..., unsaved: _Optional[str] = ..., sets: _Optional[_Iterable[_Union[ServedSet, _Mapping]]] = ..., hidden: _Optional[_Iterable[_Union[HiddenFlag, _Mapping]]] = ...) -> None: ...

class ServedSet(_message.Message):
    __slots__ = ("order", "flag_set", "digest", "revision")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    FLAG_SET_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    order: str
    flag_set: str
    digest: str
    revision: str
    def __init__(self, order: _Optional[str] = ..., flag_set: _Optional[str] = ..., digest: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class HiddenFlag(_message.Message):
    __slots__ = ("key", "by", "flag_set")
    KEY_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    FLAG_SET_FIELD_NUMBER: _ClassVar[int]
    key: str
    by: str
    flag_set: str
    def __init__(self, key: _Optional[str] = ..., by: _Optional[str] = ..., flag_set: _Optional[str] = ...) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ("next_ms",)
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    next_ms: int
    def __init__(self, next_ms: _Optional[int] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("member", "selector")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    member: Member
    selector: str
    def __init__(self, member: _Optional[_Union[Member, _Mapping]] = ..., selector: _Optional[str] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IdentifyRequest(_message.Message):
    __slots__ = ("asked",)
    ASKED_FIELD_NUMBER: _ClassVar[int]
    asked: _containers.RepeatedCompositeFieldContainer[AskedPod]
    def __init__(self, asked: _Optional[_Iterable[_Union[AskedPod, _Mapping]]] = ...) -> None: ...

class AskedPod(_message.Message):
    __slots__ = ("address", "selector")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    address: str
    selector: str
    def __init__(self, address: _Optional[str] = ..., selector: _Optional[str] = ...) -> None: ...

class IdentifyResponse(_message.Message):
    __slots__ = ("pods",)
    PODS_FIELD_NUMBER: _ClassVar[int]
    pods: _containers.RepeatedCompositeFieldContainer[IdentifiedPod]
    def __init__(self, pods: _Optional[_Iterable[_Union[IdentifiedPod, _Mapping]]] = ...) -> None: ...

class IdentifiedPod(_message.Message):
    __slots__ = ("namespace", "pod", "pod_uid", "flag_sets", "refusal")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    FLAG_SETS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    pod: str
    pod_uid: str
    flag_sets: _containers.RepeatedScalarFieldContainer[str]
    refusal: str
    def __init__(self, namespace: _Optional[str] = ..., pod: _Optional[str] = ..., pod_uid: _Optional[str] = ..., flag_sets: _Optional[_Iterable[str]] = ..., refusal: _Optional[str] = ...) -> None: ...
