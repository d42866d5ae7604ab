"""Refusals of a broker are told with their reason; each group is asked for as its kind wants it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.tools.seeding.files import seeds_of_file
from barnabas.tools.seeding.looking import Looking, NotThereError
from barnabas.tools.seeding.planting import Planting, error_name
from barnabas.tools.seeding.reading import read_seeds
from barnabas.tools.seeding.seeds import SeedError, SeedRecord
from barnabas.wire.generated.errors import ErrorCode

CODE = ErrorCode.POLICY_VIOLATION


class Local:
    """Stands for a broker: answers each kind of request with what is set for it, and remembers the requests."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, int, Any]] = []
        self.codes: list[int] = []
        """Codes for which a request would be sent again, if they passed by themselves."""
        topics = {"t": SimpleNamespace(partitions=[0, 0])}
        log = SimpleNamespace(log_start_offset=2, high_watermark=9)
        self.services = SimpleNamespace(
            metadata=SimpleNamespace(
                image=SimpleNamespace(topics={**topics, "__consumer_offsets": topics["t"]})
            ),
            logs={("t", 0): log},
            clock_ms=lambda: 77,
            entropy=SimpleNamespace(token_bytes=bytes),
        )
        self.services.logs = SimpleNamespace(
            get=lambda topic, index: log if (topic, index) == ("t", 0) else None
        )

    async def ask(self, request: Any, version: int) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.asked.append((name, version, request))
        answer = self.answers[name]
        return answer(request) if callable(answer) else answer

    async def ask_until_known(self, request: Any, version: int, code_of: Any) -> Any:
        answer = await self.ask(request, version)
        self.codes.append(code_of(answer))
        return answer

    def names(self) -> list[tuple[str, int]]:
        return [(name, version) for name, version, _ in self.asked]


