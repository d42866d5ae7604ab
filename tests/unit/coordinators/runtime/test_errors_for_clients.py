"""An error of a coordinator's internal topic tells what to answer clients, and what to believe of the log."""

import pytest

from barnabas.coordinators.runtime.errors import client_code, is_in_log, is_refusal
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode as E

CASES = [
    # error, code for the client, refused, in the log
    (StorageError("/dir", OSError(5, "broken")), E.NOT_COORDINATOR, False, False),
    (RequestError(E.NOT_LEADER_OR_FOLLOWER), E.NOT_COORDINATOR, False, False),
    (RequestError(E.FENCED_LEADER_EPOCH), E.NOT_COORDINATOR, False, False),
    (RequestError(E.KAFKA_STORAGE_ERROR), E.NOT_COORDINATOR, False, False),
    (RequestError(E.MESSAGE_TOO_LARGE), E.UNKNOWN_SERVER_ERROR, True, False),
    (RequestError(E.RECORD_LIST_TOO_LARGE), E.UNKNOWN_SERVER_ERROR, True, False),
    (RequestError(E.INVALID_PRODUCER_EPOCH), E.INVALID_PRODUCER_EPOCH, True, False),
    (RequestError(E.INVALID_TXN_STATE), E.INVALID_TXN_STATE, True, False),
    (RequestError(E.NOT_ENOUGH_REPLICAS), E.COORDINATOR_NOT_AVAILABLE, True, False),
    (RequestError(E.NOT_ENOUGH_REPLICAS_AFTER_APPEND), E.COORDINATOR_NOT_AVAILABLE, False, True),
    (RequestError(E.UNKNOWN_TOPIC_OR_PARTITION), E.COORDINATOR_NOT_AVAILABLE, False, False),
]


@pytest.mark.parametrize(("error", "code", "refused", "in_log"), CASES, ids=lambda value: str(value)[:40])
def test_an_error_of_the_internal_topic_means(error, code, refused, in_log):
    assert client_code(error) == code
    assert is_refusal(error) is refused
    assert is_in_log(error) is in_log
