"""Security that listeners are given: logins with tokens, and certificates that take the place of others."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.sasl_offers import UNSECURED_TOKENS, sasl_offer
from barnabas.broker.securing import channel_of
from barnabas.config.listeners import ListenerSettings
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.security.sasl.mechanism import OAUTHBEARER
from barnabas.serving.channel import LoginParts
from tests.support.certificates import authority, signed

PARTS: Any = LoginParts(
    lambda: None, SimpleNamespace(threads=None, wall_clock_ms=lambda: 0, monotonic=lambda: 0.0), b""
)  # type: ignore[arg-type, return-value]
URL = "sasl.oauthbearer.jwks.endpoint.url"
HANDLER = "listener.name.users.oauthbearer.sasl.server.callback.handler.class"


def listener(protocol: str, **settings: str) -> ListenerSettings:
    values = {name.replace("__", "."): text for name, text in settings.items()}
    return ListenerSettings(BrokerConfig(values), "USERS", protocol)


UNVERIFIED = {
    "sasl.oauthbearer.allow.unverified.audience": "true", "sasl.oauthbearer.allow.unverified.issuer": "true",
}  # fmt: skip


def tokens(settings: dict[str, str]) -> Any:
    return sasl_offer(
        listener("SASL_PLAINTEXT", **{"sasl.enabled.mechanisms": OAUTHBEARER, **settings}), PARTS
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, f"listener USERS offers OAUTHBEARER: set {URL} to where the keys that sign tokens are .*{HANDLER}="),
        ({URL: "ftp://keys.example"}, f"{URL}=ftp://keys.example: a URL of https, http or file"),
        ({URL: "file:///no/such/keys"}, f"{URL}=file:///no/such/keys: .*No such file"),
        ({f"listener.name.users.oauthbearer.{URL}": "x:y"}, f"listener.name.users.oauthbearer.{URL}=x:y"),
    ],
)  # fmt: skip
def test_tokens_need_keys_that_can_be_had(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        tokens(UNVERIFIED | settings)


@pytest.mark.parametrize("release", ["", "4.3", "4.4"])
def test_tokens_need_audience_and_issuer_as_of_4_4(release: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text('{"keys": []}')
    settings = {URL: keys.as_uri(), "kafka.version": release}
    if release == "4.3":
        tokens(settings)
        return
    with pytest.raises(SettingError, match=r"set sasl\.oauthbearer\.expected\.audience, or .*audience=true"):
        tokens(settings)
    settings["sasl.oauthbearer.allow.unverified.audience"] = "true"
    with pytest.raises(SettingError, match=r"set sasl\.oauthbearer\.expected\.issuer, or .*issuer=true"):
        tokens(settings)
    tokens(settings | {"sasl.oauthbearer.expected.issuer": "https://issuer.example"})


@pytest.mark.parametrize(
    ("mechanism", "handler"),
    [("PLAIN", "com.example.Mine"), ("PLAIN", UNSECURED_TOKENS), (OAUTHBEARER, "com.example.Mine")],
)
def test_a_class_that_is_not_here_stops_the_start(mechanism: str, handler: str) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";'
    settings = {
        "sasl.enabled.mechanisms": mechanism,
        URL: "https://keys.example",
        "listener.name.users.plain.sasl.jaas.config": jaas,
        **UNVERIFIED,
    }
    assert list(sasl_offer(listener("SASL_PLAINTEXT", **settings), PARTS).mechanisms) == [mechanism]
    name = f"listener.name.users.{mechanism.lower()}.sasl.server.callback.handler.class"
    with pytest.raises(SettingError, match=f"{handler}: there is no Java virtual machine"):
        sasl_offer(listener("SASL_PLAINTEXT", **settings, **{name: handler}), PARTS)


def test_each_limit_of_logins_is_that_of_its_setting() -> None:
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512", "connections.max.reauth.ms": "70000",
        "listener.name.users.scram-sha-512.connections.max.reauth.ms": "80000",
        "sasl.server.max.receive.size": "60000", "connection.failed.authentication.delay.ms": "50",
    }  # fmt: skip
    offer = sasl_offer(listener("SASL_PLAINTEXT", **settings), PARTS)
    limits = {name: mechanism.max_reauth_ms for name, mechanism in offer.mechanisms.items()}
    assert limits == {"SCRAM-SHA-256": 70_000, "SCRAM-SHA-512": 80_000}
    assert (offer.frame_bytes_max, offer.failure_delay_ms) == (60_000, 50)


def test_file_keys_are_read_at_start_server_keys_at_first_token(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": []}))
    for url in (path.as_uri(), "https://keys.example"):
        assert list(tokens({URL: url, **UNVERIFIED}).mechanisms) == [OAUTHBEARER]


def test_tokens_without_a_signature_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert list(tokens({HANDLER: UNSECURED_TOKENS}).mechanisms) == [OAUTHBEARER]
    assert "listener USERS accepts tokens without a signature" in caplog.text


def tls(name: str, host: str = "localhost", **more: str) -> ListenerSettings:
    owner = signed({"CN": name}, authority(), host=host)
    return listener(
        "SSL",
        **{
            "ssl.keystore.type": "PEM", "ssl.keystore.key": owner.key_pem,
            "ssl.keystore.certificate.chain": owner.pem + authority().pem, **more,
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("new", "host", "setting", "reason"),
    [
        ("other", "localhost", "ssl.allow.dn.changes", "is for CN=broker, the new one for CN=other"),
        ("broker", "elsewhere", "ssl.allow.san.changes", "lacks DNSName localhost"),
    ],
)
def test_certificate_of_another_is_accepted_only_if_allowed(
    new: str, host: str, setting: str, reason: str
) -> None:
    before = channel_of(tls("broker"), PARTS).tls
    assert before is not None
    with pytest.raises(SettingError, match=f"listener USERS: .*{reason}.*{setting}=true"):
        channel_of(tls(new, host), PARTS, before)
    changed = channel_of(tls(new, host, **{setting: "true"}), PARTS, before).tls
    assert changed is not None
    assert changed.certificate != before.certificate
    assert channel_of(tls(new, host), PARTS).tls is not None, "at a start there is none before"


def test_a_renewed_certificate_takes_the_place_of_the_old_one() -> None:
    before = channel_of(tls("broker"), PARTS).tls
    after = channel_of(tls("broker"), PARTS, before).tls
    assert before is not None
    assert after is not None
    assert after.certificate != before.certificate