def of(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


def groups_of(kind: str) -> SimpleNamespace:
    return of(error_code=0, groups=[of(group_id="g", group_type=kind, group_state="Old")])


KINDS = {
    "classic": ("DescribeGroups", 5),
    "consumer": ("ConsumerGroupDescribe", 1),
    "share": ("ShareGroupDescribe", 1),
    "streams": ("StreamsGroupDescribe", 0),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_is_described_by_the_request_of_its_kind(kind):
    name, version = KINDS[kind]
    member = of(member_id="m", client_id="c", client_host="/h")
    described = of(error_code=0, group_state="New", members=[member])
    offsets = [
        of(
            name="t",
            partitions=[of(partition_index=0, committed_offset=4), of(partition_index=1, committed_offset=0)],
        ),
        of(name="s", partitions=[of(partition_index=0, committed_offset=-1)]),
    ]
    answers = {name: of(groups=[described]), "OffsetFetch": of(error_code=0, topics=offsets)}
    local = Local(ListGroups=groups_of(kind), **answers)
    assert await Looking(local).group("g") == {
        "group": "g", "type": kind, "state": "New",
        "members": [{"member": "m", "client_id": "c", "host": "/h"}],
        "offsets": [
            {"topic": "t", "partition": 0, "offset": 4, "lag": 5},
            {"topic": "t", "partition": 1, "offset": 0, "lag": None},
        ],
    }  # fmt: skip
    assert local.names() == [("ListGroups", 5), (name, version), ("OffsetFetch", 7)]
    described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(NotThereError, match="there is no group g"):
        await Looking(local).group("g")
    for code in (CODE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED):
        described.error_code = code
        with pytest.raises(SeedError, match=f"group g: {code.name}") as caught:
            await Looking(local).group("g")
        assert local.codes[-1] == code
        assert not isinstance(caught.value, NotThereError)


async def test_what_cannot_be_read_is_told():
    with pytest.raises(SeedError, match="groups: POLICY_VIOLATION"):
        await Looking(Local(ListGroups=of(error_code=CODE))).groups()
    part = of(error_code=CODE)
    local = Local(Fetch=of(responses=[of(partitions=[part])]))
    with pytest.raises(SeedError, match="t-0: POLICY_VIOLATION"):
        await Looking(local).read("t", 0, limit=5)
    part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    assert await Looking(local).read("t", 0, 50, limit=5) == []
    assert await Looking(local).count("t", 0, 50) == (0, 50)
    assert {version for _, version in local.names()} == {11}
    for start, offset in ((0, 2), (2, 2), (3, 3)):
        await Looking(local).count("t", 0, start)
        requested = local.asked[-1][2].topics[0].partitions[0]
        assert (requested.fetch_offset, requested.partition) == (offset, 0)
    for committed, level in ((True, 1), (False, 0)):
        await Looking(local).count("t", 0, committed=committed)
        assert local.asked[-1][2].isolation_level == level
    with pytest.raises(NotThereError, match="topic t has no partition 1"):
        await Looking(local).count("t", 1)


# --- planting ---------------------------------------------------------------------------------------------------


def produced(request: Any) -> Any:
    part = of(error_code=0, error_message=None, base_offset=100)
    return of(responses=[of(partition_responses=[part])])


def record(value: bytes, **fields: Any) -> SeedRecord:
    return SeedRecord(
        **{"key": None, "value": value, "headers": (), "partition": None, "timestamp_ms": None, **fields}
    )


async def test_records_take_turns_and_their_places_are_told():
    local = Local(Produce=produced)
    records = [
        record(b"0"),
        record(b"1"),
        record(b"2"),
        record(b"3", partition=1),
        record(b"4", timestamp_ms=0),
    ]
    assert await Planting(local).append("t", records) == [(0, 100), (1, 100), (0, 101), (1, 101), (1, 102)]
    assert local.names() == [("Produce", 8)] * 2
    assert all(request.acks == -1 for _, _, request in local.asked)
    assert await Planting(local).append("t", []) == []
    with pytest.raises(SeedError, match=r"^records of topic none: UNKNOWN_TOPIC_OR_PARTITION$"):
        await Planting(local).append("none", records)


ANSWERS: dict[str, Any] = {
    "CreateTopics": of(topics=[of(name="t", error_code=0, error_message=None)]),
    "Produce": produced(None),
    "FindCoordinator": of(error_code=0, error_message=None),
    "OffsetFetch": of(error_code=0, topics=[]),
    "OffsetCommit": of(topics=[of(name="t", partitions=[of(error_code=0, partition_index=0)])]),
    "AlterUserScramCredentials": of(results=[of(error_code=0, error_message=None)]),
    "AlterClientQuotas": of(entries=[of(error_code=0, error_message=None)]),
}
SEEDS = {
    "topics": {"t": {"records": ["x"]}},
    "groups": {"g": {"t": {"0": 3}}},
    "users": {"u": {"password": "p", "mechanisms": ["SCRAM-SHA-256"], "iterations": 4096}},
    "quotas": [{"user": "u", "producer_byte_rate": 5}],
}


def refusing(code: int, message: str | None = "because") -> dict[str, tuple[Any, str]]:
    told = f" ({message})" if message else ""
    name = error_name(code)
    error = {"error_code": code, "error_message": message}
    return {
        "CreateTopics": (of(topics=[of(name="t", **error)]), f"topic t: {name}{told}"),
        "Produce": (
            of(responses=[of(partition_responses=[of(base_offset=0, record_errors=[], **error)])]),
            f"records of t-0: {name}{told}",
        ),
        "FindCoordinator": (of(**error), f"group g: {name}{told}"),
        "OffsetFetch": (of(error_code=code), f"offsets of group g: {name}"),
        "OffsetCommit": (
            of(topics=[of(name="t", partitions=[of(error_code=code, partition_index=0)])]),
            f"the offset of group g for t-0: {name}",
        ),
        "AlterUserScramCredentials": (of(results=[of(**error)]), f"user u: {name}{told}"),
        "AlterClientQuotas": (of(entries=[of(**error)]), f"quotas of .*: {name}"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("message", [None, "because"])
async def test_the_first_refusal_ends_it_with_its_reason(kind, message):
    seeds = read_seeds(SEEDS)
    answer, told = refusing(CODE, message)[kind]
    local = Local(**{**ANSWERS, kind: answer})
    with pytest.raises(SeedError) as caught:
        await Planting(local).plant(seeds)
    text = str(caught.value)
    assert text == told or (".*" in told and text.startswith("quotas of ") and name_in(text, message))
    assert local.names()[-1][0] == kind
    assert (CODE in local.codes) is (kind in ("Produce", "FindCoordinator", "OffsetFetch"))
    whole = Local(**ANSWERS)
    await Planting(whole).plant(seeds)
    assert whole.names() == [
        ("CreateTopics", 5), ("Produce", 8), ("FindCoordinator", 2), ("OffsetFetch", 7), ("OffsetCommit", 8),
        ("AlterUserScramCredentials", 0), ("AlterClientQuotas", 1),
    ]  # fmt: skip


LINES = {
    "CreateTopics": (2, "topics.t"), "Produce": (6, "topics.t.records[1]"), "FindCoordinator": (8, "groups.g.t.0"),
    "OffsetFetch": (8, "groups.g.t.0"), "OffsetCommit": (8, "groups.g.t.0"), "AlterUserScramCredentials": (10, "users.u"),
    "AlterClientQuotas": (12, "quotas[0]"),
}  # fmt: skip
FILE = """topics:
  t:
    partitions: 1
    records:
      - {key: a, value: taken}
      - only a value
groups:
  g: {t: {0: 3}}
users:
  u: {password: p}
quotas:
  - {user: u, producer_byte_rate: 5}
"""


@pytest.mark.parametrize("kind", ANSWERS)
async def test_a_refusal_of_a_file_names_line_and_place(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "seeds.yaml"
    file.write_text(FILE)
    answer, told = refusing(CODE)[kind]
    if kind == "Produce":
        (part,) = answer.responses[0].partition_responses
        part.record_errors = [of(batch_index=1)]
    local = Local(**{**ANSWERS, kind: answer})
    local.services.metadata.image.topics["t"].partitions.pop()
    with pytest.raises(SeedError) as caught:
        await Planting(local).plant(seeds_of_file(file))
    line, place = LINES[kind]
    assert str(caught.value).startswith(f"{file}:{line}: {place}: {told.partition('.*')[0]}")


def name_in(text: str, message: str | None) -> bool:
    return text.endswith("POLICY_VIOLATION (because)" if message else "POLICY_VIOLATION")


@pytest.mark.parametrize(("text", "offset"), [("earliest", 2), ("latest", 9), (0, 0), (5, 5)])
async def test_offsets_are_numbers_or_ends_of_the_log(text, offset):
    local = Local(**ANSWERS)
    await Planting(local).plant(read_seeds({"groups": {"g": {"t": {"0": text}}}}))
    (request,) = (request for name, _, request in local.asked if name == "OffsetCommit")
    (part,) = request.topics[0].partitions
    assert (request.group_id, request.topics[0].name, part.partition_index) == ("g", "t", 0)
    assert part.committed_offset == offset
    with pytest.raises(SeedError, match="the offset of group g for t-1: UNKNOWN_TOPIC_OR_PARTITION"):
        await Planting(local).plant(read_seeds({"groups": {"g": {"t": {"1": "latest"}}}}))
