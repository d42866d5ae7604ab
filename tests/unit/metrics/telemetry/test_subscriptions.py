"""Subscriptions: which clients they match, how several count together, and their numbers."""

import pytest

from barnabas.cluster.metadata.image import CLIENT_METRICS, TOPIC
from barnabas.config import client_metrics
from barnabas.config.setting import SettingError
from barnabas.errors import RequestError
from barnabas.metrics.telemetry.subscriptions import Selection, Subscriptions

CLIENT = {
    "client_instance_id": "zIsiZ9LkSWiO7MvRRqSTFQ",
    "client_id": "app-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.1.0",
    "client_source_address": "10.1.2.3",
    "client_source_port": "50123",
}


def wanted(*resources, client=CLIENT):
    subscriptions = Subscriptions()
    subscriptions.take({(CLIENT_METRICS, str(number)): resource for number, resource in enumerate(resources)})
    return subscriptions.selection_for(client)


def test_all_that_match_count_together():
    assert wanted(
        {"metrics": "b.,a.", "interval.ms": "60000"},
        {"metrics": "c.,a.", "interval.ms": "90000"},
        {"metrics": "never.", "interval.ms": "100", "match": "client_id=other"},
    ) == Selection(("a.", "b.", "c."), 60_000)


@pytest.mark.parametrize(("key", "value"), CLIENT.items())
def test_each_attribute_can_be_matched_as_a_whole(key, value):
    assert wanted({"metrics": "a", "match": f"{key}={value}"}).metrics == ("a",)
    assert wanted({"metrics": "a", "match": f"{key} = {value[:3]}.*"}).metrics == ("a",)
    assert wanted({"metrics": "a", "match": f"{key}={value[:-1]}"}).metrics == ()
    assert wanted({"metrics": "a", "match": f"{key}=.*"}, client={}).metrics == ()


def test_a_stored_pattern_that_cannot_be_had_is_for_no_client():
    assert wanted({"metrics": "a", "match": "client_id=(?!web).*"}).metrics == ()


def test_id_too_long_to_match_in_a_turn_matches_nothing():
    settings = {"metrics": "a", "match": r"client_id=(\w+ ?){300}"}
    assert wanted(settings, client={"client_id": "a" * 300}).metrics == ("a",)
    assert wanted(settings, client={"client_id": "a" * 30_000}).metrics == ()


@pytest.mark.parametrize(
    "match", ["", "client_id", "client_id=", "=a", "nobody=a", "client_id=a=b", "client_id=("]
)
def test_a_wrong_pattern_is_refused(match):
    with pytest.raises(SettingError):
        client_metrics.parse_match(match)


@pytest.mark.parametrize("settings", [{"interval.ms": "99"}, {"interval.ms": "3600001"}, {"other": "1"}])
def test_wrong_settings_are_refused(settings):
    with pytest.raises(RequestError):
        client_metrics.check(settings)


def test_the_version_grows_with_changes_only():
    subscriptions = Subscriptions()
    subscriptions.take({(TOPIC, "t"): {"retention.ms": "1"}})
    assert subscriptions.version == 0
    subscriptions.take({(CLIENT_METRICS, "s"): {"metrics": "a"}, (TOPIC, "t"): {}})
    assert subscriptions.version == 1
    subscriptions.take({(CLIENT_METRICS, "s"): {"metrics": "a"}})
    assert subscriptions.version == 1
    subscriptions.take({(CLIENT_METRICS, "s"): {"metrics": "b"}})
    subscriptions.take({})
    assert subscriptions.version == 3
    assert subscriptions.selection_for(CLIENT).metrics == ()


def test_a_subscriptions_number_is_what_kafka_makes():
    # As Apache Kafka 4.3.1 answered these clients (compat/telemetry).
    assert Selection((), 300_000).subscription_id(bytes(range(16))) == -725_132_322
    assert Selection(("*",), 300_000).subscription_id(bytes(range(16))) == 1_012_207_395
    assert Selection(("b.",), 400).subscription_id(bytes(range(16))) == -665_173_264
