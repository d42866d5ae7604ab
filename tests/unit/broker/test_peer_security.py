"""Brokers of a cluster reach each other by the listener's own settings; settings that cannot work stop the start."""

import pytest

from barnabas.broker.peer_security import for_peers
from barnabas.broker.startup import StartupError
from barnabas.client.settings import ClientSettings, SaslCredentials
from barnabas.config.listeners import inter_broker_listener
from barnabas.config.loading import BrokerConfig
from tests.support.certificates import authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
MAP = "listener.security.protocol.map"


def test_plaintext_needs_nothing():
    plain = ClientSettings(client_id="broker-1")
    assert for_peers(BrokerConfig({}), plain) == plain


def test_protocol_listener_is_used_unless_one_is_named():
    assert inter_broker_listener(BrokerConfig({"security.inter.broker.protocol": "SASL_SSL"})) == "SASL_SSL"
    assert inter_broker_listener(BrokerConfig({"inter.broker.listener.name": "inner"})) == "INNER"


def test_a_login_and_certificates_are_those_of_the_listener():
    config = BrokerConfig(
        {
            "inter.broker.listener.name": "INNER",
            MAP: "INNER:SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.inner.scram-sha-512.sasl.jaas.config": (
                'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="p";'
            ),
            "listener.name.inner.ssl.truststore.certificates": authority().pem,
            "listener.name.inner.ssl.endpoint.identification.algorithm": "",
        }
    )
    peers = for_peers(config, ClientSettings())
    assert peers.sasl == SaslCredentials("SCRAM-SHA-512", "b", "p")
    assert peers.tls is not None
    assert not peers.tls.check_hostname
    assert len(peers.tls.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "DIGEST-MD5"},
            "DIGEST-MD5: brokers log in to each other with one of PLAIN",
        ),
        ({}, "set sasl.kerberos.service.name"),
        ({}, "sasl.mechanism.inter.broker.protocol is not set, and its default is GSSAPI"),
        (
            {"sasl.kerberos.service.name": "kafka"},
            "set listener.name.sasl_plaintext.gssapi.sasl.jaas.config=",
        ),
        (
            {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
            "set listener.name.sasl_plaintext.plain.sasl.jaas.config=",
        ),
        (
            {
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_a="secret";',
            },
            "required username=",
        ),
    ],
)
def test_a_login_that_cannot_work_stops_the_start(settings, reason):
    config = BrokerConfig({"security.inter.broker.protocol": "SASL_PLAINTEXT", **settings})
    with pytest.raises(StartupError) as refused:
        for_peers(config, ClientSettings())
    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)


OAUTH = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
}
JAAS = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def test_brokers_log_in_to_each_other_with_a_token_of_a_file(tmp_path):
    (tmp_path / "token").write_text("t0ken\n")
    config = BrokerConfig(
        {
            **OAUTH,
            "sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token",
            JAAS: f'{MODULE} required extension_traceId="5";',
        }
    )
    login = for_peers(config, ClientSettings()).sasl
    assert login.tokens() == "t0ken"
    assert login.extensions == (("traceId", "5"),)


@pytest.mark.parametrize(
    "settings",
    [
        {JAAS: f'{MODULE} required clientId="castle" clientSecret="secret";'},
        {
            "sasl.oauthbearer.client.credentials.client.id": "castle",
            "sasl.oauthbearer.client.credentials.client.secret": "secret",
        },
    ],
)
def test_brokers_log_in_to_each_other_with_oauth_tokens(settings):
    url = {"sasl.oauthbearer.token.endpoint.url": "https://host/token"}
    assert for_peers(BrokerConfig({**OAUTH, **url, **settings}), ClientSettings()).sasl.tokens is not None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "set sasl.oauthbearer.token.endpoint.url"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://host/token"}, "a client id and a client secret"),
        ({"sasl.login.callback.handler.class": "my.Handler"}, "no Java virtual machine"),
        (
            {
                "sasl.login.callback.handler.class": (
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
                ),
                JAAS: f'{MODULE} required unsecuredLoginStringClaim_sub="secret";',
            },
            "set sasl.oauthbearer.token.endpoint.url",
        ),
    ],
)
def test_tokens_that_cannot_be_had_stop_the_start(settings, reason):
    with pytest.raises(StartupError) as refused:
        for_peers(BrokerConfig({**OAUTH, **settings}), ClientSettings())
    assert reason in str(refused.value)
    assert "secret" not in str(refused.value).replace("client secret", "").replace(
        "credentials.client.secret", ""
    )
