"""The table of harmless requests: every API that is served, in every version."""

from __future__ import annotations

import pytest

from barnabas.serving import apis
from barnabas.tools.probing.harmless import BETWEEN_BROKERS, BY_KEY, Names
from barnabas.wire import registry

NAMES = Names("topic", "group", "transaction")


def test_every_api_that_clients_may_ask_has_a_request() -> None:
    served = {key for key, api in apis.BY_KEY.items() if not api.member_only}
    assert served - BY_KEY.keys() == set()
    assert not BY_KEY.keys() & BETWEEN_BROKERS


@pytest.mark.parametrize("key", BY_KEY, ids=registry.name_of)
def test_a_request_is_encoded_in_every_version_and_decoded_as_it_was(key: int) -> None:
    info = registry.info(key)
    codec = registry.request_codec(key)
    for version in range(info.request_min_version, info.max_stable_version + 1):
        request = BY_KEY[key].request(NAMES, version)
        data = codec.encode_bytes(request, version)
        assert codec.encode_bytes(codec.decode_whole(data, version), version) == data
