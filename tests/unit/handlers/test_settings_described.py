"""DescribeConfigs of brokers: what can be changed, what is secret, what only one listener has, version by version."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import Asked, broker_to_ask
from tests.support.plain_requests import ask

BROKER = 4
LISTENER = "listener.name.plaintext."
DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 2, 3, 4, 5
SETTINGS = {
    "num.io.threads": "9", f"{LISTENER}ssl.keystore.password": "secret", f"{LISTENER}max.connections": "77",
    "plugin.password": "secret",
}  # fmt: skip


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        for name, setting, value in (("", "num.network.threads", "4"), ("1", "log.cleaner.threads", "2")):
            config = {"Name": setting, "ConfigOperation": 0, "Value": value}
            resource = {"ResourceType": BROKER, "ResourceName": name, "Configs": [config]}
            answer = await ask(asked, "IncrementalAlterConfigs", 1, {"Resources": [resource]})
            assert [response.error_code for response in answer.responses] == [0]
        yield asked


async def described(asked: Asked, name: str, *keys: str, version: int = 4, **more: Any) -> dict[str, Any]:
    resource = {"ResourceType": BROKER, "ResourceName": name, "ConfigurationKeys": keys or None}
    [result] = (await ask(asked, "DescribeConfigs", version, {"Resources": [resource], **more})).results
    assert result.error_code == 0
    return {entry.name: entry for entry in result.configs}


async def test_dynamic_broker_setting_is_not_read_only(asked):
    entries = await described(asked, "1")
    told = {name: entry.read_only for name, entry in entries.items()}
    assert not told["num.io.threads"]
    assert not told["max.connections"]
    assert told["broker.id"]
    assert told[f"{LISTENER}max.connections"], "a name of one listener is none that Kafka lets change"
    assert told["plugin.password"]


async def test_secrets_and_what_is_not_known_are_never_shown(asked):
    entries = await described(asked, "1", IncludeSynonyms=True)
    for name in (f"{LISTENER}ssl.keystore.password", "plugin.password"):
        entry = entries[name]
        assert (entry.value, entry.is_sensitive, entry.config_source) == (None, True, STATIC), name
        assert (entry.synonyms[0].value, entry.synonyms[0].source) == (None, STATIC)
    assert (entries[f"{LISTENER}max.connections"].value, entries["num.io.threads"].value) == ("77", "9")
    assert not entries["num.io.threads"].is_sensitive


async def test_what_is_set_for_all_brokers_is_told_and_nothing_else(asked):
    entries = await described(asked, "")
    entry = entries["num.network.threads"]
    assert (entry.value, entry.config_source, entry.read_only) == ("4", DYNAMIC_DEFAULT, False)
    assert {"log.cleaner.threads", "num.io.threads"}.isdisjoint(entries)


@pytest.mark.parametrize("asks", [True, False])
async def test_documentation_and_synonyms_are_told_when_asked(asked, asks):
    more = {"IncludeDocumentation": asks, "IncludeSynonyms": asks}
    [entry] = (await described(asked, "1", "num.network.threads", **more)).values()
    assert bool(entry.documentation) is asks
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == (
        [("num.network.threads", "4", DYNAMIC_DEFAULT), ("num.network.threads", "3", DEFAULT)] if asks else []
    )


async def test_always_present_features_are_told_and_kept_once_set(asked):
    kept = dict(asked.services.config.kept_for_all)
    assert kept == {"min.insync.replicas": "1"}
    assert (await described(asked, "")).keys() == {*kept, "num.network.threads"}

    async def alter(setting: str, operation: int, value: str | None) -> int:
        config = {"Name": setting, "ConfigOperation": operation, "Value": value}
        resource = {"ResourceType": BROKER, "ResourceName": "", "Configs": [config]}
        [answer] = (await ask(asked, "IncrementalAlterConfigs", 1, {"Resources": [resource]})).responses
        return int(answer.error_code)

    def own() -> dict[str, str]:
        return dict(asked.services.metadata.image.settings_of(BROKER, ""))

    assert own() == {**kept, "num.network.threads": "4"}
    assert await alter("log.cleaner.threads", 0, "3") == 0
    assert own() == {**kept, "num.network.threads": "4", "log.cleaner.threads": "3"}
    assert await alter("min.insync.replicas", 1, None) == ErrorCode.INVALID_CONFIG
    assert await alter("min.insync.replicas", 0, "2") == 0
    assert await alter("log.cleaner.threads", 1, None) == 0
    assert own() == {"num.network.threads": "4", "min.insync.replicas": "2"}
