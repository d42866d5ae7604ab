"""TLS contexts as settings ask for them: versions, suites, trusted authorities, what is said of a store that is wrong."""

from __future__ import annotations

import ssl
from dataclasses import replace

import pytest

from barnabas.network.tls_context import TLS_1_3_SUITES, TlsSettings, openssl_name, server_tls
from barnabas.network.tls_stores import StoreSettings, TlsError, read_key_store, read_trust_store
from tests.support.certificates import authority, signed

KEY = signed({"CN": "broker"}, authority())
NO_KEY, NO_TRUST = StoreSettings("ssl.keystore"), StoreSettings("ssl.truststore")
OWN = replace(NO_KEY, key=KEY.key_pem, certificates=KEY.pem + authority().pem)
TRUST = replace(NO_TRUST, certificates=authority().pem)
SERVER = TlsSettings(OWN, TRUST)
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
OLD, NEW, OTHER_NEW = (
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
)


@pytest.mark.parametrize(
    ("protocol", "enabled", "suites", "lowest", "highest", "allowed"),
    [
        ("TLSv1.3", ("TLSv1.2", "TLSv1.3"), (), V12, V13, TLS_1_3_SUITES),
        ("TLS", ("TLSv1.3", "TLSv1.2"), (), V12, V13, TLS_1_3_SUITES),
        ("TLSv1.3", ("TLSv1.3",), (), V13, V13, TLS_1_3_SUITES),
        ("TLSv1.3", ("TLSv1.2",), (), V12, V12, TLS_1_3_SUITES),
        ("TLSv1.2", ("TLSv1.2", "TLSv1.3"), (), V12, V12, TLS_1_3_SUITES),
        ("TLSv1.3", ("TLSv1.2", "TLSv1.3"), (OLD,), V12, V12, frozenset()),
        ("TLSv1.3", ("TLSv1.2", "TLSv1.3"), (NEW,), V13, V13, {NEW}),
        ("TLSv1.3", ("TLSv1.2", "TLSv1.3"), (OLD, NEW, OTHER_NEW), V12, V13, {NEW, OTHER_NEW}),
        ("TLSv1.3", ("TLSv1.2",), (OLD, NEW), V12, V12, {NEW}),
        ("TLSv1.3", ("TLSv1.3",), (OLD, NEW), V13, V13, {NEW}),
    ],
)
def test_versions_are_the_enabled_ones_with_a_suite(
    protocol: str,
    enabled: tuple[str, ...],
    suites: tuple[str, ...],
    lowest: ssl.TLSVersion,
    highest: ssl.TLSVersion,
    allowed: frozenset[str],
) -> None:
    settings = replace(SERVER, protocol=protocol, enabled_protocols=enabled, cipher_suites=suites)
    tls = server_tls(settings)
    assert (tls.context.minimum_version, tls.context.maximum_version) == (lowest, highest)
    assert tls.suites == allowed
    older = [cipher["name"] for cipher in tls.context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    if OLD in suites:
        assert older == [openssl_name(OLD)]
    else:
        assert len(older) > 1
    assert tls.context.options & ssl.OP_NO_RENEGOTIATION
    assert tls.context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"enabled_protocols": ()}, "ssl.enabled.protocols=: there are TLSv1.2 and TLSv1.3"),
        ({"enabled_protocols": ("TLSv1.3", "SSLv3")}, "ssl.enabled.protocols=TLSv1.3,SSLv3: there are"),
        ({"protocol": "TLSv1.1"}, "ssl.protocol=TLSv1.1: there are TLS, TLSv1.2, TLSv1.3"),
        (
            {"cipher_suites": (OLD, "NOTHING", NEW)},
            f"ssl.cipher.suites={OLD},NOTHING,{NEW}: OpenSSL does not know NOTHING",
        ),
        (
            {"cipher_suites": (NEW,), "enabled_protocols": ("TLSv1.2",)},
            "these are for TLSv1.3, and it is not enabled",
        ),
        (
            {"cipher_suites": (OLD,), "enabled_protocols": ("TLSv1.3",)},
            "these are for TLSv1.2, and it is not enabled",
        ),
    ],
)
def test_what_openssl_cannot_honour_is_an_error_of_its_setting(changes: dict[str, object], why: str) -> None:
    with pytest.raises(TlsError) as refused:
        server_tls(replace(SERVER, **changes))  # type: ignore[arg-type]
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (replace(OWN, location="/x"), "ssl.keystore.location is set, and PEM in the settings too"),
        (replace(OWN, type="PKCS12"), "ssl.keystore.type=PKCS12: what is in the settings themselves is PEM"),
    ],
)
def test_what_is_in_the_settings_is_pem_and_in_no_file(store: StoreSettings, reason: str) -> None:
    with pytest.raises(TlsError) as refused:
        read_key_store(store)
    assert reason in str(refused.value)
    trust = replace(store, what="ssl.truststore", key=None)
    with pytest.raises(TlsError) as refused:
        read_trust_store(trust)
    assert reason.replace("keystore", "truststore") in str(refused.value)
    assert read_trust_store(replace(TRUST, type="pem")) == authority().pem
