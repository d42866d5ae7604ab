"""The suite: every API and version has cases, each says its rule, and wrong frames are wrong."""

from __future__ import annotations

import pytest

from barnabas.serving import apis
from barnabas.tools.conformance import frames
from barnabas.tools.conformance.cases import Case, DiffersError
from barnabas.tools.conformance.expecting import check
from barnabas.tools.conformance.running import selected
from barnabas.tools.conformance.suite import all_cases
from barnabas.tools.probing.harmless import BY_KEY, Names
from barnabas.tools.probing.messages import make
from barnabas.wire import registry

NAMES = Names("t", "g", "x")
SERVED = [api for api in apis.BY_KEY.values() if not api.member_only]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return all_cases(random_walks=2)


def test_every_served_version_has_right_and_wrong_request(cases: list[Case]) -> None:
    by_version: dict[tuple[str, int], set[str]] = {}
    for case in cases:
        for need in case.needs:
            if need.version >= 0:
                by_version.setdefault((need.api, need.version), set()).add(case.id.rpartition("/")[2])
    for api in SERVED:
        last = registry.info(api.key).max_stable_version
        for version in range(api.min_version, min(api.max_version, last) + 1):
            names = by_version[api.name, version]
            assert "answered" in names
            request = BY_KEY[api.key].request(NAMES, version)
            body = registry.request_codec(api.key).encode_bytes(request, version)
            assert len(names) > 1 or not body, f"{api.name} v{version} has no wrong request"


def test_every_served_api_has_rows_of_its_own(cases: list[Case]) -> None:
    of_frames = {case.id for case in frames.cases()}
    with_rows = {case.group for case in cases if case.id not in of_frames}
    assert {api.name for api in SERVED} - with_rows == set()


def test_ids_are_unique_and_rules_are_sentences(cases: list[Case]) -> None:
    assert len({case.id for case in cases}) == len(cases)
    for case in cases:
        assert case.rule.endswith("."), case.id
        assert case.source, case.id


def test_cases_are_selected_by_api_suite_and_pattern(cases: list[Case]) -> None:
    assert {case.group for case in selected(cases, ["Metadata"])} == {"Metadata"}
    kinds = ("topics", "classic group", "consumer group", "transactions", "ACLs")
    walks = {f"walks/{kind} {number}" for kind in kinds for number in range(2)}
    assert {case.id for case in selected(cases, ["walks"])} == walks
    assert all("/v12/" in case.id for case in selected(cases, ["Fetch/v12/*"]))


def test_damage_is_where_it_is_said_to_be() -> None:
    row, key = BY_KEY[3], 3
    request = row.request(NAMES, 9)
    named = {damage.name: damage.of(key, 9, request) for damage in frames.damages(row, key, 9)}
    # The list may be null in this version, the name may not.
    assert named.keys() == {
        "topics longer than the frame",
        "topics.name is null",
        "topics.name longer than the frame",
    }
    assert named["topics.name is null"] == b"\x02\x00\x00\x00\x00\x00\x00"


def test_a_wrong_answer_is_told_in_words() -> None:
    answer = make("Metadata", 12, {"topics": [{"name": "t"}]})
    check(answer, {"topics.len": 1, "topics.0.name": {"s", "t"}})
    told = r"topics\.0\.name is 't', not 's'; topics\.1\.name: there are 1 entries, none at 1"
    with pytest.raises(DiffersError, match=told):
        check(answer, {"topics.0.name": "s", "topics.1.name": "u"})
