"""Settings of a listener: which of several values counts."""

import pytest

from barnabas.config import broker as settings
from barnabas.config.listeners import listener_settings, mechanisms_of
from barnabas.config.loading import BrokerConfig

MODULE = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_{}="x";'
JAAS = settings.SASL_JAAS_CONFIG
FOR_ALL, OF_LISTENER, OF_MECHANISM = (
    "sasl.jaas.config", "listener.name.users.sasl.jaas.config", "listener.name.users.plain.sasl.jaas.config",
)  # fmt: skip


def users(**settings: str):
    return listener_settings(
        BrokerConfig({"listener.security.protocol.map": "USERS:SASL_SSL,OPEN:PLAINTEXT", **settings}), "USERS"
    )


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        ((FOR_ALL, OF_LISTENER, OF_MECHANISM), OF_MECHANISM),
        ((FOR_ALL, OF_LISTENER), OF_LISTENER),
        ((FOR_ALL,), FOR_ALL),
    ],
)
def test_what_is_said_most_precisely_counts(names, counts):
    listener = users(**{name: MODULE.format(name.replace(".", "_")) for name in names})
    assert listener.get(JAAS, "PLAIN") == MODULE.format(counts.replace(".", "_"))
    assert listener.name_of(JAAS, "PLAIN") == counts


def test_settings_of_other_listeners_and_mechanisms_do_not_count():
    others = ("listener.name.open.sasl.jaas.config", "listener.name.users.scram-sha-256.sasl.jaas.config")
    assert users(**{name: MODULE.format("x") for name in others}).get(JAAS, "PLAIN") is None


def test_mechanisms_are_the_listeners_and_none_without_sasl():
    rows = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    listener = users(**rows)
    assert (mechanisms_of(listener), listener.has_tls) == (("SCRAM-SHA-512",), True)
    config = BrokerConfig({"listener.security.protocol.map": "OPEN:PLAINTEXT,OTHER:SASL_PLAINTEXT", **rows})
    assert mechanisms_of(listener_settings(config, "OPEN")) == ()
    assert mechanisms_of(listener_settings(config, "OTHER")) == ("PLAIN",)
