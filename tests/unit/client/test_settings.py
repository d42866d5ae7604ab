"""Settings as Kafka's and librdkafka's clients name them: the last values that are possible, what each protocol brings."""

from __future__ import annotations

import ssl
import sys
from typing import Any

import pytest

from barnabas.client import ConsumerSettings
from barnabas.client.settings import (
    MECHANISMS,
    ClientSettings,
    Endpoint,
    SaslCredentials,
    extensions_of,
    parse_bootstrap,
)


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("h:1", [("h", 1)]),
        ("h:65535", [("h", 65535)]),
        ("[::1]:9092", [("::1", 9092)]),
        (" a:1 , b:2,", [("a", 1), ("b", 2)]),
        ("::1:9092", [("::1", 9092)]),
    ],
)
def test_bootstrap_servers_have_a_host_and_a_port(text, endpoints):
    assert parse_bootstrap(text) == [Endpoint(*one) for one in endpoints]
    assert parse_bootstrap(",".join(map(str, parse_bootstrap(text)))) == parse_bootstrap(text)


@pytest.mark.parametrize(
    "text", ["h:0", "h:65536", "h:-1", "h:x", "h:", ":9092", "h", "", ",", "a:1,b", "h:1.5", "h:²"]
)
def test_what_is_no_bootstrap_server_is_refused(text):
    with pytest.raises(ValueError, match="bootstrap server"):
        parse_bootstrap(text)


@pytest.mark.parametrize(("endpoint", "text"), [(Endpoint("::1", 1), "[::1]:1"), (Endpoint("h", 2), "h:2")])
def test_an_endpoint_is_written_as_it_is_read(endpoint, text):
    assert str(endpoint) == text


@pytest.mark.parametrize("text", ["1", "2147483647"])
def test_a_request_may_take_as_long_as_kafka_lets_it(text):
    assert ClientSettings.of({"request.timeout.ms": text}).request_timeout_ms == int(text)


@pytest.mark.parametrize("text", ["0", "2147483648", "-1", "1.5", "", "1s"])
def test_other_times_are_refused(text):
    with pytest.raises(ValueError, match=r"request\.timeout\.ms is a number of milliseconds"):
        ClientSettings.of({"request.timeout.ms": text})


@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [
        ("PLAINTEXT", False, False),
        ("SSL", True, False),
        ("SASL_PLAINTEXT", False, True),
        ("SASL_SSL", True, True),
        ("sasl_ssl", True, True),
        (None, False, False),
    ],
)
def test_each_protocol_brings_tls_or_a_login_or_both(protocol, tls, sasl):
    given = {} if protocol is None else {"security.protocol": protocol}
    found = ClientSettings.of({**given, "sasl.username": "u", "sasl.password": "p"})
    assert (found.tls is not None, found.sasl is not None) == (tls, sasl)
    if sasl:
        assert found.sasl == SaslCredentials("PLAIN", "u", "p")
    if tls:
        assert found.tls.check_hostname
        assert found.tls.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("algorithm", "checks"), [("https", True), ("HTTPS", True), ("", False), ("none", False)]
)
def test_the_name_of_the_host_is_checked_unless_that_is_forbidden(algorithm, checks):
    found = ClientSettings.of(
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": algorithm}
    )
    assert found.tls.check_hostname is checks
    assert found.tls.verify_mode is ssl.CERT_REQUIRED, "the certificate is checked all the same"


def test_what_is_not_said_is_as_usual():
    found = ClientSettings.of({}, client_id="mine")
    assert (found.client_id, found.request_timeout_ms, found.retries) == ("mine", 30_000, 7)
    assert ClientSettings.of({"client.id": "said"}, client_id="mine").client_id == "said"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "scram-sha-256"])
def test_mechanisms_are_known_in_either_case(mechanism):
    found = ClientSettings.of({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism})
    assert found.sasl == SaslCredentials(mechanism.upper(), "", "")


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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("a=b", (("a", "b"),)),
        (" a=b , Cd=e=f ", (("a", "b"), ("Cd", "e=f"))),
        ("a=b,", (("a", "b"),)),
    ],
)
def test_extensions_of_a_token(text, found):
    assert extensions_of(text) == found


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


