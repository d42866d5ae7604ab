"""UpdateFeatures, and what a new leader writes first."""

from pathlib import Path

import pytest

from barnabas.broker.controller_apis import CONTROLLER
from barnabas.cluster.kraft.controller import features
from barnabas.cluster.kraft.controller.features import LEADERSHIP, activation_records
from barnabas.cluster.kraft.controller.outcome import Caller
from barnabas.cluster.kraft.directory import END, MetadataLog
from barnabas.cluster.kraft.feature_levels import SUPPORTED, formatting_records
from barnabas.cluster.kraft.image import BROKER, EMPTY
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.values import Voter
from barnabas.config.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError
from barnabas.log.disk import OsDisk
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.update_features import UpdateFeaturesRequest
from tests.support.active_controller import NODE_ID, RECORDS, ActiveController

RELEASES = sorted((Path(__file__).resolve().parents[4] / "golden" / "metadata").glob("kafka-*"))
ELR, MIN_IN_SYNC = features.ELR, "min.insync.replicas"
KEY = features.UPDATE_FEATURES
ALL = {name: (levels.lowest, levels.highest) for name, levels in SUPPORTED.items()}


def level(name, number):
    return RECORDS["FeatureLevel"](name, number)


def config(resource, name, value):
    return RECORDS["Config"](BROKER, resource, name, value)


def broker(broker_id=1, **ranges):
    kind = RECORDS["RegisterBroker"]
    levels = [kind.BrokerFeature(name, *bounds) for name, bounds in {**ALL, **ranges}.items() if bounds]
    return kind(broker_id=broker_id, incarnation_id=bytes(16), features=levels)


def controller(controller_id, **ranges):
    kind = RECORDS["RegisterController"]
    levels = [kind.ControllerFeature(name, *bounds) for name, bounds in {**ALL, **ranges}.items() if bounds]
    return kind(controller_id=controller_id, incarnation_id=bytes(16), features=levels)


def update(bench, *updates, version=None, validate_only=False, **caller):
    """Ask for updates of (name, level) or (name, level, upgrade type)."""
    keys = [
        UpdateFeaturesRequest.FeatureUpdateKey(name, number, upgrade_type=(*rest, UPGRADE)[0])
        for name, number, *rest in updates
    ]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    return bench.ask(KEY, request, version, **caller)


def reason(bench, *updates):
    answer = update(bench, *updates)
    assert (answer.error_code, bench.records) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    return answer.error_message.rpartition(": ")[2]


def test_controller_advertises_the_levels_that_it_registers():
    assert {feature.name: (feature.min_level, feature.max_level) for feature in CONTROLLER.features} == ALL


# --- what depends on the request ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_upgrade_is_finalized_and_answered_by_version(version):
    bench = ActiveController(30)
    answer = update(bench, ("group.version", 1), ("transaction.version", 2), version=version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert bench.image.features == {"metadata.version": 30, "group.version": 1, "transaction.version": 2}
    results = [(result.feature, result.error_code, result.error_message) for result in answer.results]
    names = ["group.version", "transaction.version"] if version < 2 else []
    assert results == [(name, 0, "NONE") for name in names]


def test_one_bad_update_refuses_all_of_them():
    bench = ActiveController(30)
    message = update(bench, ("group.version", 1), ("share.version", 3)).error_message
    assert message.startswith("The update failed for all features since the following feature had an error: ")
    assert bench.image.features == {"metadata.version": 30}


@pytest.mark.parametrize("level", [0, 1])
def test_update_of_an_unknown_feature_is_refused(level):
    assert reason(
        ActiveController(30), ("no.such", level, SAFE_DOWNGRADE if not level else UPGRADE)
    ).endswith("support it")


def test_validation_only_changes_nothing():
    bench = ActiveController(30)
    assert update(bench, ("group.version", 1), validate_only=True).error_code == 0
    assert bench.records == []


def test_update_needs_alter_on_the_cluster():
    with pytest.raises(RequestError) as raised:
        update(ActiveController(), ("group.version", 1), may=lambda operation, *_: operation.name != "ALTER")
    assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("group.version", 1, 0), "there is no upgrade type 0"),
        (("group.version", 1, 4), "there is no upgrade type 4"),
        (("group.version", -1), "a level cannot be less than 0"),
        (("group.version", 2), "this controller supports levels 0 to 1"),
        (("unheard.of", 1), "this controller does not support it"),
        (("metadata.version", 6, SAFE_DOWNGRADE), "this controller supports levels 7 to 33"),
        (("metadata.version", 34), "this controller supports levels 7 to 33"),
        (("transaction.version", 0), "a lower level needs the upgrade type of a safe or unsafe downgrade"),
        (("group.version", 1, SAFE_DOWNGRADE), "a higher level needs the upgrade type of an upgrade"),
        (("group.version", 1, UNSAFE_DOWNGRADE), "a higher level needs the upgrade type of an upgrade"),
        (("kraft.version", 1), "there is no quorum"),
    ],
)
def test_update_that_cannot_be_is_refused(asked, expected):
    assert reason(ActiveController(30, None, level("transaction.version", 1)), asked) == expected


