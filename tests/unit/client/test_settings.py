"""Settings as Kafka's and librdkafka's clients name them: the last values that are possible, what each protocol brings."""

from __future__ import annotations

import ssl
import sys

import pytest

from barnabas.client.settings import MECHANISMS, ClientSettings, extensions_of, parse_bootstrap


@pytest.mark.parametrize(
    "text", ["h:0", "h:65536", "h:-1", "h:x", "h:", ":9092", "h", "", ",", "a:1,b", "h:1.5", "h:²"]
)
def test_what_is_no_bootstrap_server_is_refused(text):
    with pytest.raises(ValueError, match="bootstrap server"):
        parse_bootstrap(text)


@pytest.mark.parametrize("text", ["1", "2147483647"])
def test_a_request_may_take_as_long_as_kafka_lets_it(text):
    assert ClientSettings.of({"request.timeout.ms": text}).request_timeout_ms == int(text)


@pytest.mark.parametrize("text", ["0", "2147483648", "-1", "1.5", "", "1s"])
def test_other_times_are_refused(text):
    with pytest.raises(ValueError, match=r"request\.timeout\.ms is a number of milliseconds"):
        ClientSettings.of({"request.timeout.ms": text})


@pytest.mark.parametrize(
    ("algorithm", "checks"), [("https", True), ("HTTPS", True), ("", False), ("none", False)]
)
def test_host_name_is_checked_unless_disabled(algorithm, checks):
    result = ClientSettings.of(
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": algorithm}
    )
    assert result.tls.check_hostname is checks
    assert result.tls.verify_mode is ssl.CERT_REQUIRED, "the certificate is checked all the same"


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is one of"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM"}, f"one of {', '.join(MECHANISMS)}"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/none"}, r"ssl\.ca\.location '/none'"),
        (
            {"security.protocol": "SSL", "ssl.certificate.location": "/none"},
            r"ssl\.certificate\.location '/none'",
        ),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "token.endpoint.url"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.config": "principal=a",
            },
            "unsecure.jwt=true",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
            },
            "principal=NAME",
        ),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(settings, names):
    with pytest.raises(ValueError, match=names):
        ClientSettings.of(settings)


@pytest.mark.parametrize("text", ["a", "a=", "=b", "a1=b", "auth=x", "a=b,auth=c", "a=\x01"])
def test_what_is_no_extension_is_refused(text):
    with pytest.raises(ValueError, match="extensions of a token"):
        extensions_of(text)


def test_kerberos_needs_its_package_and_who_a_keytab_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    with pytest.raises(ValueError, match=r"sasl\.kerberos\.principal"):
        ClientSettings.of({**login, "sasl.kerberos.keytab": "/k"})
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ValueError, match=r"barnabas\[kerberos\]"):
        ClientSettings.of(login)
