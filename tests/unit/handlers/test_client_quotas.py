"""DescribeClientQuotas and AlterClientQuotas, as clients see them."""

import math

import pytest

from barnabas.wire.generated.alter_client_quotas import AlterClientQuotasRequest
from barnabas.wire.generated.describe_client_quotas import DescribeClientQuotasRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import broker_to_ask

EXACT, DEFAULT, ANY = range(3)
Alter = AlterClientQuotasRequest


def entry(entity, **quotas):
    """An alteration; a quota that is None is removed."""
    return Alter.EntryData(
        entity=[Alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[Alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )  # fmt: skip


async def alter(ask, *entries, version=1, validate_only=False):
    answer = await ask(Alter(entries=list(entries), validate_only=validate_only), version)
    return [(entry.error_code, entry.error_message) for entry in answer.entries]


async def describe(ask, *components, strict=False, version=1):
    request = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )
    return await ask(request, version)


async def described(ask, *components, **more):
    """Quotas by entity."""
    answer = await describe(ask, *components, **more)
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


ALICE, BOB, APP, ANYBODY, ANY_CLIENT = (
    ("user", "alice"), ("user", "bob"), ("client-id", "app"), ("user", None), ("client-id", None),
)  # fmt: skip


@pytest.mark.parametrize("version", [0, 1])
async def test_what_was_set_is_described_and_goes_when_it_is_removed(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        done = await alter(
            ask, entry([ALICE], producer_byte_rate=1000.0, request_percentage=12.5),
            entry([("ip", "10.0.0.1")], connection_creation_rate=7.0), version=version,
        )  # fmt: skip
        assert done == [(0, None), (0, None)]
        assert await described(ask, version=version) == {
            (ALICE,): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
            (("ip", "10.0.0.1"),): {"connection_creation_rate": 7.0},
        }
        await alter(ask, entry([ALICE], producer_byte_rate=None, request_percentage=5.0), version=version)
        await alter(ask, entry([("ip", "10.0.0.1")], connection_creation_rate=None), version=version)
        assert await described(ask, version=version) == {(ALICE,): {"request_percentage": 5.0}}


async def test_quotas_last_beyond_a_restart(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await alter(ask, entry([ALICE, ANY_CLIENT], consumer_byte_rate=5.0))
        await alter(ask, entry([("ip", None)], connection_creation_rate=3.0))
        await alter(ask, entry([BOB], controller_mutation_rate=7.5))
        before = await described(ask)
    async with broker_to_ask(tmp_path) as ask:
        assert await described(ask) == before
        assert before == {
            (ANY_CLIENT, ALICE): {"consumer_byte_rate": 5.0},
            (("ip", None),): {"connection_creation_rate": 3.0},
            (BOB,): {"controller_mutation_rate": 7.5},
        }


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_filter_that_means_nothing_is_refused(tmp_path, components, code):
    async with broker_to_ask(tmp_path) as ask:
        answer = await describe(ask, *components)
        assert answer.error_code == code
        assert answer.error_message
        assert answer.entries is None


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ([], {"producer_byte_rate": 1.0}),
        ([("group", "g")], {"producer_byte_rate": 1.0}),
        ([("user", "")], {"producer_byte_rate": 1.0}),
        ([("ip", "10.0.0.1"), ALICE], {"connection_creation_rate": 1.0}),
        ([("ip", "nowhere.example")], {"connection_creation_rate": 1.0}),
        ([ALICE], {"connection_creation_rate": 1.0}),
        ([("ip", "10.0.0.1")], {"producer_byte_rate": 1.0}),
        ([ALICE], {"no_such_quota": 1.0}),
        ([ALICE], {"producer_byte_rate": 0.0}),
        ([ALICE], {"producer_byte_rate": -1.0}),
        ([ALICE], {"producer_byte_rate": 1.5}),
        ([ALICE], {"producer_byte_rate": 1e19}),
        ([ALICE], {"producer_byte_rate": math.nan}),
        ([ALICE], {"request_percentage": math.nan}),
        ([("ip", None)], {"connection_creation_rate": 2.0**31}),
    ],
)
async def test_meaningless_alteration_is_refused_and_others_are_made(tmp_path, entity, quotas):
    async with broker_to_ask(tmp_path) as ask:
        refused, done = await alter(ask, entry(entity, **quotas), entry([BOB], producer_byte_rate=1.0))
        assert refused[0] == ErrorCode.INVALID_REQUEST
        assert refused[1]
        assert done == (0, None)
        assert await described(ask) == {(BOB,): {"producer_byte_rate": 1.0}}


async def test_one_wrong_quota_keeps_back_the_others_of_its_entity(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        ((code, _),) = await alter(ask, entry([ALICE], producer_byte_rate=1.0, consumer_byte_rate=-1.0))
        assert code == ErrorCode.INVALID_REQUEST
        assert await described(ask) == {}


async def test_what_is_named_twice_is_refused(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        twice = entry([ALICE], producer_byte_rate=1.0)
        twice.ops.append(Alter.OpData(key="producer_byte_rate", remove=True))
        assert [code for code, _ in await alter(ask, twice)] == [ErrorCode.INVALID_REQUEST]
        first, other = entry([ALICE], producer_byte_rate=1.0), entry([ALICE], consumer_byte_rate=1.0)
        codes = [code for code, _ in await alter(ask, first, other)]
        assert codes == [ErrorCode.INVALID_REQUEST]  # once, as Kafka answers
        assert await described(ask) == {}


async def test_removing_what_is_not_there_changes_nothing(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        before = ask.services.metadata.image.version
        assert await alter(ask, entry([ALICE], producer_byte_rate=None, unheard_of=None)) == [(0, None)]
        assert ask.services.metadata.image.version == before


async def test_validate_only_checks_and_changes_nothing(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        right, wrong = await alter(
            ask, entry([ALICE], producer_byte_rate=1.0), entry([BOB], x=1.0), validate_only=True
        )
        assert right == (0, None)
        assert wrong[0] == ErrorCode.INVALID_REQUEST
        assert await described(ask) == {}


async def test_more_than_kafka_takes_at_once_is_refused_as_a_whole(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        entries = [entry([("user", f"u{number}")], producer_byte_rate=1.0) for number in range(10_001)]
        answers = await alter(ask, *entries)
        assert {code for code, _ in answers} == {ErrorCode.POLICY_VIOLATION}
        assert await described(ask) == {}
