"""AlterClientQuotas of an active controller."""

import math

import pytest

from barnabas.cluster.kraft.controller import quotas
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.alter_client_quotas import AlterClientQuotasRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.active_controller import ActiveController

RATE, PERCENT, CONNECTIONS = "producer_byte_rate", "request_percentage", "connection_creation_rate"
REMOVED = None
ALICE = {"user": "alice"}


def alter(bench, *entries, validate_only=False, version=None, **caller):
    """Ask for (entity, *(quota, value)); returns the code of each answer."""
    kind = AlterClientQuotasRequest
    request = kind(
        [
            kind.EntryData(
                [kind.EntityData(*part) for part in entity.items()],
                [kind.OpData(name, value or 0.0, value is REMOVED) for name, value in operations],
            )
            for entity, *operations in entries
        ],
        validate_only,
    )
    answers = bench.ask(quotas.ALTER_CLIENT_QUOTAS, request, version, **caller).entries
    named = [{part.entity_type: part.entity_name for part in answer.entity} for answer in answers]
    expected = []
    for entity, *_ in entries:
        if entity not in expected:
            expected.append(entity)
    assert named == expected
    assert all((answer.error_message is None) == (answer.error_code == 0) for answer in answers)
    return [ErrorCode(answer.error_code).name for answer in answers]


def limits(bench, **entity):
    key = tuple(sorted((name.replace("_", "-"), value) for name, value in entity.items()))
    return dict(bench.image.quotas.get(key, {}))


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_changed_and_removed(version):
    bench = ActiveController()
    assert alter(bench, (ALICE, (RATE, 1.0), (PERCENT, 0.5)), version=version) == ["NONE"]
    assert limits(bench, user="alice") == {RATE: 1.0, PERCENT: 0.5}
    assert alter(bench, (ALICE, (RATE, 2.0), (PERCENT, REMOVED)), version=version) == ["NONE"]
    assert limits(bench, user="alice") == {RATE: 2.0}
    assert alter(bench, (ALICE, (RATE, REMOVED))) == ["NONE"]
    assert bench.image.quotas == {}


def test_what_is_there_already_needs_no_record():
    bench = ActiveController()
    alter(bench, (ALICE, (RATE, 1.0)))
    assert alter(bench, (ALICE, (RATE, 1.0), (PERCENT, REMOVED), ("no_such", REMOVED))) == ["NONE"]
    assert bench.records == []


@pytest.mark.parametrize(
    "entity",
    [
        {"user": None},
        {"client-id": "app"},
        {"user": "alice", "client-id": None},
        {"client-id": "app", "user": "alice"},
    ],
)
def test_users_and_clients_have_quotas_together_and_alone(entity):
    bench = ActiveController()
    assert alter(bench, (entity, (RATE, 1.0))) == ["NONE"]
    assert bench.image.quotas == {tuple(sorted(entity.items())): {RATE: 1.0}}
    (record,) = bench.records
    assert {part.entity_type: part.entity_name for part in record.entity} == entity


@pytest.mark.parametrize("address", ["10.0.0.1", "2001:db8::1", None])
def test_addresses_have_the_quota_of_connections(address):
    bench = ActiveController()
    assert alter(bench, ({"ip": address}, (CONNECTIONS, 5.0))) == ["NONE"]
    assert limits(bench, ip=address) == {CONNECTIONS: 5.0}


@pytest.mark.parametrize(
    ("entity", "operation"),
    [
        ({}, (RATE, 1.0)),
        ({"host": "a"}, (RATE, 1.0)),
        ({"user": ""}, (RATE, 1.0)),
        ({"ip": "no address"}, (CONNECTIONS, 1.0)),
        ({"ip": "10.0.0.1", "user": "alice"}, (CONNECTIONS, 1.0)),
        ({"ip": "10.0.0.1"}, (RATE, 1.0)),
        (ALICE, (CONNECTIONS, 1.0)),
        (ALICE, ("no_such", 1.0)),
        (ALICE, (RATE, -1.0)),
        (ALICE, (RATE, 1.5)),
        (ALICE, (RATE, 1e300)),
        (ALICE, (PERCENT, -0.5)),
        (ALICE, (PERCENT, math.nan)),
        ({"ip": "10.0.0.1"}, (CONNECTIONS, 2.0**31)),
    ],
)
def test_alteration_that_cannot_be_is_refused_alone(entity, operation):
    bench = ActiveController()
    entries = (entity, (PERCENT, REMOVED), operation), ({"user": "bob"}, (RATE, 1.0))
    assert alter(bench, *entries) == ["INVALID_REQUEST", "NONE"]
    assert bench.image.quotas == {(("user", "bob"),): {RATE: 1.0}}


def test_entity_and_quota_are_named_once():
    bench = ActiveController()
    assert alter(bench, (ALICE, (RATE, 1.0)), (ALICE, (PERCENT, 1.0))) == ["INVALID_REQUEST"]
    assert alter(bench, (ALICE, (RATE, 1.0), (RATE, 2.0))) == ["INVALID_REQUEST"]
    assert bench.records == []


@pytest.mark.parametrize(
    ("release", "code"), [("4.3", "NONE"), ("4.4", "INVALID_REQUEST"), ("", "INVALID_REQUEST")]
)
def test_infinite_quota_is_refused_since_4_4(release, code):
    assert alter(ActiveController(30, {"kafka.version": release}), (ALICE, (PERCENT, math.inf))) == [code]


def test_validation_only_answers_without_records():
    bench = ActiveController()
    assert alter(bench, (ALICE, (RATE, 1.0)), (ALICE | {"host": "a"},), validate_only=True) == [
        "NONE", "INVALID_REQUEST",
    ]  # fmt: skip
    assert bench.records == []


def test_alteration_needs_alter_configs_on_the_cluster():
    with pytest.raises(RequestError) as raised:
        alter(
            ActiveController(),
            (ALICE, (RATE, 1.0)),
            may=lambda operation, *_: operation is not Operation.ALTER_CONFIGS,
        )
    assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_too_many_quotas_at_once_are_refused_as_a_whole():
    bench = ActiveController()
    request = AlterClientQuotasRequest
    entries = [
        request.EntryData([request.EntityData("user", str(number))], [request.OpData(RATE, 1.0)])
        for number in range(10_001)
    ]
    with pytest.raises(RequestError) as raised:
        bench.ask(quotas.ALTER_CLIENT_QUOTAS, request(entries))
    assert raised.value.code == ErrorCode.POLICY_VIOLATION
    assert (
        len(bench.ask(quotas.ALTER_CLIENT_QUOTAS, request(entries[1:])).entries)
        == len(bench.records)
        == 10_000
    )
