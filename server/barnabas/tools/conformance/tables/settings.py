"""Rows about settings and the resources that have some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.tools.conformance.rows import LAST, Row, row
from barnabas.tools.conformance.trial import Trial

TOPIC, BROKER, GROUP, LOGGER = 2, 4, 32, 8
SET, DELETE, APPEND = 0, 1, 2


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_describe(), *_alter(), *_resources()]


def _describe() -> list[Row]:
    def asked(
        kind: int, name: Any = None, keys: list[str] | None = None, **more: Any
    ) -> Callable[[Trial, int], dict[str, Any]]:
        return lambda t, _: (
            {
                "resources": [
                    {
                        "resource_type": kind,
                        "resource_name": t.topic if name is None else name,
                        "configuration_keys": keys,
                    }
                ]
            }
            | more
        )

    def of_broker(trial: Trial, _: int) -> dict[str, Any]:
        return {
            "resources": [
                {
                    "resource_type": BROKER,
                    "resource_name": str(trial.fixture.node_id),
                    "configuration_keys": None,
                }
            ]
        }

    def names(*expected: str) -> Callable[[Any], bool]:
        return lambda settings: {setting.name for setting in settings} >= set(expected)

    code = "results.0.error_code"
    return [
        row(
            "DescribeConfigs",
            "a topic",
            "All settings of a topic are described.",
            "KIP-133",
            asked(TOPIC),
            {code: 0, "results.0.configs": names("retention.ms", "cleanup.policy", "max.message.bytes")},
        ),
        row(
            "DescribeConfigs",
            "one setting",
            "Only the settings that are named are described.",
            "KIP-133",
            asked(TOPIC, keys=["retention.ms"]),
            {code: 0, "results.0.configs.len": 1, "results.0.configs.0.name": "retention.ms"},
        ),
        row(
            "DescribeConfigs",
            "a setting that there is not",
            "A setting that there is not is not described.",
            "KIP-133",
            asked(TOPIC, keys=["no.such.setting"]),
            {code: 0, "results.0.configs.len": 0},
        ),
        row(
            "DescribeConfigs",
            "synonyms",
            "Where a value comes from is described where that is asked for.",
            "KIP-226",
            asked(TOPIC, keys=["max.message.bytes"], include_synonyms=True),
            {"results.0.configs.0.synonyms": lambda synonyms: bool(synonyms)},
            (1, LAST),
        ),
        row(
            "DescribeConfigs",
            "no synonyms",
            "Synonyms are empty where they are not asked for.",
            "KIP-226",
            asked(TOPIC, keys=["max.message.bytes"]),
            {"results.0.configs.0.synonyms.len": 0},
            (1, LAST),
        ),
        row(
            "DescribeConfigs",
            "a default",
            "A setting that was never changed has source 5, or 4 if it is in the broker's file.",
            "KIP-226",
            asked(TOPIC, keys=["retention.ms"]),
            {"results.0.configs.0.config_source": {5, 4}},
            (1, LAST),
        ),
        row(
            "DescribeConfigs",
            "type and words",
            "A setting has its type, and its documentation where that is asked for.",
            "KIP-569",
            asked(TOPIC, keys=["retention.ms"], include_documentation=True),
            {
                "results.0.configs.0.config_type": 5,
                "results.0.configs.0.documentation": lambda text: bool(text),
            },
            (3, LAST),
        ),
        row(
            "DescribeConfigs",
            "a broker",
            "All settings of a broker are described; the sensitive ones without values.",
            "KIP-133",
            of_broker,
            {code: 0, "results.0.configs": _without_secrets},
            with_topic=False,
        ),
        row(
            "DescribeConfigs",
            "another broker",
            "A broker answers for itself and for the defaults of all: INVALID_REQUEST.",
            "KIP-226",
            asked(BROKER, "30000"),
            {code: "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "DescribeConfigs",
            "a broker without a number",
            "A broker's name is its number: INVALID_REQUEST.",
            "KIP-226",
            asked(BROKER, "x"),
            {code: "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "DescribeConfigs",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-133",
            asked(TOPIC, "conform-no-such-topic"),
            {code: "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "DescribeConfigs",
            "a name with a space",
            "A name that no topic can have is INVALID_TOPIC_EXCEPTION.",
            "KIP-133",
            asked(TOPIC, "a b"),
            {code: "INVALID_TOPIC_EXCEPTION"},
            with_topic=False,
        ),
        row(
            "DescribeConfigs",
            "an unknown type",
            "A type that has no settings is INVALID_REQUEST.",
            "KIP-133",
            asked(99, "x"),
            {code: "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "DescribeConfigs",
            "nothing",
            "Nothing is described where nothing is named.",
            "KIP-133",
            {"resources": []},
            {"results.len": 0},
            with_topic=False,
        ),
        row(
            "DescribeConfigs",
            "a group",
            "Groups have settings.",
            "KIP-848",
            asked(GROUP, "conform-any-group"),
            {code: 0, "results.0.configs": names("consumer.session.timeout.ms")},
            (1, LAST),
            with_topic=False,
            releases="4",
        ),
    ]


def _without_secrets(settings: Any) -> bool:
    """settings, of which the sensitive ones have no value"""
    return len(settings) > 50 and all(setting.value is None for setting in settings if setting.is_sensitive)


def _alter() -> list[Row]:
    def altering(
        *configs: tuple[str, str | None, int], kind: int = TOPIC, name: str = ""
    ) -> Callable[[Trial, int], dict[str, Any]]:
        def values(trial: Trial, _: int) -> dict[str, Any]:
            entries = [
                {"name": key, "value": value, "config_operation": operation}
                for key, value, operation in configs
            ]
            resource = {"resource_type": kind, "resource_name": name or trial.topic, "configs": entries}
            return {"resources": [resource], "validate_only": True}

        return values

    def replacing(
        *configs: tuple[str, str | None], kind: int = TOPIC, name: str = ""
    ) -> Callable[[Trial, int], dict[str, Any]]:
        def values(trial: Trial, _: int) -> dict[str, Any]:
            entries = [{"name": key, "value": value} for key, value in configs]
            resource = {"resource_type": kind, "resource_name": name or trial.topic, "configs": entries}
            return {"resources": [resource], "validate_only": True}

        return values

    code = "responses.0.error_code"
    config = "A setting that topics do not have, or a value that it cannot have, is INVALID_CONFIG."
    unknown = "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."
    valid = ("retention.ms", "1000", SET)
    return [
        row(
            "IncrementalAlterConfigs",
            "only asked",
            "What could be changed is answered without an error.",
            "KIP-339",
            altering(valid),
            {code: 0},
        ),
        row(
            "IncrementalAlterConfigs",
            "back to the default",
            "A setting may go back to its default.",
            "KIP-339",
            altering(("retention.ms", None, DELETE)),
            {code: 0},
        ),
        row(
            "IncrementalAlterConfigs",
            "an unknown setting",
            config,
            "KIP-339",
            altering(("no.such.setting", "1", SET)),
            {code: "INVALID_CONFIG"},
        ),
        row(
            "IncrementalAlterConfigs",
            "a wrong value",
            config,
            "KIP-339",
            altering(("retention.ms", "soon", SET)),
            {code: "INVALID_CONFIG"},
        ),
        row(
            "IncrementalAlterConfigs",
            "append to what is no list",
            "Only lists can be appended to: INVALID_CONFIG.",
            "KIP-339",
            altering(("retention.ms", "1", APPEND)),
            {code: "INVALID_CONFIG"},
        ),
        row(
            "IncrementalAlterConfigs",
            "set to null",
            "A value that is set is not null: INVALID_REQUEST.",
            "KIP-339",
            altering(("retention.ms", None, SET)),
            {code: "INVALID_REQUEST"},
        ),
        row(
            "IncrementalAlterConfigs",
            "a setting twice",
            "A setting is there once: INVALID_REQUEST.",
            "KIP-339",
            altering(valid, ("retention.ms", "2", SET)),
            {code: "INVALID_REQUEST"},
        ),
        row(
            "IncrementalAlterConfigs",
            "an unknown topic",
            unknown,
            "KIP-339",
            altering(valid, name="conform-no-such-topic"),
            {code: "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "IncrementalAlterConfigs",
            "nothing",
            "Nothing is changed where nothing is named.",
            "KIP-339",
            {"resources": [], "validate_only": True},
            {"responses.len": 0},
            with_topic=False,
        ),
        row(
            "AlterConfigs",
            "only asked",
            "What could be changed is answered without an error.",
            "KIP-133",
            replacing(("retention.ms", "1000")),
            {code: 0},
        ),
        row(
            "AlterConfigs",
            "an unknown setting",
            config,
            "KIP-133",
            replacing(("no.such.setting", "1")),
            {code: "INVALID_CONFIG"},
        ),
        row(
            "AlterConfigs",
            "a wrong value",
            config,
            "KIP-133",
            replacing(("retention.ms", "soon")),
            {code: "INVALID_CONFIG"},
        ),
        row(
            "AlterConfigs",
            "an unknown topic",
            unknown,
            "KIP-133",
            replacing(("retention.ms", "1"), name="conform-no-such-topic"),
            {code: "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "AlterConfigs",
            "nothing",
            "Nothing is changed where nothing is named.",
            "KIP-133",
            {"resources": [], "validate_only": True},
            {"responses.len": 0},
            with_topic=False,
        ),
    ]


def _resources() -> list[Row]:
    return [
        row(
            "ListConfigResources",
            "metrics",
            "Version 0 lists the subscriptions of client metrics.",
            "KIP-714",
            {},
            {"error_code": 0},
            (0, 0),
            with_topic=False,
        ),
        row(
            "ListConfigResources",
            "topics",
            "Resources of the types that are asked for are listed.",
            "KIP-1142",
            {"resource_types": [2]},
            lambda t, _: {
                "error_code": 0,
                "config_resources": lambda resources: (
                    (t.topic, 2)
                    in [(resource.resource_name, resource.resource_type) for resource in resources]
                ),
            },
            (1, LAST),
        ),
        row(
            "ListConfigResources",
            "an unknown type",
            "A type that has no settings is UNSUPPORTED_VERSION.",
            "KIP-1142",
            {"resource_types": [99]},
            {"error_code": "UNSUPPORTED_VERSION"},
            (1, LAST),
            with_topic=False,
        ),
    ]
