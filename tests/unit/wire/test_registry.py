"""The registry knows everything that was ever published, and looking it up stays cheap."""

import subprocess
import sys

import pytest

from barnabas.wire import registry
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.errors import ErrorCode


def test_every_key_from_0_to_94_is_known():
    assert registry.keys() == tuple(range(95))
    assert not registry.is_known(95)
    assert not registry.is_known(-1)


@pytest.mark.parametrize(
    ("key", "name", "first", "last", "flexible"),
    [
        (0, "Produce", 0, 13, 9),
        (1, "Fetch", 0, 18, 12),
        (2, "ListOffsets", 0, 11, 6),
        (3, "Metadata", 0, 13, 9),
        (7, "ControlledShutdown", 0, 3, 3),
        (8, "OffsetCommit", 0, 10, 8),
        (11, "JoinGroup", 0, 9, 6),
        (17, "SaslHandshake", 0, 1, None),
        (18, "ApiVersions", 0, 5, 3),
        (36, "SaslAuthenticate", 0, 2, 2),
        (74, "ListConfigResources", 0, 1, 0),
        (78, "ShareFetch", 0, 2, 0),
        (93, "StreamsGroupTopologyDescriptionUpdate", 0, 0, 0),
        (94, "UnregisterController", 0, 0, 0),
    ],
)
def test_versions_are_all_that_were_ever_published(key, name, first, last, flexible):
    info = registry.info(key)
    assert (info.name, info.request_min_version, info.request_max_version) == (name, first, last)
    assert info.flexible_from == flexible
    assert registry.key_of(name) == key


@pytest.mark.parametrize("key", registry.keys())
def test_the_index_says_what_the_codecs_say(key):
    info = registry.info(key)
    request, response = registry.codec(key)
    assert (request.name, response.name) == (f"{info.name}Request", f"{info.name}Response")
    assert (request.min_version, request.max_version) == (info.request_min_version, info.request_max_version)
    assert (response.min_version, response.max_version) == (
        info.response_min_version,
        info.response_max_version,
    )
    assert request.flexible_from == response.flexible_from == info.flexible_from
    assert registry.request_codec(key) is request
    assert registry.response_codec(key) is response


def test_the_one_version_still_open_to_change_is_marked():
    infos = map(registry.info, registry.keys())
    unstable = [info.name for info in infos if info.latest_unstable]
    assert unstable == ["InitProducerId"]
    assert registry.info(22).max_stable_version == 5


def test_nothing_is_loaded_before_it_is_asked_for():
    code = (
        "import sys; from barnabas.wire import headers, registry; registry.info(0)\n"
        "print(sum(name.startswith('barnabas.wire.generated.') for name in sys.modules))\n"
        "registry.codec(0); print('barnabas.wire.generated.produce' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert result.stdout.split() == ["1", "True"]


def test_record_types_are_found_by_topic_and_number():
    assert registry.record_type("__consumer_offsets", 1).value.name == "OffsetCommitValue"
    assert registry.record_type("__consumer_offsets", 2).key.name == "GroupMetadataKey"
    assert registry.record_type("__consumer_offsets", 23).key.name == "StreamsGroupTopologyKey"
    assert registry.record_type("__transaction_state", 0).value.max_version == 1
    assert registry.record_type_ids("__share_group_state") == (0, 1)
    with pytest.raises(DecodeError, match="no record type 18"):
        registry.record_type("__consumer_offsets", 18)


def test_error_codes_know_whether_to_try_again():
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.TOPIC_AUTHORIZATION_FAILED.retriable
    assert ErrorCode.UNKNOWN_SERVER_ERROR == -1
    assert max(ErrorCode) == 136
    assert len(ErrorCode) == 138
