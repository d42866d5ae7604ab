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
def test_request_of_every_version_survives_a_round_trip(key: int) -> None:
    info = registry.info(key)
    codec = registry.request_codec(key)
    for version in range(info.request_min_version, info.max_stable_version + 1):
        request = BY_KEY[key].request(NAMES, version)
        data = codec.encode_bytes(request, version)
        assert codec.encode_bytes(codec.decode_whole(data, version), version) == data


NAMED = {
    "t": (2, 20, 21, 23, 33, 35, 37, 43, 44, 45, 46, 61, 75),
    "g": (
        9, 10, 12, 13, 14, 15, 42, 50, 51, 69, 77, 78, 79, 83, 84, 85, 86, 87, 89, 90,
    ),
    "tg": (47, 91, 92),
    "x": (26, 65),
    "tx": (24,),
    "gx": (25,),
}  # fmt: skip
"""APIs with requests that name topic (t), group (g) and transactional id (x), in all versions alike."""
CHANGING = {
    0: ("t",) * 13 + ("i",),
    1: ("t",) * 13 + ("i",) * 6,
    3: ("",) * 4 + ("t",) * 10,
    8: ("g",) + ("tg",) * 9 + ("ig",),
    28: ("tgx",) * 6 + ("igx",),
}
"""Those that name them, or the topic's id (i), by version."""


@pytest.mark.parametrize("key", BY_KEY, ids=registry.name_of)
def test_a_request_names_nothing_but_what_there_is_not(key: int) -> None:
    names = Names(
        "THETOPIC", "THEGROUP", "THETXN", topic_id=b"T" * 16,
        has_offsets_topic=True, has_transactions_topic=True, has_shares_topic=True,
    )  # fmt: skip
    words = {"t": b"THETOPIC", "i": b"T" * 16, "g": b"THEGROUP", "x": b"THETXN"}
    info = registry.info(key)
    (usual,) = {letters for letters, keys in NAMED.items() if key in keys} or {""}
    versions = range(info.request_min_version, info.max_stable_version + 1)
    for version in versions:
        data = registry.request_codec(key).encode_bytes(BY_KEY[key].request(names, version), version)
        result = "".join(letter for letter, word in words.items() if word in data)
        assert result == (CHANGING[key][version] if key in CHANGING else usual), version