def test_each_setting_of_a_consumer_has_its_own_names() -> None:
    names: dict[tuple[str, ...], tuple[str, str, Any]] = {
        ("group.id",): ("group_id", "G", "G"),
        ("group.protocol",): ("group_protocol", "Consumer", "consumer"),
        ("group.remote.assignor",): ("server_assignor", "range", "range"),
        ("session.timeout.ms",): ("session_timeout_ms", "10001", 10_001),
        ("heartbeat.interval.ms",): ("heartbeat_interval_ms", "12", 12),
        ("max.poll.interval.ms",): ("max_poll_interval_ms", "13", 13),
        ("enable.auto.commit",): ("is_auto_committing", "false", False),
        ("auto.commit.interval.ms",): ("auto_commit_interval_ms", "14", 14),
        ("isolation.level",): ("isolation", "READ_COMMITTED", "read_committed"),
        ("fetch.min.bytes",): ("fetch_bytes_min", "15", 15),
        ("fetch.max.wait.ms", "fetch.wait.max.ms"): ("fetch_wait_ms_max", "16", 16),
        ("fetch.max.bytes",): ("fetch_bytes_max", "17", 17),
        ("max.partition.fetch.bytes", "fetch.message.max.bytes"): ("partition_bytes_max", "18", 18),
        ("check.crcs",): ("checks_crcs", "false", False),
        ("client.rack",): ("rack", "r", "r"),
        ("allow.auto.create.topics",): ("creates_topics", "true", True),
    }
    usual = ConsumerSettings()
    for aliases, (field, text, value) in names.items():
        for name in aliases:
            read = ConsumerSettings.of({name: text})
            assert {one for one in read.__slots__ if getattr(read, one) != getattr(usual, one)} == {field}, (
                name
            )
            assert getattr(read, field) == value, name
    for word, reset in (
        ("earliest", "earliest"), ("Smallest", "earliest"), ("beginning", "earliest"), ("latest", "latest"),
        ("largest", "latest"), ("END", "latest"), ("none", "none"), ("error", "none"),
    ):  # fmt: skip
        assert ConsumerSettings.of({"auto.offset.reset": word}).offset_reset == reset
    static = ConsumerSettings.of({"group.id": "g", "group.instance.id": "i"})
    assert (static.group_id, static.instance_id) == ("g", "i")


@pytest.mark.parametrize(
    ("change", "is_good"),
    [
        ({"heartbeat_interval_ms": 0}, False),
        ({"heartbeat_interval_ms": 1}, True),
        ({"heartbeat_interval_ms": 44_999}, True),
        ({"heartbeat_interval_ms": 45_000}, False),
        ({"partition_bytes_max": 0}, False),
        ({"fetch_bytes_max": 0}, False),
        ({"prefetch_bytes": 1, "fetch_bytes_max": 1, "partition_bytes_max": 1}, True),
        ({"assignors": ()}, False),
        ({"assignors": ("sticky", "range")}, True),
        ({"instance_id": "i", "group_id": "g"}, True),
    ],
    ids=str,
)
def test_settings_of_a_consumer_have_limits(change: dict[str, Any], is_good: bool) -> None:
    if is_good:
        ConsumerSettings(**change)
    else:
        with pytest.raises(ValueError, match=r"\w"):
            ConsumerSettings(**change)


@pytest.mark.parametrize(
    ("more", "given", "options"),
    [
        ({}, ("", "", ""), {"tls": False, "encodes_header": False}),
        (
            {"client.id": "i", "client.secret": "s", "scope": "r", "header.urlencode": "TRUE"},
            ("i", "s", "r"),
            {"tls": False, "encodes_header": True},
        ),
        (
            {
                "client.credentials.client.id": "i",
                "client.credentials.client.secret": "s",
                "header.urlencode": "no",
            },
            ("i", "s", ""),
            {"tls": False, "encodes_header": False},
        ),
        (
            {"client.credentials.client.id": "j", "client.id": "i", "client.credentials.client.secret": "t"},
            ("i", "t", ""),
            {"tls": False, "encodes_header": False},
        ),
    ],
)
def test_an_identity_provider_is_asked_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, str], given: tuple[str, ...], options: dict[str, bool]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "barnabas.client.tokens.tokens_of",
        lambda *args, **kwargs: asked.append((args, kwargs)) or (lambda: ""),
    )
    base = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    more = {f"sasl.oauthbearer.{name}": value for name, value in more.items()}
    ClientSettings.of({**base, "sasl.oauthbearer.token.endpoint.url": "https://p", **more})
    ((args, kwargs),) = asked
    assert args == ("https://p", *given)
    assert {**kwargs, "tls": kwargs["tls"] is not None} == options
    with pytest.raises(ValueError, match=r"https\.ca\.location '/none'"):
        ClientSettings.of(
            {**base, "sasl.oauthbearer.token.endpoint.url": "https://p", "https.ca.location": "/none"}
        )
