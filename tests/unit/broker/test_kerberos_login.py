"""Kerberos as settings name it: what cannot work stops the start, with the name of what is missing."""

import sys

import pytest

from barnabas.broker.kerberos_login import MODULE, service_name
from barnabas.broker.sasl_offers import jaas_of, sasl_offer
from barnabas.config.listeners import ListenerSettings
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.security.sasl.mechanism import GSSAPI

KEY = f'{MODULE} required useKeyTab=true storeKey=true keyTab="/k" principal="kafka/h@R"'
JAAS = "listener.name.users.gssapi.sasl.jaas.config"
SERVICE = "sasl.kerberos.service.name"


class Parts:
    """All that Kerberos needs of a broker."""

    environment = type("Environment", (), {"threads": None})


def listener(**settings):
    return ListenerSettings(BrokerConfig(settings), "USERS", "SASL_PLAINTEXT")


def test_without_the_package_the_start_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(SettingError, match=r"pip install 'barnabas\[kerberos\]'.*libkrb5-dev"):
        sasl_offer(listener(**{JAAS: f"{KEY};", SERVICE: "kafka"}), Parts)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({JAAS: f"{KEY};"}, SERVICE),
        ({SERVICE: "kafka"}, f"set {JAAS}={MODULE} required"),
        ({SERVICE: "kafka", JAAS: f"{MODULE} required useTicketCache=true;"}, "useKeyTab=true"),
        ({SERVICE: "kafka", JAAS: f"{MODULE} required useKeyTab=true;"}, "principal="),
        ({SERVICE: "kafka", JAAS: f"{KEY} serviceName=http;"}, "serviceName=http"),
        ({SERVICE: "kafka", JAAS: "a.ScramLoginModule required;"}, f"the login module of GSSAPI is {MODULE}"),
        ({}, "sasl.enabled.mechanisms is not set, and its default is GSSAPI"),
    ],
)
def test_what_is_missing_is_named(settings, reason):
    with pytest.raises(SettingError) as refused:
        sasl_offer(listener(**settings), Parts)
    assert reason in str(refused.value)


def test_the_service_is_named_by_the_module_or_by_a_setting():
    for settings in (
        {SERVICE: "kafka", JAAS: f"{KEY};"},
        {JAAS: f"{KEY} serviceName=kafka;"},
        {SERVICE: "other", "listener.name.users.sasl.kerberos.service.name": "kafka", JAAS: f"{KEY};"},
        {SERVICE: "kafka", JAAS: f'{KEY} serviceName="kafka";'},
    ):
        own = listener(**settings)
        assert service_name(own, jaas_of(own, GSSAPI)) == "kafka"
