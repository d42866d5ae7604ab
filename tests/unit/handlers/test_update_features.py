"""UpdateFeatures: what Kafka refuses is refused with its code; levels are those of the cluster, or fixed."""

import pytest

from barnabas.cluster.metadata.changes import FeaturesChanged
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_fetch import ShareFetchRequest
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from barnabas.wire.generated.update_features import UpdateFeaturesRequest
from tests.support.broker import broker_to_ask
from tests.support.clusters import seen_in_cluster

UP, SAFE_DOWN, UNSAFE_DOWN = 1, 2, 3


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        yield asked


def update(*changes, **fields):
    updates = [
        UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in changes
    ]
    return UpdateFeaturesRequest(feature_updates=updates, **fields)


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("no.such.feature", 1, UP), "does not support"),
        (("metadata.version", 25, UP), "does not support"),
        (("group.version", 2, UP), "supports levels 0 to 1"),
        (("group.version", -1, SAFE_DOWN), "less than 0"),
        (("group.version", 0, UP), "needs the upgrade type"),
        (("group.version", 0, SAFE_DOWN), "fixed"),
        (("transaction.version", 1, UNSAFE_DOWN), "fixed"),
        (("group.version", 1, 0), "no upgrade type 0"),
    ],
)
async def test_one_invalid_update_refuses_the_whole_request(ask, change, why, validate_only):
    good = ("share.version", 2, UP)
    answer = await ask(update(good, change, validate_only=validate_only), 1)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert why in answer.error_message
    assert answer.results == []


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_level_that_is_finalized_is_no_change(ask, version):
    answer = await ask(update(("group.version", 1, UP), ("transaction.version", 2, UP)), version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    names = [] if version > 1 else ["group.version", "transaction.version"]
    assert [(result.feature, result.error_code) for result in answer.results] == [(name, 0) for name in names]


async def test_version_0_knows_no_downgrade(ask):
    answer = await ask(update(("group.version", 0, UP)), 0)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


# --- in a cluster -------------------------------------------------------------------------------------------

SUPPORTED = {"transaction.version": (0, 2), "group.version": (0, 1), "share.version": (0, 1)}


class Levels:
    """Stands for the cluster's features in ZooKeeper."""

    def __init__(self, metadata, others):
        self.metadata = metadata
        self.others = others
        self.finalized = []

    async def supported(self):
        return {1: SUPPORTED, 2: self.others}

    async def finalize(self, levels):
        self.finalized.append(levels)
        image = self.metadata.image
        new = {name: level for name, level in {**image.features, **levels}.items() if level}
        await self.metadata.apply([FeaturesChanged(tuple(new.items()), image.features_epoch + 1)])


def in_cluster(ask, levels=(), others=SUPPORTED):
    metadata = seen_in_cluster(ask, [FeaturesChanged(tuple(levels), 4)])
    ask.services = ask.services._replace(feature_levels=Levels(metadata, others))
    return metadata


async def finalized(ask):
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = await ask(request, 4)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return levels, answer.finalized_features_epoch


async def test_features_are_those_of_the_cluster(ask):
    assert (await finalized(ask))[0]["transaction.version"] == 2
    in_cluster(ask)
    assert await finalized(ask) == ({}, 4)
    answer = await ask(update(("group.version", 1, UP), ("transaction.version", 2, UP)), 2)
    assert answer.error_code == 0
    assert await finalized(ask) == ({"group.version": 1, "transaction.version": 2}, 5)
    assert (await ask(update(("group.version", 0, UP)), 2)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert (await ask(update(("group.version", 0, SAFE_DOWN)), 2)).error_code == 0
    assert await finalized(ask) == ({"transaction.version": 2}, 6)
    assert (await ask(update(("group.version", 1, UP), validate_only=True), 2)).error_code == 0
    assert (await ask(update(("transaction.version", 2, UP)), 2)).error_code == 0
    changes = [
        {"group.version": 1, "transaction.version": 2},
        {"group.version": 0},
        {"transaction.version": 2},
    ]
    assert ask.services.feature_levels.finalized == changes


async def test_a_level_needs_all_brokers(ask):
    in_cluster(ask, others={"group.version": (0, 1)})
    answer = await ask(update(("group.version", 1, UP), ("transaction.version", 2, UP)), 2)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker 2 does not support it" in answer.error_message
    assert ask.services.feature_levels.finalized == []


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (ConsumerGroupHeartbeatRequest(group_id="g"), 0),
        (ShareFetchRequest(group_id="g", member_id="m"), 1),
        (StreamsGroupHeartbeatRequest(group_id="g"), 0),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_is_not_on_in_a_mixed_cluster_is_unsupported(ask, request_, version):
    assert (await ask(request_, version)).error_code != ErrorCode.UNSUPPORTED_VERSION
    metadata = in_cluster(ask)
    assert (await ask(request_, version)).error_code == ErrorCode.UNSUPPORTED_VERSION
    on = tuple((name, 1) for name in ("group.version", "share.version", "streams.version"))
    await metadata.apply([FeaturesChanged(on, 5)])
    assert (await ask(request_, version)).error_code != ErrorCode.UNSUPPORTED_VERSION


async def test_disabled_feature_is_unsupported_before_authorization(tmp_path):
    """As in Kafka, which looks at features before it asks the authorizer."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    async with broker_to_ask(tmp_path, {"authorizer.class.name": authorizer}) as ask:
        request = ConsumerGroupHeartbeatRequest(group_id="g")
        assert (await ask(request, 0)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        in_cluster(ask)
        assert (await ask(request, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_each_group_that_is_described_is_refused(ask):
    in_cluster(ask)
    answer = await ask(ConsumerGroupDescribeRequest(group_ids=["a", "b"]), 0)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("a", 35), ("b", 35)]
