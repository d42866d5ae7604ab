"""The life of a broker in a quorum: what it asks for, what it makes of the answers, and what it never sends."""

import pytest

from barnabas.cluster.kraft.lifecycle import (
    CATCHING_UP_MS,
    REGISTRATION_RETRY_MS,
    SHUTTING_DOWN_MS,
    Identity,
    Lifecycle,
    RegistrationRefusedError,
    State,
)
from barnabas.cluster.kraft.values import Endpoint, LevelRange
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.generated.errors import ErrorCode

INTERVAL_MS = 2000
DIRS = (bytes([9]) * 16, bytes([3]) * 16)
IDENTITY = Identity(
    3, "cluster", bytes(range(16)), (Endpoint("OUT", "h", 9092, 1),), "r1", DIRS,
    (("metadata.version", LevelRange(7, 33)),), previous_broker_epoch=20,
)  # fmt: skip
BEHIND = {"is_caught_up": False, "is_fenced": True}
FENCED = {"is_caught_up": True, "is_fenced": True}
UNFENCED = {"is_caught_up": True, "is_fenced": False}


def registered(**answer):
    lifecycle = Lifecycle(IDENTITY, interval_ms=INTERVAL_MS)
    assert isinstance(lifecycle.request(-1), BrokerRegistrationRequest)
    lifecycle.take_registration(BrokerRegistrationResponse(broker_epoch=41, **answer))
    return lifecycle


def beat(lifecycle, offset=50, **answer):
    """One heartbeat; the request and the wait after its answer."""
    request = lifecycle.request(offset)
    assert isinstance(request, BrokerHeartbeatRequest)
    return request, lifecycle.take_heartbeat(BrokerHeartbeatResponse(**answer))


def running():
    lifecycle = registered()
    lifecycle.ready()
    for answer in (FENCED, UNFENCED):
        beat(lifecycle, **answer)
    assert lifecycle.state is State.RUNNING
    return lifecycle


def test_registration_names_listeners_features_dirs_and_epoch():
    request = Lifecycle(IDENTITY, interval_ms=INTERVAL_MS).request(-1)
    assert (request.broker_id, request.cluster_id, request.rack) == (3, "cluster", "r1")
    assert (request.incarnation_id, request.previous_broker_epoch) == (bytes(range(16)), 20)
    assert request.listeners == [BrokerRegistrationRequest.Listener("OUT", "h", 9092, 1)]
    assert request.features == [BrokerRegistrationRequest.Feature("metadata.version", 7, 33)]
    assert request.log_dirs == sorted(DIRS)


@pytest.mark.parametrize(
    "code",
    [
        "INCONSISTENT_CLUSTER_ID",
        "INVALID_REGISTRATION",
        "UNSUPPORTED_VERSION",
        "CLUSTER_AUTHORIZATION_FAILED",
    ],
)
def test_registration_that_can_never_succeed_is_not_repeated(code):
    lifecycle = Lifecycle(IDENTITY, interval_ms=INTERVAL_MS)
    with pytest.raises(RegistrationRefusedError, match=code):
        lifecycle.take_registration(BrokerRegistrationResponse(error_code=ErrorCode[code]))


@pytest.mark.parametrize("code", ["DUPLICATE_BROKER_REGISTRATION", "NOT_CONTROLLER"])
def test_registration_within_the_last_session_is_repeated(code):
    lifecycle = Lifecycle(IDENTITY, interval_ms=INTERVAL_MS)
    answer = BrokerRegistrationResponse(error_code=ErrorCode[code])
    assert lifecycle.take_registration(answer) == REGISTRATION_RETRY_MS
    assert isinstance(lifecycle.request(-1), BrokerRegistrationRequest)
    assert lifecycle.problem == code


def test_broker_asks_to_be_unfenced_once_ready_and_caught_up():
    lifecycle = registered()
    request, wait_ms = beat(lifecycle, offset=7, **BEHIND)
    assert (request.broker_epoch, request.current_metadata_offset, request.want_fence) == (41, 7, True)
    assert wait_ms == CATCHING_UP_MS
    request, wait_ms = beat(lifecycle, **FENCED)
    assert request.want_fence
    assert wait_ms == INTERVAL_MS
    lifecycle.ready()
    request, wait_ms = beat(lifecycle, **UNFENCED)
    assert not request.want_fence
    assert lifecycle.state is State.RUNNING
    assert wait_ms == INTERVAL_MS


def test_broker_that_is_ready_does_not_wait_after_catching_up():
    lifecycle = registered()
    lifecycle.ready()
    assert beat(lifecycle, **FENCED)[1] == 0
    assert not beat(lifecycle, **UNFENCED)[0].want_fence


def test_broker_that_was_fenced_is_unfenced_with_the_same_epoch():
    lifecycle = running()
    beat(lifecycle, **FENCED)
    assert lifecycle.state is State.FENCED
    request, _ = beat(lifecycle, **UNFENCED)
    assert (request.broker_epoch, request.want_fence) == (41, False)
    assert lifecycle.state is State.RUNNING


def test_stale_epoch_is_told_and_asked_again_after_the_interval():
    lifecycle = running()
    _, wait_ms = beat(lifecycle, error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert wait_ms == INTERVAL_MS
    assert lifecycle.problem.startswith("STALE_BROKER_EPOCH: this broker was unregistered")
    beat(lifecycle, **UNFENCED)
    assert lifecycle.problem == ""


def test_offline_dirs_are_named_in_every_heartbeat():
    lifecycle = running()
    lifecycle.lose_dirs([DIRS[0]])
    for _ in range(3):
        assert beat(lifecycle, **UNFENCED)[0].offline_log_dirs == [DIRS[0]]
    lifecycle.lose_dirs([DIRS[1]])
    assert beat(lifecycle, **UNFENCED)[0].offline_log_dirs == sorted(DIRS)


def test_cordoned_dirs_are_null_until_caught_up_and_supported():
    lifecycle = registered()
    lifecycle.cordon_dirs([DIRS[0]])
    assert lifecycle.request(1, has_cordoned_dirs=True).cordoned_log_dirs is None
    beat(lifecycle, **FENCED)
    assert lifecycle.request(1, has_cordoned_dirs=True).cordoned_log_dirs == [DIRS[0]]
    assert lifecycle.request(1, has_cordoned_dirs=False).cordoned_log_dirs is None


def test_no_heartbeat_follows_a_granted_shutdown():
    lifecycle = running()
    lifecycle.shut_down()
    request, wait_ms = beat(lifecycle, **UNFENCED)
    assert (request.want_shut_down, request.want_fence) == (True, False)
    assert wait_ms == SHUTTING_DOWN_MS
    beat(lifecycle, **UNFENCED, should_shut_down=True)
    assert lifecycle.state is State.SHUT_DOWN
    assert lifecycle.request(99) is None
    lifecycle.shut_down()
    assert lifecycle.request(99) is None


def test_broker_that_never_registered_shuts_down_at_once():
    lifecycle = Lifecycle(IDENTITY, interval_ms=INTERVAL_MS)
    lifecycle.shut_down()
    assert lifecycle.request(-1) is None


def test_answer_that_never_came_is_awaited_again():
    lifecycle = Lifecycle(IDENTITY, interval_ms=INTERVAL_MS)
    assert lifecycle.failed("no answer") == REGISTRATION_RETRY_MS
    lifecycle = running()
    assert lifecycle.failed("no answer") == INTERVAL_MS
    assert lifecycle.problem == "no answer"
