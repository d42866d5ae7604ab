"""Connections from one address have a limit."""

import pytest

from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.serving.connection_limits import most_from

OVERRIDES = "max.connections.per.ip.overrides"


@pytest.mark.parametrize(
    ("host", "most"), [("10.0.0.1", 3), ("::ffff:10.0.0.1", 3), ("10.0.0.2", 0), ("::1", 7), ("10.0.0.11", 5)]
)
def test_an_address_has_its_own_limit_or_that_of_all(host, most):
    config = BrokerConfig({"max.connections.per.ip": "5", OVERRIDES: "10.0.0.1:3, 10.0.0.2:0,::1:7"})
    assert most_from(host, config) == most


def test_limits_change_while_the_broker_runs():
    config = BrokerConfig()
    assert most_from("10.0.0.1", config) == 2**31 - 1
    config.set_dynamic({"max.connections.per.ip": "4"}, {OVERRIDES: "10.0.0.1:2"})
    assert (most_from("10.0.0.1", config), most_from("10.0.0.2", config)) == (2, 4)


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:", ":3", "10.0.0.1:x", "10.0.0.1:3,,"])
def test_limits_that_cannot_be_read_are_refused(text):
    with pytest.raises(SettingError, match="ADDRESS:COUNT"):
        BrokerConfig({OVERRIDES: text})