@pytest.mark.parametrize("upgrade_type", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_level_0_removes_a_feature(upgrade_type):
    bench = ActiveController(30, None, level("group.version", 1))
    assert update(bench, ("group.version", 0, upgrade_type)).error_code == 0
    assert bench.image.features == {"metadata.version": 30}


@pytest.mark.parametrize(("kraft_version", "records"), [(0, ["NoOpRecord"]), (1, ["NoOpRecord"])])
def test_same_kraft_version_leads_to_an_offset_to_wait_for(kraft_version, records):
    bench = ActiveController(30)
    bench.state.parts[LEADERSHIP] = lambda: Leadership(kraft_version=kraft_version)
    assert update(bench, ("kraft.version", kraft_version)).error_code == 0
    assert [type(record).__name__ for record in bench.records] == records
    assert update(bench, ("kraft.version", kraft_version, SAFE_DOWNGRADE)).error_code == 0
    assert bench.records == []


def test_kraft_version_goes_up_where_the_voters_support_it():
    bench = ActiveController(30)
    bench.state.parts[features.RAISING] = lambda level: "voter 2 does not" if level == 1 else ""
    assert reason(bench, ("kraft.version", 1)) == "voter 2 does not"
    bench.state.parts[features.RAISING] = lambda _: ""
    key = UpdateFeaturesRequest.FeatureUpdateKey("kraft.version", 1, upgrade_type=UPGRADE)
    for only_asked, level, records in ((True, None, 0), (False, 1, 1)):
        request = UpdateFeaturesRequest(feature_updates=[key], validate_only=only_asked)
        outcome = features.update_features(bench.state, request, Caller(2))
        assert (outcome.kraft_version, len(outcome.records)) == (level, records)


def test_kraft_version_cannot_go_down():
    bench = ActiveController(30)
    bench.state.parts[LEADERSHIP] = lambda: Leadership(kraft_version=1)
    assert reason(bench, ("kraft.version", 0, SAFE_DOWNGRADE)).startswith("kraft.version stays 1")


# --- metadata.version -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("current", "lower"), [(30, 30), (29, 23), (31, 30), (25, 24), (22, 17), (10, 8)])
@pytest.mark.parametrize("upgrade_type", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_downgrade_within_the_same_records_is_allowed(current, lower, upgrade_type):
    bench = ActiveController(current)
    assert update(bench, ("metadata.version", lower, upgrade_type)).error_code == 0
    assert bench.image.metadata_version == lower


@pytest.mark.parametrize(
    ("current", "lower", "crossed"),
    [(30, 29, 30), (29, 22, 23), (33, 31, 33), (32, 30, 32), (17, 16, 17), (15, 14, 15), (14, 13, 14), (13, 12, 13),
     (11, 10, 11), (8, 7, 8), (33, 7, 33)],
)  # fmt: skip
def test_downgrade_to_other_records_is_refused(current, lower, crossed):
    bench = ActiveController(current)
    text = f"the downgrade might lose metadata, since level {crossed} has other records"
    assert reason(bench, ("metadata.version", lower, SAFE_DOWNGRADE)) == text
    text = "an unsafe downgrade of metadata.version is not supported"
    assert reason(bench, ("metadata.version", lower, UNSAFE_DOWNGRADE)) == text


def test_metadata_version_rises_with_what_depends_on_it():
    bench = ActiveController(22)
    assert reason(bench, (ELR, 1)) == "it depends on metadata.version 23"
    assert update(bench, (ELR, 1), ("metadata.version", 23)).error_code == 0
    assert bench.image.features == {"metadata.version": 23, ELR: 1}


# --- nodes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ((broker(1), broker(2)), ""),
        ((broker(1), broker(2, **{"share.version": (0, 1)})), "broker 2 supports levels 0 to 1"),
        ((broker(1, **{"share.version": None}),), "broker 1 does not support it"),
        ((broker(1, **{"share.version": (0, 0)}),), "broker 1 does not support it"),
        ((controller(7, **{"share.version": (0, 1)}),), "controller 7 supports levels 0 to 1"),
        ((controller(NODE_ID, **{"share.version": None}),), ""),
        ((broker(1, **{"unheard.of": (0, 2)}),), ""),
    ],
)
def test_all_nodes_must_support_a_level(nodes, expected):
    bench = ActiveController(31, None, *nodes)
    if expected:
        assert reason(bench, ("share.version", 2)) == expected
    else:
        assert update(bench, ("share.version", 2)).error_code == 0


