"""Certificates that take another one's place while a broker runs: names must stay, unless settings allow more."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from barnabas.network.tls_changes import check_replacement
from barnabas.network.tls_context import TlsSettings, server_tls
from barnabas.network.tls_stores import StoreSettings, TlsError
from tests.support.certificates import DAY, Signed, authority, signed, trusted_pkcs12

NO_TRUST = StoreSettings("ssl.truststore")


def used(owner: Signed, trust: StoreSettings = NO_TRUST):
    chain = owner.pem + authority().pem
    return server_tls(
        TlsSettings(StoreSettings("ssl.keystore", key=owner.key_pem, certificates=chain), trust)
    )


def named(subject: x509.Name, *names: x509.GeneralName) -> Signed:
    """A certificate with this very subject and these alternative names."""
    owner = signed({"CN": "x"}, authority())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority().certificate.subject)
        .public_key(owner.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(authority().certificate.not_valid_before_utc)
        .not_valid_after(authority().certificate.not_valid_before_utc + 20 * DAY)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Signed(owner.key, builder.sign(authority().key, hashes.SHA256()))


def subject(*parts: str) -> x509.Name:
    """A name with parts in this order, `+` joining several values of one part."""
    oids = {"CN": x509.NameOID.COMMON_NAME, "O": x509.NameOID.ORGANIZATION_NAME}
    return x509.Name(
        [
            x509.RelativeDistinguishedName(
                [x509.NameAttribute(oids[pair.split("=")[0]], pair.split("=")[1]) for pair in part.split("+")]
            )
            for part in parts
        ]
    )


def refusal(old: Signed, new: Signed, *, subject_may_change=False, alternative_names_may_change=False) -> str:
    try:
        check_replacement(
            used(old), used(new),
            subject_may_change=subject_may_change, alternative_names_may_change=alternative_names_may_change,
        )  # fmt: skip
    except TlsError as error:
        return str(error)
    return ""


BROKER = named(subject("O=Castle", "CN=broker"), x509.DNSName("a"), x509.DNSName("b"))


def test_a_renewed_certificate_takes_the_place_of_the_one_before():
    assert not refusal(BROKER, BROKER)
    assert not refusal(BROKER, named(BROKER.certificate.subject, x509.DNSName("b"), x509.DNSName("a")))


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        (["O=Castle", "CN=broker"], ["O=CASTLE", "CN=Broker"], True),
        (["O=The Castle", "CN=broker"], ["O=The  Castle ", "CN=broker"], True),
        (["O=Castle+CN=broker"], ["CN=broker+O=Castle"], True),
        (["O=Castle", "CN=broker"], ["CN=broker", "O=Castle"], False),
        (["O=Castle", "CN=broker"], ["CN=broker"], False),
        (["CN=broker"], ["O=broker"], False),
        (["CN=broker"], ["CN=brokers"], False),
    ],
)
def test_names_are_compared_without_case_and_spaces(old, new, is_same):
    reason = refusal(named(subject(*old)), named(subject(*new)))
    assert reason == "" if is_same else "ssl.allow.dn.changes=true" in reason
    assert not refusal(named(subject(*old)), named(subject(*new)), subject_may_change=True)


def test_alternative_names_may_come_and_not_go():
    name = BROKER.certificate.subject
    more = named(name, *(x509.DNSName(letter) for letter in "abc"))
    assert not refusal(BROKER, more)
    for fewer in (
        named(name, x509.DNSName("a")),
        named(name),
        named(name, x509.DNSName("a"), x509.RFC822Name("b")),
    ):
        assert "lacks DNSName b" in refusal(BROKER, fewer) or "lacks DNSName a, DNSName b" in refusal(
            BROKER, fewer
        )
        assert "ssl.allow.san.changes=true" in refusal(BROKER, fewer, subject_may_change=True)
        assert not refusal(BROKER, fewer, alternative_names_may_change=True)


def test_the_certificate_of_a_pkcs12_file_is_compared_too(tmp_path):
    path = tmp_path / "broker.p12"
    path.write_bytes(BROKER.pkcs12("secret", authority().certificate))
    store = StoreSettings("ssl.keystore", "PKCS12", str(path), "secret")
    tls = server_tls(TlsSettings(store, NO_TRUST))
    allowed = {"subject_may_change": False, "alternative_names_may_change": False}
    check_replacement(tls, used(BROKER), **allowed)
    with pytest.raises(TlsError, match="CN=other"):
        check_replacement(tls, used(signed({"CN": "other"}, authority())), **allowed)


def test_a_trust_store_is_not_added(tmp_path):
    path = tmp_path / "trust.p12"
    path.write_bytes(trusted_pkcs12("secret", authority().certificate))
    trust = StoreSettings("ssl.truststore", "PKCS12", str(path), "secret")
    allowed = {"subject_may_change": True, "alternative_names_may_change": True}
    with pytest.raises(TlsError, match="trust store"):
        check_replacement(used(BROKER), used(BROKER, trust), **allowed)
    check_replacement(used(BROKER, trust), used(BROKER, trust), **allowed)
