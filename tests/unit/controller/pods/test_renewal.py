"""Certificates are trusted whenever they are in use, for twenty years."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from controller.pods.certificates import LEFT, LIFE, TRUSTED_FOR, Certificates, certificates_of, renew

NAMES = ("flagstaff-admission.flagstaff-system.svc", "127.0.0.1")
NOW = datetime(2026, 11, 23, tzinfo=UTC)


def leaf(found: Certificates) -> x509.Certificate:
    return x509.load_pem_x509_certificate(found.certificate)


def verify(served: Certificates, trusted: Certificates, now: datetime) -> None:
    """As an API server does that trusts `trusted`. Raises VerificationError."""
    authorities = x509.load_pem_x509_certificates(trusted.authorities)
    policy = PolicyBuilder().store(Store(authorities)).time(now)
    policy.build_server_verifier(x509.DNSName(NAMES[0])).verify(leaf(served), [])


def test_the_first_is_trusted_for_its_names_and_kept() -> None:
    made = renew(None, NAMES, NOW)
    verify(made, made, NOW)
    assert certificates_of(made.data()) == made
    assert renew(made, NAMES, NOW + LIFE - LEFT) is made


def test_one_that_nears_its_end_is_renewed_by_the_same_authority() -> None:
    made = renew(None, NAMES, NOW)
    later = NOW + LIFE - LEFT + timedelta(seconds=1)
    again = renew(made, NAMES, later)
    assert (again.certificate != made.certificate, again.authorities) == (True, made.authorities)
    verify(again, made, later)


def test_other_names_need_another_at_once() -> None:
    made = renew(None, NAMES, NOW)
    again = renew(made, (NAMES[0],), NOW)
    assert leaf(again) != leaf(made)
    assert renew(again, (NAMES[0],), NOW) is again


def test_what_was_made_by_a_clock_that_was_ahead_is_replaced() -> None:
    made = renew(None, NAMES, NOW)
    ahead = renew(made, NAMES, NOW + LIFE)
    again = renew(ahead, NAMES, NOW)
    assert again.authorities == made.authorities
    verify(again, made, NOW)


def test_so_is_an_authority() -> None:
    ahead = renew(None, NAMES, NOW + timedelta(days=100))
    again = renew(ahead, NAMES, NOW)
    verify(again, again, NOW)


def test_for_twenty_years_each_state_is_trusted_by_clients_that_know_the_state_of_an_hour_before() -> None:
    # Replicas and API servers look at different times: each pair of states an hour apart must agree.
    states = [renew(None, NAMES, NOW)]
    now = NOW
    step = timedelta(days=10)
    while now < NOW + timedelta(days=7300):
        now += step
        for _ in range(3):
            states.append(renew(states[-1], NAMES, now))
        for old, new in ((states[-2], states[-1]), (states[-4], states[-1]), (states[-1], states[-4])):
            if leaf(old).not_valid_after_utc > now:
                verify(old, new, now)
    authorities = [x509.load_pem_x509_certificates(each.authorities) for each in states]
    assert {len(each) for each in authorities} == {1, 2}
    assert len({each[-1].serial_number for each in authorities}) == 3


def test_a_new_authority_is_published_before_it_signs() -> None:
    made = renew(None, NAMES, NOW)
    now = NOW + timedelta(days=3650 - 729)
    published = renew(made, NAMES, now)
    assert len(x509.load_pem_x509_certificates(published.authorities)) == 2
    assert leaf(published) == leaf(made)
    # Its certificate has run out meanwhile, as if nobody had looked for years: that one cannot wait.
    assert leaf(renew(published, NAMES, now)) != leaf(made)


def test_a_due_certificate_waits_until_the_new_authority_is_known() -> None:
    first = renew(None, NAMES, NOW)
    near = NOW + timedelta(days=3650 - 731)
    kept = renew(first, NAMES, near)
    due = leaf(kept).not_valid_after_utc - LEFT + timedelta(minutes=1)
    published = renew(kept, NAMES, due)
    assert leaf(published) == leaf(kept)
    assert renew(published, NAMES, due + timedelta(minutes=5)) is published
    signed = renew(published, NAMES, due + TRUSTED_FOR)
    verify(signed, published, due + TRUSTED_FOR)
    with pytest.raises(VerificationError):
        verify(signed, kept, due + TRUSTED_FOR)


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key", "ca.crt", "ca.key"])
def test_what_is_not_whole_is_none(missing: str) -> None:
    data = renew(None, NAMES, NOW).data()
    other = renew(None, NAMES, NOW).data()
    assert certificates_of({name: text for name, text in data.items() if name != missing}) is None
    assert certificates_of({**data, missing: b"nonsense"}) is None
    assert certificates_of({**data, missing: other[missing]}) is None


def test_nothing_is_none() -> None:
    assert certificates_of({}) is None
