"""Turns obstore's errors into a reason and one line without addresses, times and other texts. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from controller.runtime.user_text.plain_text import one_line, redact

if TYPE_CHECKING:
    from collections.abc import Iterable

_METADATA: Final = "169.254.169.254"
"""The server that gives a machine in a cloud its identity, asked where no credentials are set."""
_READ: Final = 20_000
"""Characters; a store may answer with any amount."""
_SHOWN: Final = 200
_STATUS: Final = re.compile(r"status code: (\d{3})|\bstatus: (\d{3})\b")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>")
_CAUSE: Final = re.compile(r'(?:message|error): "([^"\n]{1,200})"|InvalidCertificate\(\s*(\w{1,50})')
_PATH: Final = re.compile(r'Path "(.{1,1024}?)"[ :]', re.DOTALL)
_KEY: Final = re.compile(
    r"Unable to (?:open|decode) service account|Invalid (?:Access Key|RSA key)|ReadPem|MissingSasComponent"
)
"""Words for credentials that obstore cannot use."""

_BY_CODE: Final = {
    "NoSuchBucket": "BucketNotFound",
    "ContainerNotFound": "BucketNotFound",
    "ExpiredToken": "AuthenticationFailed",
    "RequestTimeTooSkewed": "AuthenticationFailed",
}
_CODES: Final = frozenset(
    {
        *_BY_CODE, "AccessDenied", "AccountProblem", "AllAccessDisabled", "AuthenticationFailed",
        "AuthorizationFailure", "AuthorizationHeaderMalformed", "AuthorizationPermissionMismatch",
        "BlobNotFound", "ExpiredTokenException", "IDPRejectedClaim", "InternalError", "InvalidAccessKeyId",
        "InvalidArgument", "InvalidBucketName", "InvalidIdentityToken", "InvalidObjectState",
        "InvalidRequest", "InvalidSecurity", "InvalidToken", "MethodNotAllowed", "MissingSecurityHeader",
        "NoSuchKey", "NotImplemented", "OperationTimedOut", "PermanentRedirect", "PreconditionFailed",
        "PublicAccessNotPermitted", "RequestTimeout", "ServerBusy", "ServiceUnavailable",
        "SignatureDoesNotMatch", "SlowDown", "TemporaryRedirect", "TokenRefreshRequired",
        "UserProjectMissing", "XAmzContentSHA256Mismatch",
    }
)  # fmt: skip
"""What is shown of an answer: these words of S3, of the services that give keys, of Azure and of Google."""
_DENIED: Final = frozenset({"401", "403", "407"})


def explain(complaint: str, secrets: Iterable[str]) -> tuple[str, str]:
    """(reason, what happened) of the text of one of obstore's exceptions; no `secrets` are in it."""
    text = complaint[:_READ]
    if status := _STATUS.search(text):
        return _answer_failure(status[1] or status[2], text)
    if _KEY.search(text):
        return "AuthenticationFailed", "there is no key or token in a form that the store takes"
    if _METADATA in text:
        return "AuthenticationFailed", "there are no credentials"
    cause = _CAUSE.search(text)
    detail = _line((cause[1] or cause[2]) if cause else "", secrets)
    if "InvalidCertificate" in text or "certificate" in detail.lower():
        return (
            "CertificateRefused",
            f"the store's certificate is not trusted: {detail or 'it is not valid'}",
        )
    if "Timeout" in text or "TimedOut" in text:
        return "Timeout", "the store does not answer"
    return "BucketOperationFailed", f"the store cannot be reached: {detail or 'the connection failed'}"


def impossible_key(complaint: str) -> str:
    """The key that cannot be a file's name, of the text of obstore's InvalidPathError."""
    match = _PATH.search(complaint[:_READ])
    return _line(match[1], ()) if match else "a key"


def _answer_failure(status: str, text: str) -> tuple[str, str]:
    match = _CODE.search(text)
    code = match[1] if match and match[1] in _CODES else ""
    otherwise = "AuthenticationFailed" if status in _DENIED else "BucketOperationFailed"
    return _BY_CODE.get(code, otherwise), f"the store answered {status} {code}".rstrip()


def _line(text: str, secrets: Iterable[str]) -> str:
    return one_line(redact(text, secrets), _SHOWN).strip()
