"""Client instances: which may ask and push when, each error, and how they are forgotten."""

import pytest

from barnabas.cluster.metadata.image import CLIENT_METRICS
from barnabas.errors import RequestError
from barnabas.metrics.telemetry.instances import EXPIRATION_MS_MIN, ClientInstances
from barnabas.metrics.telemetry.subscriptions import INTERVAL_MS_DEFAULT, Subscriptions
from barnabas.wire.generated.errors import ErrorCode

NOW_MS = 1_700_000_000_000
INTERVAL_MS = 10_000
BYTES_MAX = 1000
ONE, TWO = b"1" * 16, b"2" * 16
ZSTD = 4


class Clients:
    """The machine with one subscription, and clients that ask and push as they should unless told otherwise."""

    def __init__(self, instances_max=100):
        self.subscriptions = Subscriptions()
        self.subscribe({"metrics": "a.", "interval.ms": str(INTERVAL_MS)})
        ids = iter([ONE, ONE, TWO])
        self.machine = ClientInstances(
            self.subscriptions, bytes_max=BYTES_MAX, new_id=lambda: next(ids), instances_max=instances_max
        )

    def subscribe(self, settings):
        self.subscriptions.take({(CLIENT_METRICS, "sub"): settings} if settings else {})

    def get(self, at_ms, instance_id=ONE, connection=7):
        return self.machine.get(instance_id, {"client_id": "c"}, connection, NOW_MS + at_ms)

    def push(self, at_ms, instance_id=ONE, connection=7, **changed):
        client = self.machine.by_id.get(instance_id)
        request = {
            "subscription_id": client.subscription_id if client else 0,
            "terminating": False,
            "compression": ZSTD,
            "size": 10,
            **changed,
        }
        instance = self.machine.push(instance_id, {"client_id": "c"}, connection, NOW_MS + at_ms, **request)
        self.machine.settled(instance, ErrorCode.NONE)
        return instance


@pytest.fixture
def clients():
    return Clients()


def refused(code):
    return pytest.raises(RequestError, check=lambda error: error.code == code)


def test_a_client_without_an_id_is_given_one_that_nobody_has(clients):
    assert clients.machine.id_for(bytes(16)) == ONE
    clients.get(0, ONE)
    assert clients.machine.id_for(bytes(16)) == TWO
    assert clients.machine.id_for(b"x" * 16) == b"x" * 16


def test_asking_again_has_to_wait_for_the_push_interval(clients):
    clients.get(0)
    with refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        clients.get(INTERVAL_MS - 1)
    clients.get(INTERVAL_MS)
    assert clients.machine.counts.throttled == 1


def test_a_changed_subscription_can_be_asked_for_at_once(clients):
    before = clients.get(0)
    clients.subscribe({"metrics": "b.", "interval.ms": str(INTERVAL_MS)})
    after = clients.get(1)
    assert after.selection.metrics == ("b.",)
    assert after.subscription_id != before.subscription_id


def test_first_push_is_free_and_the_next_waits_the_interval(clients):
    clients.get(0)
    clients.push(1)
    with refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        clients.push(INTERVAL_MS)
    clients.push(1 + INTERVAL_MS)


def test_the_last_push_may_come_early_and_nothing_after_it(clients):
    clients.get(0)
    clients.push(1)
    clients.push(2, terminating=True)
    with refused(ErrorCode.INVALID_REQUEST):
        clients.push(3 * INTERVAL_MS, terminating=True)


def test_push_to_another_subscription_is_refused_and_may_ask(clients):
    clients.get(0)
    with refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
        clients.push(INTERVAL_MS, subscription_id=12345)
    clients.get(INTERVAL_MS + 1)
    assert clients.machine.counts.unknown_subscriptions == 1
    with refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        clients.get(INTERVAL_MS + 2)


def test_a_push_after_the_subscription_has_changed_is_refused(clients):
    client = clients.get(0)
    clients.subscribe(None)
    with refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
        clients.push(1, subscription_id=client.subscription_id)
    assert clients.get(2).selection == (client.selection.__class__)((), INTERVAL_MS_DEFAULT)


@pytest.mark.parametrize("compression", [-1, 5, 127])
def test_unknown_compression_is_refused_and_asking_is_free(clients, compression):
    clients.get(0)
    with refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
        clients.push(1, compression=compression)
    clients.get(2)


def test_a_push_has_its_largest_size(clients):
    clients.get(0)
    with refused(ErrorCode.TELEMETRY_TOO_LARGE):
        clients.push(1, size=BYTES_MAX + 1)
    clients.push(1 + INTERVAL_MS, size=BYTES_MAX)


def test_what_was_wrong_is_forgotten_once_a_push_goes_well(clients):
    clients.get(0)
    instance = clients.push(1)
    clients.machine.settled(instance, ErrorCode.INVALID_RECORD)
    assert instance.last_error == ErrorCode.INVALID_RECORD
    clients.push(1 + INTERVAL_MS)
    assert instance.last_error == ErrorCode.NONE


def test_instance_ends_with_its_connection(clients):
    clients.get(0, connection=7)
    clients.get(INTERVAL_MS, connection=8)
    clients.machine.connection_closed(8)
    assert len(clients.machine) == 1
    clients.machine.connection_closed(7)
    assert len(clients.machine) == 0


def test_a_silent_instance_is_forgotten(clients):
    clients.get(0)
    clients.machine.expire(NOW_MS + EXPIRATION_MS_MIN - 1)
    assert len(clients.machine) == 1
    clients.push(1)
    clients.machine.expire(NOW_MS + EXPIRATION_MS_MIN)
    assert len(clients.machine) == 1
    clients.machine.expire(NOW_MS + EXPIRATION_MS_MIN + 1)
    assert len(clients.machine) == 0
    clients.machine.connection_closed(7)


def test_of_too_many_the_least_recently_used_goes():
    clients = Clients(instances_max=3)
    ids = [bytes([number]) * 16 for number in range(65, 70)]
    for connection, instance_id in enumerate(ids[:3]):
        clients.get(connection, instance_id, connection)
    clients.push(5, ids[0], 0)
    clients.get(6, ids[3], 3)
    assert set(clients.machine.by_id) == {ids[2], ids[0], ids[3]}
    clients.get(7, ids[4], 4)
    assert set(clients.machine.by_id) == {ids[0], ids[3], ids[4]}
    assert clients.machine.counts.evicted == 2
    for connection in range(5):
        clients.machine.connection_closed(connection)
    assert len(clients.machine) == 0
