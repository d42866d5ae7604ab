"""Values of settings that are hidden, and those that are shown."""

import pytest

from barnabas.cluster.kraft.secrets import is_secret, shown_value
from barnabas.config import tables
from barnabas.security.scram import HIDDEN

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


@pytest.mark.parametrize("name", [name for name in tables.names() if tables.setting(name).sensitive])
@pytest.mark.parametrize("prefix", ["", "listener.name.external.", "listener.name.external.scram-sha-512."])
def test_passwords_of_the_tables_are_hidden_for_every_listener(name, prefix):
    assert is_secret(BROKER, prefix + name)


@pytest.mark.parametrize(
    ("resource_type", "name", "hidden"),
    [
        (BROKER, "log.retention.ms", False),
        (BROKER, "sasl.oauthbearer.token.endpoint.url", False),
        (BROKER, "my.plugin.password", True),
        (BROKER, "my.plugin.apiKey", True),
        (BROKER, "my.plugin.colour", False),
        (BROKER, "rsm.config.anything", True),
        (BROKER, "config.providers.vault.param.address", True),
        (TOPIC, "retention.ms", False),
        (TOPIC, "ssl.key.password", True),
        (TOPIC, "x.secret", True),
        (CLIENT_METRICS, "interval.ms", False),
        (CLIENT_METRICS, "auth", True),
        (GROUP, "share.auto.offset.reset", False),
        (GROUP, "consumer.session.timeout.ms", False),
        (99, "access.token", True),
        (99, "anything", False),
    ],
)
def test_unknown_settings_are_hidden_if_they_may_be_secrets(resource_type, name, hidden):
    assert is_secret(resource_type, name) is hidden
    assert shown_value(resource_type, name, "v") == (HIDDEN if hidden else "v")


def test_absent_value_remains_absent():
    assert shown_value(BROKER, "ssl.key.password", None) is None
