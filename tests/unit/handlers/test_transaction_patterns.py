"""ListTransactions by pattern: RE2's expressions, on the whole of the id, as in Kafka (KIP-1152)."""

import pytest

from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.list_transactions import ListTransactionsRequest
from tests.support.broker import broker_to_ask

IDS = ("orders-1", "orders-2", "refunds")


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path, {"transaction.state.log.num.partitions": "2"}) as asked:
        for number, name in enumerate(IDS):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000)
            response = await asked(request, 4)
            assert (response.error_code, response.producer_id) == (0, number)
        yield asked


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [("", IDS), (None, IDS), ("orders-.*", IDS[:2]), ("orders", ()), (".*[s2]", IDS[1:]), ("(a*)*x", ())],
)
async def test_whole_ids_match(ask, pattern, ids):
    answer = await ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert answer.error_code == 0
    assert sorted(state.transactional_id for state in answer.transaction_states) == sorted(ids)


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)a"])
async def test_what_is_no_expression_of_re2_is_refused(ask, pattern):
    answer = await ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
