"""InitProducerId v6 (KIP-939), as brokers of Kafka 4.4.0 answer it: transactions without a timeout."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.config import releases
from barnabas.config.loading import BrokerConfig
from barnabas.coordinators.transactions.transaction import NO_TIMEOUT_MS, Producer
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.serving.release import profile_of
from barnabas.wire.generated.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.support.broker import Asked, broker_to_ask
from tests.support.plain_requests import DenyNamed
from tests.unit.coordinators.transactions.test_shard import Harness

UNSTABLE = {
    "unstable.api.versions.enable": "true", "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1", "transaction.max.timeout.ms": "1000",
}  # fmt: skip
ALLOWED = {**UNSTABLE, "transaction.two.phase.commit.enable": "true"}
REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def init(ask: Asked, **fields: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000, enable2_pc=True)
    for name, value in fields.items():
        setattr(request, name, value)
    answer: InitProducerIdResponse = await ask(request, 6)
    return answer


async def test_transaction_of_two_phases_has_no_timeout(tmp_path):
    async with broker_to_ask(tmp_path, ALLOWED) as ask:
        answer = await init(ask, transaction_timeout_ms=0)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)
        described = await ask(DescribeTransactionsRequest(transactional_ids=["x"]), 0)
        assert described.transaction_states[0].transaction_timeout_ms == NO_TIMEOUT_MS
        ordinary = await init(ask, enable2_pc=False)
        assert (ordinary.error_code, ordinary.producer_epoch) == (0, 1)
        described = await ask(DescribeTransactionsRequest(transactional_ids=["x"]), 0)
        assert described.transaction_states[0].transaction_timeout_ms == 1_000


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
        ({"enable2_pc": False, "keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
        ({"enable2_pc": False, "transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "keep_prepared_txn": True}, 0),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_prepared_transactions_cannot_be_kept(tmp_path, fields, code):
    async with broker_to_ask(tmp_path, ALLOWED) as ask:
        answer = await init(ask, **fields)
        assert answer.error_code == code
        assert (answer.producer_id == -1) is bool(code)


async def test_two_phases_need_the_setting(tmp_path):
    async with broker_to_ask(tmp_path, UNSTABLE) as ask:
        assert (await init(ask)).error_code == REFUSED
        assert (await init(ask, enable2_pc=False)).error_code == 0


async def test_two_phases_need_a_right_of_their_own(tmp_path):
    async with broker_to_ask(tmp_path, ALLOWED) as ask:
        ask.authorizer = DenyNamed((Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, "x"))
        assert (await init(ask)).error_code == REFUSED
        assert (await init(ask, enable2_pc=False)).error_code == 0


@pytest.mark.parametrize("name", ["", *releases.NAMES])
@pytest.mark.parametrize("asks", ["true", "false"])
def test_unstable_version_is_served_where_kafka_has_it(name, asks):
    config = BrokerConfig({"unstable.api.versions.enable": asks, "kafka.version": name})
    served = profile_of(config).served_by(config)
    has_any = asks == "true" and (not name or releases.is_at_least(name, "4.1"))
    assert (22 in served and served[22].max_version == 6) is has_any


def test_coordinator_sets_no_timer_without_timeout():
    harness = Harness()
    producer = harness.init(timeout_ms=None)
    assert isinstance(producer, Producer)
    harness.add(producer)
    assert harness.timers == {}
    harness.restart()
    assert harness.timers == {}
