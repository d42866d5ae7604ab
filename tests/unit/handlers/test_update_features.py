"""UpdateFeatures: what Kafka refuses is refused with its code, and the levels here are fixed."""

import pytest

from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.update_features import UpdateFeaturesRequest
from tests.support.broker import broker_to_ask

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
async def test_what_cannot_be_is_refused_for_the_whole_request(ask, change, why, validate_only):
    good = ("share.version", 1, UP)
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