def test_what_this_controller_lacks_is_named_first():
    assert (
        reason(ActiveController(30, None, broker(1)), ("unheard.of", 1))
        == "this controller does not support it"
    )


def test_level_below_that_of_a_node_is_refused():
    bench = ActiveController(22, None, broker(1, **{"metadata.version": (20, 30)}))
    assert reason(bench, ("metadata.version", 17, SAFE_DOWNGRADE)) == "broker 1 supports levels 20 to 30"


def test_voters_must_have_registered():
    bench = ActiveController(30, None, controller(7))
    bench.state.parts[LEADERSHIP] = lambda: Leadership(voters=(Voter(NODE_ID), Voter(7), Voter(8)))
    expected = "controller 8 has not registered, and may not support it"
    assert reason(bench, ("group.version", 1)) == expected
    bench.commit(controller(8))
    assert update(bench, ("group.version", 1)).error_code == 0


def test_controllers_do_not_count_before_they_can_register():
    bench = ActiveController(14)
    bench.state.parts[LEADERSHIP] = lambda: Leadership(voters=(Voter(8),))
    assert update(bench, ("metadata.version", 15)).error_code == 0
    assert reason(bench, ("metadata.version", 16)).startswith("controller 8 has not registered")


# --- eligible leader replicas ---------------------------------------------------------------------------------------


def test_elr_makes_min_insync_replicas_one_for_all():
    bench = ActiveController(
        23, {MIN_IN_SYNC: "2"}, config("1", MIN_IN_SYNC, "3"), config("1", "log.cleaner.threads", "2"),
        config("2", MIN_IN_SYNC, "1"), config("3", "log.cleaner.threads", "2"),
    )  # fmt: skip
    bench.state.config.set_dynamic({}, {MIN_IN_SYNC: "3"})
    assert update(bench, (ELR, 1)).error_code == 0
    assert bench.records == [
        config("", MIN_IN_SYNC, "2"), config("1", MIN_IN_SYNC, None), config("2", MIN_IN_SYNC, None), level(ELR, 1),
    ]  # fmt: skip
    assert bench.image.settings == {
        (BROKER, ""): {MIN_IN_SYNC: "2"},
        (BROKER, "1"): {"log.cleaner.threads": "2"},
        (BROKER, "3"): {"log.cleaner.threads": "2"},
    }


def test_elr_keeps_what_is_set_for_all_brokers():
    bench = ActiveController(23, {MIN_IN_SYNC: "2"}, config("", MIN_IN_SYNC, "3"))
    assert update(bench, (ELR, 1)).error_code == 0
    assert bench.records == [level(ELR, 1)]


def test_other_features_and_removal_leave_settings_alone():
    bench = ActiveController(23, None, level(ELR, 1))
    assert update(bench, ("group.version", 1), (ELR, 0, SAFE_DOWNGRADE)).error_code == 0
    assert bench.records == [level("group.version", 1), level(ELR, 0)]
    assert update(bench, (ELR, 1), validate_only=True).error_code == 0
    assert bench.records == []


# --- new clusters and leaders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (7, {}),
        (21, {}),
        (22, {"group.version": 1}),
        (24, {"group.version": 1, "transaction.version": 2}),
        (26, {"group.version": 1, "transaction.version": 2, ELR: 1}),
        (
            30,
            {"group.version": 1, "transaction.version": 2, ELR: 1, "share.version": 1, "streams.version": 1},
        ),
        (
            33,
            {"group.version": 1, "transaction.version": 2, ELR: 1, "share.version": 2, "streams.version": 1},
        ),
    ],
)
def test_new_cluster_has_the_features_of_its_level(number, expected):
    records = formatting_records(number)
    assert records[0] == level("metadata.version", number)
    assert {record.name: record.feature_level for record in records[1:]} == expected


