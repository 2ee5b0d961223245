from __future__ import annotations

import pytest

from controller.sources.bucket_client import explain, impossible_key

ASKED = "Generic S3 error: Error performing GET https://h/b?list-type=2 in 1.2ms"
STATUS = f"{ASKED} - Server returned non-2xx status code: "
DEBUG = "Generic S3 error\nDebug source:\n"
FAILED, UNREACHED = "BucketOperationFailed", "the store cannot be reached"
REFUSED = "AuthenticationFailed"


@pytest.mark.parametrize(
    ("text", "reason", "message"),
    [
        (f"{STATUS}403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code><Message>No.</Message></Error>",
         REFUSED, "the store answered 403 SignatureDoesNotMatch"),
        (f"{STATUS}404 Not Found: <Error>\n<Code>NoSuchBucket</Code></Error>",
         "BucketNotFound", "the store answered 404 NoSuchBucket"),
        (f"{STATUS}403: <Code>a-body</Code>", REFUSED, "the store answered 403"),
        (f"{STATUS}503 Slow Down: <html>later</html>", FAILED, "the store answered 503"),
        (f'{DEBUG}ConnectError(Os {{ code: 111, message: "Connection refused" }})',
         FAILED, f"{UNREACHED}: Connection refused"),
        (f"{DEBUG}error: InvalidCertificate(\n  UnknownIssuer,\n)",
         "CertificateRefused", "the store's certificate is not trusted: UnknownIssuer"),
        (f"{DEBUG}kind: Timeout", "Timeout", "the store does not answer"),
        ("Error performing PUT http://169.254.169.254/latest/api/token", REFUSED, "there are no credentials"),
        ("what nobody foresaw", FAILED, f"{UNREACHED}: the connection failed"),
    ],
)  # fmt: skip
def test_each_failure_has_a_reason_and_one_line(text: str, reason: str, message: str) -> None:
    assert explain(text, ()) == (reason, message)


def test_a_line_holds_no_secret_no_escape_codes_and_no_more_than_fits() -> None:
    _, message = explain(f'Generic S3 error\nerror: "\x1b[2J your key is s3cret {"x" * 150}"', ["s3cret"])
    assert "your key is ***" in message
    assert message.isprintable()
    assert "s3cret" not in message
    assert len(message) < 250


def test_the_key_that_cannot_be_a_file_is_named() -> None:
    assert (
        impossible_key('Encountered object with invalid path: Path "a//b" contained empty path segment')
        == "a//b"
    )
    assert impossible_key('Error parsing Path "../x": Encountered illegal') == "../x"
    assert impossible_key("another text") == "a key"
