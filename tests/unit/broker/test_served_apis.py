"""APIs that a broker answers now: before it knows its cluster, and where a feature is off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers import Handlers
from barnabas.errors import RequestError
from barnabas.serving import apis
from barnabas.wire.generated.errors import ErrorCode

WITH_FEATURE = [api for api in apis.BY_KEY.values() if api.feature]
NOBODY_ASKS: Any = SimpleNamespace(asks_authorizer=False)


def handlers(
    *, features: Any = None, release: bool = True, brokers: Any = (1,), membership: Any = None
) -> Handlers:
    image = SimpleNamespace(features=features, controller_id=1, brokers=brokers)
    services: Any = SimpleNamespace(
        metadata=SimpleNamespace(image=image), broker_id=1, membership=membership,
        release=SimpleNamespace(has=lambda _: release),
    )  # fmt: skip
    return Handlers(services)


@pytest.mark.parametrize("api", WITH_FEATURE, ids=lambda api: api.name)
@pytest.mark.parametrize(
    ("level", "release", "is_on"),
    [(1, False, True), (0, True, False), (..., True, False), (None, True, True), (None, False, False)],
)
def test_feature_is_on_by_the_cluster_or_else_by_the_release(
    api: apis.Api, level: Any, release: bool, is_on: bool
) -> None:
    levels = None if level is None else {} if level is ... else {api.feature: level}
    served = handlers(features=levels, release=release)
    if is_on:
        served.check(api, NOBODY_ASKS, None)
        return
    with pytest.raises(RequestError, match=f"{api.feature} is 0") as refused:
        served.check(api, NOBODY_ASKS, None)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("api", apis.BY_KEY.values(), ids=lambda api: api.name)
def test_broker_without_a_cluster_answers_brokers_and_few_more(api: apis.Api) -> None:
    is_early = api.member_only or api.key in apis.SERVED_EARLY
    assert handlers(membership=..., brokers=()).is_served(api) is is_early
    assert handlers(membership=..., brokers=(1,)).is_served(api), "it knows it"
    assert handlers(membership=None, brokers=()).is_served(api), "it is alone"


def test_what_is_served_early_needs_no_cluster() -> None:
    assert {apis.BY_KEY[key].name for key in apis.SERVED_EARLY} >= {"ApiVersions"}
    assert not {"Metadata", "Produce", "Fetch"} & {apis.BY_KEY[key].name for key in apis.SERVED_EARLY}