@pytest.mark.parametrize("golden", RELEASES, ids=lambda path: path.name)
def test_first_records_are_those_of_kafkas_controller(golden):
    steps = MetadataLog(OsDisk(read_only=True), str(golden)).steps(END)
    written = [step.message for step in steps if step.version >= 0]
    first = written[: [type(record).__name__ for record in written].index("EndTransactionRecord") + 1]
    number = next(
        record.feature_level for record in first if getattr(record, "name", "") == "metadata.version"
    )
    records = activation_records(EMPTY, BrokerConfig(), formatting_records(number), in_transaction=False)
    levels = {record.name: record.feature_level for record in first if hasattr(record, "feature_level")}
    levels.pop("kraft.version", None)  # which means nothing there
    assert levels == {record.name: record.feature_level for record in formatting_records(number)}
    settings = [record for record in first if type(record).__name__ == "ConfigRecord"]
    assert (records[0], *settings, records[-1]) == (first[0], records[-2], first[-1])


def activated(number, *, elr=0, image=EMPTY, in_transaction=False, own=None):
    bootstrap = (
        [level("metadata.version", number), level(ELR, elr)] if elr else [level("metadata.version", number)]
    )
    return activation_records(image, BrokerConfig(own), bootstrap, in_transaction=in_transaction)


def names_of(records):
    return [type(record).__name__.removesuffix("Record") for record in records]


@pytest.mark.parametrize(
    ("number", "elr", "in_transaction", "expected"),
    [
        (12, 0, False, ["FeatureLevel"]),
        (13, 0, False, ["BeginTransaction", "FeatureLevel", "EndTransaction"]),
        (13, 0, True, ["AbortTransaction", "BeginTransaction", "FeatureLevel", "EndTransaction"]),
        (26, 1, False, ["BeginTransaction", "FeatureLevel", "FeatureLevel", "Config", "EndTransaction"]),
    ],
)
def test_new_leader_of_an_empty_log_writes_what_formatting_says(number, elr, in_transaction, expected):
    records = activated(number, elr=elr, in_transaction=in_transaction)
    assert names_of(records) == expected
    texts = {getattr(record, "name", None) or getattr(record, "reason", None) for record in records}
    assert ("Bootstrap records" in texts) == (number >= 13)
    assert ("Controller failover" in texts) == in_transaction


def test_other_records_of_formatting_are_kept():
    user = RECORDS["UserScramCredential"]("admin", 1, b"salt", b"stored", b"server", 4096)
    bootstrap = [level("metadata.version", 12), user]
    assert activation_records(EMPTY, BrokerConfig(), bootstrap, in_transaction=False) == tuple(bootstrap)


def test_new_cluster_has_min_insync_replicas_of_the_file():
    assert activated(26, elr=1, own={MIN_IN_SYNC: "2"})[-2] == config("", MIN_IN_SYNC, "2")
    assert activated(26, elr=1)[-2] == config("", MIN_IN_SYNC, "1")


def test_new_leader_of_a_log_only_ends_a_transaction():
    image = ActiveController(30).image
    assert activated(33, image=image) == ()
    assert names_of(activated(33, image=image, in_transaction=True)) == ["AbortTransaction"]


@pytest.mark.parametrize("image", [EMPTY, ActiveController(12).image], ids=["empty", "old"])
def test_transaction_below_the_level_of_transactions_is_an_error(image):
    with pytest.raises(ValueError, match=r"half of a transaction, which metadata\.version 12 does not"):
        activated(12, image=image, in_transaction=True)


def test_formatting_without_metadata_version_is_an_error():
    with pytest.raises(ValueError, match=r"have no metadata\.version"):
        activation_records(EMPTY, BrokerConfig(), [level("group.version", 1)], in_transaction=False)


def test_idle_leader_writes_a_record_each_interval():
    bench = ActiveController(30)
    assert bench.tick(features) == []
    bench.pass_time(499)
    assert bench.tick(features) == []
    bench.pass_time(1)
    assert names_of(bench.tick(features)) == ["NoOp"]
    assert bench.tick(features) == []
    bench.pass_time(700)
    assert names_of(bench.tick(features)) == ["NoOp"]
    bench.pass_time(499)
    assert bench.tick(features) == []


def test_no_interval_means_no_records():
    bench = ActiveController(30, {"metadata.max.idle.interval.ms": "0"})
    assert bench.tick(features) == []
    bench.pass_time(10_000)
    assert bench.tick(features) == []
