"""Rows about quotas, users, ACLs, tokens, logins and clients' metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.tools.conformance.acls import ANY_FILTER, TOPIC, Acl
from barnabas.tools.conformance.rows import Row, row
from barnabas.tools.conformance.trial import Trial


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_quotas(), *_scram(), *_acls(), *_tokens(), *_logins(), *_telemetry()]


def _quotas() -> list[Row]:
    def asked(kind: str, match: int, name: str | None = None) -> dict[str, Any]:
        return {"components": [{"entity_type": kind, "match_type": match, "match": name}]}

    def altering(kind: str, key: str, value: float = 1000.0) -> dict[str, Any]:
        entity = [{"entity_type": kind, "entity_name": "conform-nobody"}]
        return {"entries": [{"entity": entity, "ops": [{"key": key, "value": value}]}], "validate_only": True}

    return [
        row(
            "DescribeClientQuotas",
            "a user without quotas",
            "A user without quotas has no entries.",
            "KIP-546",
            asked("user", 0, "conform-nobody"),
            {"error_code": 0, "entries": lambda entries: not entries},
            with_topic=False,
        ),
        row(
            "DescribeClientQuotas",
            "an empty type",
            "A type of entities is not empty: INVALID_REQUEST.",
            "KIP-546",
            asked("", 0, "x"),
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "DescribeClientQuotas",
            "an unknown type",
            "A type of entities that there is not cannot be asked for.",
            "KIP-546",
            asked("no-such-type", 0, "x"),
            {"error_code": {"UNSUPPORTED_VERSION", "INVALID_REQUEST"}},
            with_topic=False,
        ),
        row(
            "DescribeClientQuotas",
            "a type twice",
            "A type of entities is there once: INVALID_REQUEST.",
            "KIP-546",
            {"components": asked("user", 0, "a")["components"] * 2},
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "AlterClientQuotas",
            "only asked",
            "What could be changed is answered without an error.",
            "KIP-546",
            altering("user", "producer_byte_rate"),
            {"entries.len": 1, "entries.0.error_code": 0},
            with_topic=False,
        ),
        row(
            "AlterClientQuotas",
            "an unknown key",
            "A quota that there is not is INVALID_REQUEST.",
            "KIP-546",
            altering("user", "no_such_rate"),
            {"entries.0.error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "AlterClientQuotas",
            "an unknown type",
            "A type of entities that there is not is INVALID_REQUEST.",
            "KIP-546",
            altering("no-such-type", "producer_byte_rate"),
            {"entries.0.error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "AlterClientQuotas",
            "nothing",
            "Nothing is changed where nothing is named.",
            "KIP-546",
            {"entries": [], "validate_only": True},
            {"entries.len": 0},
            with_topic=False,
        ),
    ]


def _scram() -> list[Row]:
    def change(**more: Any) -> Callable[[Trial, int], dict[str, Any]]:
        credential = {
            "name": "conform-nobody",
            "mechanism": 1,
            "iterations": 4096,
            "salt": b"salt",
            "salted_password": b"p" * 32,
        }
        return lambda _, __: {"upsertions": [credential | more]}

    least = "A credential has from 4096 to 16384 iterations: UNACCEPTABLE_CREDENTIAL."
    return [
        row(
            "DescribeUserScramCredentials",
            "an unknown user",
            "A user without credentials is RESOURCE_NOT_FOUND.",
            "KIP-554",
            {"users": [{"name": "conform-nobody"}]},
            {
                "error_code": 0,
                "results.0.error_code": "RESOURCE_NOT_FOUND",
                "results.0.user": "conform-nobody",
            },
            with_topic=False,
        ),
        row(
            "DescribeUserScramCredentials",
            "a user twice",
            "A user is there once: DUPLICATE_RESOURCE.",
            "KIP-554",
            {"users": [{"name": "conform-nobody"}] * 2},
            {"results.0.error_code": "DUPLICATE_RESOURCE"},
            with_topic=False,
        ),
        row(
            "AlterUserScramCredentials",
            "removes nobody",
            "A credential that is not there cannot be removed.",
            "KIP-554",
            {"deletions": [{"name": "conform-nobody", "mechanism": 1}]},
            {"results.0.error_code": "RESOURCE_NOT_FOUND"},
            with_topic=False,
        ),
        row(
            "AlterUserScramCredentials",
            "too few iterations",
            least,
            "KIP-554",
            change(iterations=4095),
            {"results.0.error_code": "UNACCEPTABLE_CREDENTIAL"},
            with_topic=False,
        ),
        row(
            "AlterUserScramCredentials",
            "too many iterations",
            least,
            "KIP-554",
            change(iterations=16_385),
            {"results.0.error_code": "UNACCEPTABLE_CREDENTIAL"},
            with_topic=False,
        ),
        row(
            "AlterUserScramCredentials",
            "no user",
            "A user's name is not empty: UNACCEPTABLE_CREDENTIAL.",
            "KIP-554",
            change(name=""),
            {"results.0.error_code": "UNACCEPTABLE_CREDENTIAL"},
            with_topic=False,
        ),
        row(
            "AlterUserScramCredentials",
            "an unknown mechanism",
            "A mechanism that there is not is UNSUPPORTED_SASL_MECHANISM.",
            "KIP-554",
            change(mechanism=9),
            {"results.0.error_code": "UNSUPPORTED_SASL_MECHANISM"},
            with_topic=False,
        ),
        row(
            "AlterUserScramCredentials",
            "nothing",
            "Nothing is changed where nothing is named.",
            "KIP-554",
            {},
            {"results.len": 0},
            with_topic=False,
        ),
    ]


def _acls() -> list[Row]:
    off = "A broker without an authorizer says SECURITY_DISABLED; one with an authorizer answers."
    either = {0, "SECURITY_DISABLED"}

    def wanted_filter(_: Trial, version: int) -> dict[str, Any]:
        return {
            "filters": [
                ANY_FILTER
                | ({"pattern_type_filter": 3} if version == 0 else {})
                | {"resource_name_filter": "conform-no-such-topic", "resource_type_filter": TOPIC}
            ]
        }

    return [
        row(
            "DescribeAcls",
            "all",
            off,
            "KIP-140",
            lambda _, v: ANY_FILTER | ({"pattern_type_filter": 3} if v == 0 else {}),
            {"error_code": either},
            with_topic=False,
        ),
        row(
            "CreateAcls",
            "nothing",
            "Nothing is made where nothing is named.",
            "KIP-140",
            {"creations": []},
            {"results.len": 0},
            with_topic=False,
        ),
        row(
            "CreateAcls",
            "a principal that is none",
            "A principal is a type and a name with a colon between them.",
            "KIP-140",
            lambda t, _: {"creations": [Acl(TOPIC, t.unknown, principal="nobody").creation()]},
            {"results.0.error_code": {"INVALID_REQUEST", "SECURITY_DISABLED"}},
            with_topic=False,
        ),
        row(
            "DeleteAcls",
            "nothing",
            "Nothing is removed where nothing is named.",
            "KIP-140",
            {"filters": []},
            {"filter_results.len": 0},
            with_topic=False,
        ),
        row(
            "DeleteAcls",
            "none that match",
            off,
            "KIP-140",
            wanted_filter,
            {"filter_results.0.error_code": either, "filter_results.0.matching_acls.len": 0},
            with_topic=False,
        ),
    ]


def _tokens() -> list[Row]:
    rule = "Tokens are for clients that have logged in, other than with a token, where the broker has a secret for them."
    refused = {
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
        "DELEGATION_TOKEN_AUTH_DISABLED",
        "DELEGATION_TOKEN_NOT_FOUND",
    }
    allowed = refused | {0}
    return [
        row(
            "CreateDelegationToken",
            "a renewer of an unknown type",
            rule,
            "KIP-48",
            {"renewers": [{"principal_type": "NoSuchType", "principal_name": "x"}], "max_lifetime_ms": 1000},
            {"error_code": refused | {"INVALID_PRINCIPAL_TYPE"}},
            with_topic=False,
        ),
        row(
            "RenewDelegationToken",
            "an unknown token",
            rule,
            "KIP-48",
            {"hmac": b"none", "renew_period_ms": 1000},
            {"error_code": refused},
            with_topic=False,
        ),
        row(
            "ExpireDelegationToken",
            "an unknown token",
            rule,
            "KIP-48",
            {"hmac": b"none", "expiry_time_period_ms": 1000},
            {"error_code": refused},
            with_topic=False,
        ),
        row(
            "DescribeDelegationToken",
            "of nobody",
            rule,
            "KIP-48",
            {"owners": [{"principal_type": "User", "principal_name": "conform-nobody"}]},
            {"error_code": allowed, "tokens.len": 0},
            with_topic=False,
        ),
    ]


def _logins() -> list[Row]:
    state = "A login begins with SaslHandshake, on a listener for logins: ILLEGAL_SASL_STATE."
    return [
        row(
            "SaslHandshake",
            "an unknown mechanism",
            "A mechanism that is not offered is UNSUPPORTED_SASL_MECHANISM; a client that is "
            "logged in, or need not be, is ILLEGAL_SASL_STATE.",
            "KIP-43",
            {"mechanism": "NO-SUCH"},
            {"error_code": {"UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"}},
            with_topic=False,
        ),
        row(
            "SaslAuthenticate",
            "without a handshake",
            state,
            "KIP-152",
            {"auth_bytes": b"x"},
            {"error_code": "ILLEGAL_SASL_STATE"},
            with_topic=False,
        ),
    ]


def _telemetry() -> list[Row]:
    return [
        row(
            "GetTelemetrySubscriptions",
            "begins",
            "A client without an id is given one.",
            "KIP-714",
            {},
            {"error_code": 0, "client_instance_id": lambda instance_id: instance_id != bytes(16)},
            with_topic=False,
        ),
        row(
            "PushTelemetry",
            "no id",
            "A client that pushes has an id: INVALID_REQUEST.",
            "KIP-714",
            {"client_instance_id": bytes(16), "metrics": b""},
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
    ]
