"""Texts of Secrets: PEM of any content is read in time linear to its length."""

from __future__ import annotations

import time
from typing import Final

import pytest

from controller.runtime.secret_texts import SecretTexts, pem_blocks
from controller.runtime.setbacks import Stalled

BLOCK: Final = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"
CERTIFICATE: Final = BLOCK.format("CERTIFICATE")
MOST: Final = 64 * 1024
HOSTILE: Final = {
    "beginnings": "-----BEGIN CERTIFICATE-----\n" * 2_300,
    "beginnings of one line": "-----BEGIN CERTIFICATE-----" * 2_400,
    "beginnings of many kinds": "".join(f"-----BEGIN {n}-----\n" for n in range(3_000)),
    "beginnings and other ends": "".join(f"-----BEGIN A{n}-----\n-----END B-----\n" for n in range(1_500)),
    "one long line": "-" * MOST,
    "a long kind": f"-----BEGIN {'A' * 65_000}-----\n",
    "PGP beginnings": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n" * 1_700,
}


def test_blocks_have_their_kind_and_their_lines() -> None:
    text = f"a comment\n{CERTIFICATE}between\r\n{BLOCK.format('EC PRIVATE KEY')}"
    assert [(block.label, block.content) for block in pem_blocks(text)] == [
        ("CERTIFICATE", "AAAA"),
        ("EC PRIVATE KEY", "AAAA"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-----BEGIN CERTIFICATE-----\nAAAA\n",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
        "-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\n",
    ],
)
def test_an_incomplete_block_is_none(text: str) -> None:
    assert list(pem_blocks(text)) == []


def test_a_block_that_begins_anew_has_its_last_beginning() -> None:
    (block,) = pem_blocks(f"-----BEGIN CERTIFICATE-----\nBBBB\n{CERTIFICATE}")
    assert block.content == "AAAA"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("key", ["ca.crt", "tls.crt", "tls.key", "caFile"])
def test_the_largest_hostile_certificates_are_refused_within_the_bound_of_the_loop(
    key: str, text: str
) -> None:
    assert len(text) <= MOST
    began = time.perf_counter()
    with pytest.raises(Stalled) as caught:
        SecretTexts("shop/tls", {key: text.encode()}).tls()
    assert time.perf_counter() - began < 0.25
    assert caught.value.reason == "InvalidSecret"


@pytest.mark.parametrize(
    "key",
    [
        BLOCK.format("ENCRYPTED PRIVATE KEY"),
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    ],
)
def test_a_client_key_with_a_passphrase_is_refused(key: str) -> None:
    secret = SecretTexts("shop/tls", {"tls.crt": CERTIFICATE.encode(), "tls.key": key.encode()})
    with pytest.raises(Stalled, match=r"Secret shop/tls: 'tls.key' is encrypted: store the key without"):
        secret.tls()
