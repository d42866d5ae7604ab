"""Brokers register, are unfenced, fenced, shut down and unregistered; controllers register."""

import pytest

from barnabas.cluster.kraft.image import METADATA_VERSION
from barnabas.cluster.kraft.values import LevelRange
from barnabas.errors import RequestError
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest
from barnabas.wire.generated.controller_registration import ControllerRegistrationRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.unregister_broker import UnregisterBrokerRequest
from barnabas.wire.generated.unregister_controller import UnregisterControllerRequest
from tests.support.active_image import ELR, ActiveImage, log_dir

Feature = BrokerRegistrationRequest.Feature


@pytest.fixture
def active():
    return ActiveImage()


# --- registration ---------------------------------------------------------------------------------------------------


def test_registration_gets_the_offset_of_its_record_as_epoch(active):
    offset = active.state.next_offset
    assert active.register(1, dirs=2, rack="a") == 0
    broker = active.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.rack) == (offset, True, "a")
    assert broker.log_dirs == (log_dir(1, 0), log_dir(1, 1))
    assert dict(broker.features)[METADATA_VERSION] == LevelRange(7, 30)
    assert broker.endpoints == (("PLAINTEXT", "host1", 9092, 0),)


def test_registration_of_another_cluster_is_refused(active):
    assert active.register(1, cluster_id="another") == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert not active.image.brokers


