"""Settings as Kafka's and librdkafka's clients name them."""

import sys

import pytest

from barnabas.client.settings import ClientSettings, Endpoint, parse_bootstrap


def test_bootstrap_servers() -> None:
    assert parse_bootstrap("a:1, [::1]:9092") == [Endpoint("a", 1), Endpoint("::1", 9092)]
    assert str(Endpoint("::1", 9092)) == "[::1]:9092"
    for wrong in ("", "a", ":1", "a:²", "a:b", "a:0", "a:70000"):
        with pytest.raises(ValueError, match="bootstrap"):
            parse_bootstrap(wrong)


def test_security() -> None:
    assert ClientSettings.of({}).tls is None
    settings = ClientSettings.of(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u"}
    )
    assert settings.tls is not None
    assert settings.sasl is not None
    assert settings.sasl.mechanism == "SCRAM-SHA-512"
    with pytest.raises(ValueError, match=r"security\.protocol"):
        ClientSettings.of({"security.protocol": "TLS"})
    with pytest.raises(ValueError, match=r"sasl\.mechanism"):
        ClientSettings.of({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "DIGEST-MD5"})


def test_kerberos_needs_its_package_and_who_a_keytab_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    with pytest.raises(ValueError, match=r"sasl\.kerberos\.principal"):
        ClientSettings.of({**login, "sasl.kerberos.keytab": "/k"})
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ValueError, match=r"barnabas\[kerberos\]"):
        ClientSettings.of(login)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"request.timeout.ms": "soon"}, r"request\.timeout\.ms"),
        ({"request.timeout.ms": "0"}, r"request\.timeout\.ms"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/none"}, r"ssl\.ca\.location '/none'"),
        (
            {"security.protocol": "SSL", "ssl.certificate.location": "/none"},
            r"ssl\.certificate\.location '/none'",
        ),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        ClientSettings.of(settings)
