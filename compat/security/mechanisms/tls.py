"""TLS: which clients may connect with which certificates, versions and ciphers, and their principals then."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Callable, Iterator
from functools import partial

from compat.kit.certificates import Signed
from compat.security.mechanisms.scenarios import Act, Login, Scenario
from compat.security.mechanisms.sides import Keys

LISTENERS = ("NONE", "REQUESTED", "REQUIRED")
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
CERTIFICATES: dict[str, Callable[[Keys], Signed | None]] = {
    "no certificate": lambda keys: None,
    "a certificate": lambda keys: keys.client,
    "an expired certificate": lambda keys: keys.expired,
    "a certificate of somebody else's": lambda keys: keys.unknown,
}


def context(keys: Keys, version: str = "", certificate: Signed | None = None) -> ssl.SSLContext:
    """A client's; of one version if it says which."""
    tls = ssl.create_default_context(cafile=str(keys.authority.pem))
    if version:
        tls.minimum_version = tls.maximum_version = VERSIONS[version]
    if certificate is not None:
        tls.load_cert_chain(certificate.certificate, certificate.key)
    return tls


def with_certificate(listener: str, version: str, what: str, act: Act) -> None:
    """Connect, see whether a request is answered, and the principal."""
    keys = act.side.keys
    talk = act.talk(listener, context=context(keys, version, CERTIFICATES[what](keys)))
    if talk.works():
        talk.principal()
    else:
        talk.ends()


def old_version(version: ssl.TLSVersion, act: Act) -> None:
    """A version that is not to be spoken any more."""
    tls = context(act.side.keys)
    tls.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        tls.minimum_version = tls.maximum_version = version
    talk = act.talk("NONE", context=tls)
    talk.works()


def cipher(name: str, act: Act) -> None:
    """One cipher suite of TLS 1.2."""
    tls = context(act.side.keys, "1.2")
    tls.set_ciphers(f"{name}:@SECLEVEL=0")
    talk = act.talk("NONE", context=tls)
    talk.works()


def no_tls(listener: str, act: Act) -> None:
    """A request without TLS, where TLS is expected."""
    talk = act.talk(listener)
    talk.ask("ApiVersions", "ApiVersions", 0, {})
    talk.ends()


def bytes_for_tls(data: bytes, act: Act) -> None:
    """Bytes that are no handshake, then the end of what the client sends."""
    talk = act.talk("NONE")
    talk.send_bytes(data)
    talk.finish_sending()
    talk.ends()


def tls_for_none(act: Act) -> None:
    """A handshake where none is expected."""
    talk = act.talk("PLAINTEXT", context=context(act.side.keys))
    talk.ends()


def with_login(act: Act) -> None:
    """PLAIN over TLS, right and wrong."""
    for who, password in (("right", ""), ("wrong", "wrong")):
        login = Login(act.talk("ENCRYPTED", context=context(act.side.keys), who=who), 2)
        login.handshake("PLAIN")
        login.plain(password=password)
        login.talk.works()


def before_login(act: Act) -> None:
    """A request without a login over TLS."""
    talk = act.talk("ENCRYPTED", context=context(act.side.keys))
    talk.works()
    talk.ends()


def login_without_sasl(act: Act) -> None:
    """A login where a certificate is what counts."""
    keys = act.side.keys
    talk = act.talk("REQUIRED", context=context(keys, "", keys.client))
    talk.ask("handshake", "SaslHandshake", 1, {"Mechanism": "PLAIN"})
    talk.ask("token", "SaslAuthenticate", 2, {"AuthBytes": b"\0alice\0wonder land"})
    talk.works()


def scenarios() -> Iterator[Scenario]:
    """All of them."""
    for listener in LISTENERS:
        for version in VERSIONS:
            for what in CERTIFICATES:
                name = f"TLS {version} {listener.lower()}: {what}"
                yield Scenario(name, partial(with_certificate, listener, version, what))
    yield Scenario("TLS 1.0", partial(old_version, ssl.TLSVersion.TLSv1))
    yield Scenario("TLS 1.1", partial(old_version, ssl.TLSVersion.TLSv1_1))
    for name in ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305", "DHE-RSA-AES128-GCM-SHA256", "AES128-SHA",
                 "NULL-SHA256", "ADH-AES128-SHA256"):  # fmt: skip
        yield Scenario(f"TLS cipher {name}", partial(cipher, name))
    for listener in ("NONE", "REQUIRED", "ENCRYPTED"):
        yield Scenario(f"TLS: no handshake {listener.lower()}", partial(no_tls, listener))
    for what, data in {
        "nothing": b"",
        "a record cut short": bytes.fromhex("16030100ff0100"),
        "a record of zeros": bytes.fromhex("1603010010") + bytes(16),
        "an alert": bytes.fromhex("15030100020228"),
        "data before a handshake": bytes.fromhex("1703030010") + bytes(16),
        "HTTP": b"GET / HTTP/1.1\r\n\r\n",
        "a record that is too long": bytes.fromhex("160301ffff") + bytes(70_000),
    }.items():
        yield Scenario(f"TLS: {what}", partial(bytes_for_tls, data))
    yield Scenario("TLS where none is expected", tls_for_none)
    yield Scenario("TLS: a login", with_login)
    yield Scenario("TLS: a request before a login", before_login)
    yield Scenario("TLS: a login where there is none", login_without_sasl)