def test_registration_of_a_second_process_is_refused(active):
    active.start(1)
    assert active.register(1, incarnation=2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    active.state.monotonic_ms += 9_000
    assert active.register(1, incarnation=2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    active.state.monotonic_ms += 1
    assert active.register(1, incarnation=2) == 0
    assert active.image.brokers[1].fenced


def test_registration_before_the_first_heartbeat_can_be_replaced(active):
    active.register(1)
    epoch = active.image.brokers[1].epoch
    assert active.register(1, incarnation=2) == 0
    assert active.image.brokers[1].epoch > epoch
    assert active.beat(1, epoch=epoch) == ErrorCode.STALE_BROKER_EPOCH


def test_registration_of_the_same_process_keeps_epoch_and_state(active):
    active.start(1)
    before = active.image.brokers[1]
    assert active.register(1, dirs=2, rack="b") == 0
    after = active.image.brokers[1]
    assert (after.epoch, after.fenced) == (before.epoch, False)
    assert (after.rack, len(after.log_dirs)) == ("b", 2)
    assert active.register(1, incarnation=2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_registration_that_is_changed_must_be_read_again(active):
    active.register(1)
    active.apply([])
    offset = active.image.brokers[1].epoch
    active.register(1, rack="b")
    assert not active.beat(1, offset=offset).is_caught_up
    assert active.beat(1, offset=offset + 1).is_caught_up


def test_registration_of_a_zookeeper_broker_is_refused(active):
    assert active.register(1, is_migrating_zk_broker=True) == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize(
    "log_dirs",
    [
        [],
        [log_dir(1), log_dir(1)],
        [bytes(16)],
        [bytes(15) + b"\x01"],
        [bytes(15) + b"\x63"],
        [bytes(8) + b"\xff" * 8],
        [log_dir(2)],
    ],
    ids=["none", "twice", "zero", "unassigned", "reserved", "negative", "of another broker"],
)
def test_registration_with_bad_log_dirs_is_refused(active, log_dirs):
    active.register(2)
    assert active.register(1, log_dirs=log_dirs) == ErrorCode.INVALID_REGISTRATION


def test_registration_before_log_dirs_have_ids_needs_none():
    active = ActiveImage(level=16)
    assert active.register(1, log_dirs=[]) == 0
    assert active.register(2) == 0
    assert active.image.brokers[2].log_dirs == ()


BAD_LISTENERS = (
    ("X", "h", 1, 4),
    ("X", "h", 1, -1),
    ("", "h", 1, 0),
    ("X", "", 1, 0),
    ("X", " ", 1, 0),
    ("X", "h", 0, 0),
)
"""Name, host, port and protocol of listeners that a controller of Kafka cannot write, or cannot read from the log."""


@pytest.mark.parametrize("listener", BAD_LISTENERS)
def test_registration_with_a_bad_listener_is_refused(active, listener):
    listeners = [BrokerRegistrationRequest.Listener(*listener)]
    assert active.register(1, listeners=listeners) == ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize("listener", BAD_LISTENERS)
def test_controller_with_a_bad_listener_is_refused(active, listener):
    listeners = [ControllerRegistrationRequest.Listener(*listener)]
    assert (
        active.code(70, ControllerRegistrationRequest(7, listeners=listeners))
        == ErrorCode.INVALID_REGISTRATION
    )


def test_registration_has_the_features_as_they_came(active):
    features = [Feature(METADATA_VERSION, 7, 30), Feature(ELR, 0, 1)] * 2
    active.register(1, features=features)
    assert [feature.name for feature in active.records[-1].features] == [METADATA_VERSION, ELR] * 2


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ([Feature(METADATA_VERSION, 7, 29)], ErrorCode.UNSUPPORTED_VERSION),
        ([Feature(METADATA_VERSION, 31, 33)], ErrorCode.UNSUPPORTED_VERSION),
        ([Feature(METADATA_VERSION, 7, 30)], ErrorCode.UNSUPPORTED_VERSION),
        ([Feature(METADATA_VERSION, 7, 30), Feature(ELR, 0, 0)], ErrorCode.UNSUPPORTED_VERSION),
        ([Feature(ELR, 0, 1)], ErrorCode.INVALID_REGISTRATION),
        (
            [Feature(METADATA_VERSION, 7, 30), Feature(ELR, 0, 1), Feature("x", 1, 1)],
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        ([Feature(METADATA_VERSION, 30, 30), Feature(ELR, 1, 1), Feature("x", 0, 1)], ErrorCode.NONE),
    ],
)
def test_registration_must_support_each_finalized_level(features, expected):
    assert ActiveImage(elr=1).register(1, features=features) == expected


def test_registration_must_support_the_level_of_kraft_version(active):
    active.state.kraft_version = 1
    assert active.register(1) == ErrorCode.UNSUPPORTED_VERSION
    features = [Feature(METADATA_VERSION, 7, 30), Feature("kraft.version", 0, 1)]
    assert active.register(1, features=features) == 0


def test_registration_without_permission_is_refused(active):
    request = BrokerRegistrationRequest(broker_id=1)
    assert active.code(62, request, may=lambda *_: False) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# --- restarts -------------------------------------------------------------------------------------------------------


def test_restart_takes_a_broker_out_of_isrs_and_leadership(active):
    active.start(1, 2)
    active.create("t", (1, 2))
    active.state.monotonic_ms += 9_001
    assert active.register(1, incarnation=2) == 0
    partition = active.partition("t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 1)
    assert active.image.brokers[1].epoch == active.state.next_offset - 2, "the first record of the batch"


@pytest.mark.parametrize(("version", "is_told", "elr"), [(4, True, (1,)), (4, False, ()), (2, True, ())])
def test_unclean_restart_takes_a_broker_out_of_the_elr(version, is_told, elr):
    active = ActiveImage(elr=1, min_insync_replicas=2).start(1, 2)
    active.create("t", (1, 2))
    epoch = active.image.brokers[1].epoch
    active.stop_hearing(1)
    assert active.partition("t").elr == (1,)
    assert active.register(1, incarnation=2, version=version, previous=epoch if is_told else -1) == 0
    assert active.partition("t").elr == elr


def test_unclean_restart_makes_a_last_known_leader():
    active = ActiveImage(elr=1).start(1)
    active.create("t", (1,))
    active.stop_hearing(1)
    assert active.partition("t")[1:3] == ((), -1)
    assert active.register(1, incarnation=2) == 0
    partition = active.partition("t")
    assert (partition.elr, partition.last_known_elr) == ((), (1,))
    active.beat(1)
    partition = active.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 1)
    assert partition.last_known_elr == ()


# --- sessions -------------------------------------------------------------------------------------------------------


def test_silent_broker_is_fenced_and_its_leaders_move(active):
    active.start(1, 2)
    active.create("t", (1, 2), (2, 1))
    active.state.monotonic_ms += 5_000
    active.beat(2)
    active.state.monotonic_ms += 4_000
    assert active.tick() == 0
    assert active.tick(1) == 3
    assert active.image.brokers[1].fenced
    assert not active.image.brokers[2].fenced
    assert [active.partition("t", index)[1:3] for index in (0, 1)] == [((2,), 2), ((2,), 2)]


def test_silent_brokers_are_fenced_one_after_the_other(active):
    active.start(1, 2, 3)
    active.create("t", (1, 2, 3))
    active.tick(9_001)
    assert all(broker.fenced for broker in active.image.brokers.values())
    partition = active.partition("t")
    assert (partition.leader, len(partition.isr), partition.partition_epoch) == (-1, 1, 3)


def test_new_controller_gives_brokers_a_session_to_be_heard_of(active):
    active.start(1)
    active.state.monotonic_ms += 20_000
    active.state.parts = {}
    assert active.tick() == 0
    assert active.register(1, incarnation=2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    active.tick(9_001)
    assert active.image.brokers[1].fenced


def test_fenced_broker_is_unfenced_by_its_next_heartbeat(active):
    active.start(1)
    active.create("t", (1,))
    active.tick(9_001)
    assert active.partition("t")[1:4] == ((1,), -1, 1)
    response = active.beat(1)
    assert (response.is_caught_up, response.is_fenced) == (True, False)
    assert active.partition("t")[1:4] == ((1,), 1, 2)


def test_broker_is_unfenced_when_it_has_read_its_registration(active):
    active.register(1)
    epoch = active.image.brokers[1].epoch
    response = active.beat(1, offset=epoch - 1)
    assert (response.is_caught_up, response.is_fenced) == (False, True)
    response = active.beat(1, offset=epoch, fence=True)
    assert (response.is_caught_up, response.is_fenced) == (True, True)
    assert not active.beat(1, offset=epoch).is_fenced


def test_broker_that_wants_to_be_fenced_is_fenced(active):
    active.start(1)
    assert active.beat(1, fence=True).is_fenced
    assert active.image.brokers[1].fenced


def test_heartbeat_of_an_unknown_broker_is_refused(active):
    assert active.beat(1, epoch=5) == ErrorCode.STALE_BROKER_EPOCH


# --- shutdown -------------------------------------------------------------------------------------------------------


def test_shutdown_waits_for_the_others_to_follow(active):
    active.start(1, 2)
    active.create("t", (1, 2))
    active.beat(2, offset=active.state.next_offset - 1)
    response = active.beat(1, stop=True)
    assert (response.is_fenced, response.should_shut_down) == (False, False)
    assert active.image.brokers[1].in_controlled_shutdown
    assert active.partition("t")[1:3] == ((2,), 2)
    moved = active.state.next_offset - 1
    assert not active.beat(1, stop=True).should_shut_down
    assert active.records == ()
    active.beat(2, offset=moved - 1)
    assert not active.beat(1, stop=True).should_shut_down
    active.beat(2, offset=moved)
    response = active.beat(1, stop=True)
    assert (response.is_fenced, response.should_shut_down) == (True, True)
    assert active.image.brokers[1].fenced


def test_shutdown_waits_for_leaders_to_move(active):
    active.start(1, 2)
    active.create("t", (1,))
    active.beat(2)
    assert not active.beat(1, stop=True).should_shut_down
    assert active.partition("t")[1:3] == ((1,), -1)
    assert active.beat(1, stop=True).should_shut_down


def test_shutdown_of_a_broker_without_leaders_is_granted_at_once(active):
    active.start(1, 2)
    active.create("t", (2, 1))
    assert active.beat(1, stop=True).should_shut_down
    assert active.partition("t").isr == (2,)


def test_shutdown_of_a_fenced_broker_is_granted_at_once(active):
    active.register(1)
    assert active.beat(1, offset=0, stop=True).should_shut_down


def test_shutdown_is_over_when_the_broker_is_fenced(active):
    active.start(1, 2)
    active.create("t", (1, 2))
    active.beat(2, offset=0)
    active.beat(1, stop=True)
    active.stop_hearing(1)
    assert active.image.brokers[1].fenced
    assert active.beat(1, stop=True).should_shut_down


def test_broker_in_shutdown_is_no_leader_and_not_in_sync(active):
    active.start(1, 2)
    active.create("t", (1, 2))
    active.beat(1, stop=True)
    assert active.create("u", (1,)).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert active.propose("t", (2, 1)).error_code == ErrorCode.INELIGIBLE_REPLICA


# --- log dirs -------------------------------------------------------------------------------------------------------


def test_lost_dir_takes_its_replicas_out_of_isrs(active):
    active.start(1, dirs=2)
    active.start(2)
    active.create("t", (1, 2), (1, 2))
    active.apply([_assigned(active, 0, log_dir(1, 0)), _assigned(active, 1, log_dir(1, 1))])
    active.beat(1, offline=[log_dir(1, 1)])
    assert [active.partition("t", index)[1:3] for index in (0, 1)] == [((1, 2), 1), ((2,), 2)]
    assert active.image.brokers[1].log_dirs == (log_dir(1, 0),)
    active.beat(1, offline=[log_dir(1, 1)])
    assert active.records == (), "it is known"


def test_lost_dir_of_a_broker_that_comes_back_leads_nothing(active):
    active.start(1, dirs=2)
    active.create("t", (1,), (1,))
    active.apply([_assigned(active, 0, log_dir(1, 0)), _assigned(active, 1, log_dir(1, 1))])
    active.stop_hearing(1)
    active.beat(1, offline=[log_dir(1, 1)])
    assert [active.partition("t", index).leader for index in (0, 1)] == [1, -1]


def _assigned(active, number, directory):
    from barnabas.wire.generated.metadata_records.partition_change import PartitionChangeRecord

    rest = list(active.partition("t", number).directories[1:])
    return PartitionChangeRecord(number, active.key("t")[0], directories=[directory, *rest])


def test_lost_dirs_before_they_have_ids_are_not_looked_at():
    active = ActiveImage(level=16).start(1)
    active.beat(1, offline=[log_dir(1)])
    assert active.records == ()


def test_cordoned_dirs_are_noted_once(active):
    active.start(1, dirs=2)
    assert active.image.brokers[1].cordoned_log_dirs is None
    active.beat(1, cordoned=[])
    assert active.image.brokers[1].cordoned_log_dirs == ()
    active.beat(1, cordoned=[log_dir(1, 1)])
    assert active.image.brokers[1].cordoned_log_dirs == (log_dir(1, 1),)
    active.beat(1, cordoned=[log_dir(1, 1)])
    assert active.records == ()
    active.beat(1)
    assert active.records == ()


def test_cordoned_dirs_below_their_level_are_not_noted():
    active = ActiveImage(level=29).start(1)
    active.beat(1, cordoned=[log_dir(1)])
    assert active.records == ()


# --- unregistration, controllers ------------------------------------------------------------------------------------


def test_unregistered_broker_is_gone_but_for_its_replicas(active):
    active.start(1, 2)
    active.create("t", (1, 2))
    response = active.ask(64, UnregisterBrokerRequest(1))
    assert (response.error_code, response.error_message) == (0, "")
    assert list(active.image.brokers) == [2]
    partition = active.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (2,), 2)
    assert active.code(64, UnregisterBrokerRequest(1)) == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert active.tick(20_000) == 2, "the other broker's session"


def test_unregistration_needs_alter_on_the_cluster(active):
    active.start(1)
    code = active.code(64, UnregisterBrokerRequest(1), may=lambda operation, *_: operation != 7)
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("controller_id", "level", "code"),
    [
        (7, 33, 0), (8, 33, ErrorCode.CONTROLLER_ID_NOT_REGISTERED), (7, 32, ErrorCode.UNSUPPORTED_VERSION),
        (9, 32, ErrorCode.INVALID_REQUEST),
    ],
)  # fmt: skip
def test_controller_is_unregistered_by_the_active_one(controller_id, level, code):
    active = ActiveImage(level=level)
    feature = ControllerRegistrationRequest.Feature(METADATA_VERSION, 7, 33)
    for registered_id in (7, 9):
        active.ask(70, ControllerRegistrationRequest(registered_id, features=[feature]))
    request = UnregisterControllerRequest(controller_id=controller_id)
    if code:
        assert active.code(94, request) == code
    else:
        assert active.ask(94, request).error_code == 0
    assert list(active.image.controllers) == ([7, 9] if code else [9])
    denied = active.code(94, request, may=lambda operation, *_: operation != 7)
    assert denied == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_controllers_register_from_their_level_on():
    request = ControllerRegistrationRequest(
        controller_id=7,
        incarnation_id=b"\2" * 16,
        listeners=[ControllerRegistrationRequest.Listener("CONTROLLER", "h", 9093, 1)],
        features=[ControllerRegistrationRequest.Feature(METADATA_VERSION, 7, 30)],
    )
    active = ActiveImage(level=15)
    response = active.ask(70, request)
    assert (response.error_code, response.error_message) == (0, "")
    active.ask(70, ControllerRegistrationRequest(8, features=request.features * 2))
    assert len(active.records[-1].features) == 2, "as they came"
    controller = active.image.controllers[7]
    assert controller.endpoints == (("CONTROLLER", "h", 9093, 1),)
    assert controller.features == ((METADATA_VERSION, LevelRange(7, 30)),)
    with pytest.raises(RequestError) as refusal:
        ActiveImage(level=14).ask(70, request)
    assert refusal.value.code == ErrorCode.UNSUPPORTED_VERSION
