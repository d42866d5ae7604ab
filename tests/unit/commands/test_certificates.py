"""Certificates as `barnabas doctor` judges them: their time to the second, and their names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from barnabas.client import Endpoint
from barnabas.commands.findings import NOTE, OK, PROBLEM, Findings
from barnabas.commands.listening import EXPIRES_SOON, _is_named, judge_certificate

HERE = Endpoint("broker.test", 9093)
NOW = datetime(2026, 6, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def findings() -> Findings:
    return Findings(lambda _: None)


def certificate(before: datetime, after: datetime, *names: x509.GeneralName) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker.test")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(before).not_valid_after(after)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


OURS = x509.DNSName("broker.test")
YEAR = timedelta(days=365)


@pytest.mark.parametrize(
    ("before", "after", "status", "text"),
    [
        (NOW - YEAR, NOW - SECOND, PROBLEM, "it has expired on 2026-05-31"),
        (NOW - YEAR, NOW, NOTE, "it expires on 2026-06-01"),
        (NOW, NOW + YEAR, OK, "good until 2027-06-01"),
        (NOW + SECOND, NOW + YEAR, PROBLEM, "it is good only from 2026-06-01 00:00 on"),
        (NOW - YEAR, NOW + EXPIRES_SOON - SECOND, NOTE, "it expires on 2026-06-30"),
        (NOW - YEAR, NOW + EXPIRES_SOON, OK, "good until 2026-07-01"),
        (NOW + SECOND, NOW + 2 * SECOND, PROBLEM, "it is good only from 2026-06-01 00:00 on"),
    ],
)
def test_a_certificate_is_good_from_its_first_second_to_its_last(
    findings: Findings, before: datetime, after: datetime, status: str, text: str
) -> None:
    judge_certificate(certificate(before, after, OURS), HERE, findings, NOW)
    assert [(row.check, row.status, row.text) for row in findings.all] == [("certificate", status, text)]
    assert bool(findings.all[0].advice) == (status != OK)


def test_the_time_is_that_of_this_machine(findings: Findings) -> None:
    now = datetime.now(UTC)
    judge_certificate(certificate(now - YEAR, now + YEAR, OURS), HERE, findings)
    judge_certificate(certificate(now - YEAR, now - SECOND, OURS), HERE, findings)
    assert [finding.status for finding in findings.all] == [OK, PROBLEM]


@pytest.mark.parametrize(
    ("host", "names", "is_named"),
    [
        ("a.test", ["b.test", "a.test"], True),
        ("A.test.", ["a.TEST"], True),
        ("a.test", ["*.test"], True),
        ("a.test", ["*.TEST"], True),
        ("a.b.test", ["*.test"], False),
        ("a.b.test", ["*.b.test"], True),
        ("test", ["*.test"], False),
        ("a.test", ["test", "xa.test", "*.a.test", "*"], False),
        ("a.test", ["x.test"], False),
        ("a.test", [], False),
    ],
)
def test_a_star_stands_for_one_label(host: str, names: list[str], is_named: bool) -> None:
    assert _is_named(host, names) == is_named
