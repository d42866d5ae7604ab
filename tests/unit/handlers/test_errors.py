"""An error for a whole request is told in every API and version, with and without words."""

import pytest

from barnabas.serving import apis
from barnabas.serving.error_responses import error_response
from barnabas.wire import registry
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import encode_response
from compat.hostile.messages import filled
from compat.kit.wire import encode, message

CODE = ErrorCode.ILLEGAL_SASL_STATE
WITHOUT_ROOM = {("DescribeLogDirs", version) for version in range(3)}
"""Requests that Kafka answers with nothing too."""


class Context:
    """The part of a request's context that error_response needs."""

    def __init__(self, version: int) -> None:
        self.api_version = version
        self.close_after_response = False

    def log(self, *_: object) -> None:
        """Say nothing."""


def request_of(name: str, version: int):
    body = encode(message(f"{name}Request"), version, {**filled(name, version), **acked(name)})
    key = registry.key_of(name)
    return registry.request_codec(key).decoders[version](memoryview(body), 0)[0]


def acked(name: str) -> dict[str, int]:
    return {"Acks": 1} if name == "Produce" else {}


@pytest.mark.parametrize("words", ["", "what is wrong"])
def test_every_api_says_what_is_wrong_in_every_version(words: str) -> None:
    for api in apis.BY_KEY.values():
        for version in range(api.min_version, api.max_version + 1):
            response = error_response(api, Context(version), request_of(api.name, version), CODE, words)
            answer = b"".join(map(bytes, encode_response(api.key, version, 1, response)))
            is_told = CODE.to_bytes(2, "big") in answer[8:]
            assert is_told != ((api.name, version) in WITHOUT_ROOM), f"{api.name} v{version}: {answer!r}"


def test_old_consumers_are_told_of_each_partition_and_no_offset() -> None:
    api = apis.BY_KEY[9]
    for version in (0, 1):
        response = error_response(api, Context(version), request_of("OffsetFetch", version), CODE, "")
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.committed_offset) == (CODE, -1)


def test_beside_an_error_there_is_no_coordinator_and_no_epoch() -> None:
    find, init = apis.BY_KEY[10], apis.BY_KEY[22]
    alone = error_response(find, Context(3), request_of("FindCoordinator", 3), CODE, "")
    assert (alone.node_id, alone.port) == (-1, -1)
    (coordinator,) = error_response(find, Context(4), request_of("FindCoordinator", 4), CODE, "").coordinators
    assert (coordinator.node_id, coordinator.port) == (-1, -1)
    producer = error_response(init, Context(4), request_of("InitProducerId", 4), CODE, "")
    assert (producer.producer_id, producer.producer_epoch) == (-1, -1)


def test_named_users_have_results_beside_a_refused_describe() -> None:
    api = apis.BY_KEY[50]
    users = [{"Name": "a"}, {"Name": "b"}]
    for named, results in ((users, [CODE, CODE]), ([], []), (None, [])):
        body = encode(message("DescribeUserScramCredentialsRequest"), 0, {"Users": named})
        request = registry.request_codec(50).decoders[0](memoryview(body), 0)[0]
        response = error_response(api, Context(0), request, CODE, "why")
        assert response.error_code == CODE
        assert [result.error_code for result in response.results] == results
        assert {result.user for result in response.results} <= {""}
