"""Verdicts of `barnabas doctor` on a cluster: versions, controller, partitions, clocks, open files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import ClientError, Endpoint, ResponseError
from barnabas.client.admin import ClusterInfo, ConfigEntry, OffsetAt, PartitionInfo, Resource, TopicInfo
from barnabas.commands.findings import NOTE, OK, PROBLEM, SKIPPED, Findings
from barnabas.commands.wellness import (
    KAFKA_4_NEEDS,
    NAMES_SHOWN,
    SKEW_MS,
    Processes,
    check_clock,
    check_controller,
    check_local_files,
    check_partitions,
    check_versions,
)

REFUSED = ResponseError(29, "asking", None)
REFUSED_TEXT = "TOPIC_AUTHORIZATION_FAILED"
NOW_MS = 1_700_000_000_000


class StandIn:
    """An administration that answers so, and keeps what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        async def answered(*arguments: Any, **named: Any) -> Any:
            self.asked.append((name, *arguments, *([named] if named else [])))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return answered


def brief(findings: Findings) -> list[tuple[str, str, str, str]]:
    return [(finding.check, finding.subject, finding.status, finding.text) for finding in findings.all]


@pytest.fixture
def findings() -> Findings:
    return Findings(lambda _: None)


# --- versions and the controller -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lacking", [None, *KAFKA_4_NEEDS])
@pytest.mark.parametrize("is_served", [True, False])
def test_broker_lacking_one_needed_version_is_too_old(
    findings: Findings, lacking: int | None, is_served: bool
) -> None:
    versions = {key: (0, first) for key, first in KAFKA_4_NEEDS.items()}
    if lacking is not None:
        versions[lacking] = 0, KAFKA_4_NEEDS[lacking] - 1
        if not is_served:
            del versions[lacking]
    connection: Any = SimpleNamespace(peer=Endpoint("h", 1), versions=versions)
    check_versions(connection, findings)
    (result,) = findings.all
    assert (result.check, result.subject) == ("versions", "h:1")
    assert result.status == (OK if lacking is None else PROBLEM)
    assert ("Apache Kafka 4 clients need 2.1 or later" in result.text) == (lacking is not None)


@pytest.mark.parametrize(
    ("controller", "status", "text"),
    [
        (7, OK, "requests for the controller go to broker 7"),
        (0, OK, "requests for the controller go to broker 0"),
        (-1, PROBLEM, "no controller is known"),
    ],
)
async def test_a_controller_is_known_or_not(
    findings: Findings, controller: int, status: str, text: str
) -> None:
    admin: Any = StandIn(describe_cluster=ClusterInfo("id", controller, ()))
    await check_controller(admin, findings)
    assert brief(findings) == [("controller", "id", status, text)]


# --- partitions ----------------------------------------------------------------------------------------------------


def topic(name: str, *partitions: tuple[int, int]) -> TopicInfo:
    """A topic of partitions with a leader, and so many replicas in sync of three."""
    return TopicInfo(
        name, "", False,
        tuple(
            PartitionInfo(number, leader, 0, (1, 2, 3), (1, 2, 3)[:in_sync], ())
            for number, (leader, in_sync) in enumerate(partitions)
        ),
    )  # fmt: skip


def limit(value: str | None) -> list[ConfigEntry]:
    return [ConfigEntry("min.insync.replicas", value, "topic", False, False, "", ())]


async def test_partitions_are_told_by_their_worst_trouble(findings: Findings) -> None:
    admin: Any = StandIn(
        topics={
            "a": topic("a", (1, 3), (-1, 0), (0, 2), (1, 1)), "b": topic("b", (1, 1), (1, 0)), "c": topic("c", (-1, 3)),
            "d": REFUSED, "e": topic("e", (1, 2)), "f": topic("f", (1, 1)),
        },
        describe_configs={
            Resource("topic", "a"): limit("2"), Resource("topic", "c"): REFUSED, Resource("topic", "e"): limit(None),
            Resource("topic", "f"): [], Resource("topic", "b"): limit("x"),
        },
    )  # fmt: skip
    await check_partitions(admin, findings)
    assert brief(findings) == [
        ("partitions", "a-1, c-0", PROBLEM, "2 of 9 have no leader"),
        ("partitions", "a-3, b-1", PROBLEM, "2 of 9 have fewer replicas in sync than min.insync.replicas"),
        ("partitions", "a-2, b-0, e-0, f-0", PROBLEM, "4 of 9 have replicas that are not in sync"),
    ]
    assert ["elect" in finding.advice for finding in findings.all] == [True, False, False]
    assert admin.asked[1:] == [
        (
            "describe_configs",
            [Resource("topic", name) for name in "abcef"],
            {"names": ["min.insync.replicas"]},
        )
    ]


async def test_partitions_that_are_well_are_counted_with_their_topics(findings: Findings) -> None:
    admin: Any = StandIn(
        topics={"a": topic("a", (1, 3), (0, 3)), "b": topic("b", (2, 3))}, describe_configs={}
    )
    await check_partitions(admin, findings)
    assert brief(findings) == [("partitions", "2 topics", OK, "all 3 have a leader and all replicas in sync")]


@pytest.mark.parametrize(("in_sync", "is_short"), [(2, False), (1, True)])
async def test_as_many_replicas_in_sync_as_the_minimum_are_enough(
    findings: Findings, in_sync: int, is_short: bool
) -> None:
    configs = {Resource("topic", "a"): limit("2")}
    admin: Any = StandIn(topics={"a": topic("a", (1, in_sync))}, describe_configs=configs)
    await check_partitions(admin, findings)
    assert ("fewer" in findings.all[0].text) == is_short


@pytest.mark.parametrize(("count", "dots"), [(NAMES_SHOWN, False), (NAMES_SHOWN + 1, True)])
async def test_only_some_names_are_shown(findings: Findings, count: int, dots: bool) -> None:
    admin: Any = StandIn(topics={"a": topic("a", *[(-1, 3)] * count)}, describe_configs={})
    await check_partitions(admin, findings)
    shown = ", ".join(f"a-{number}" for number in range(NAMES_SHOWN))
    assert findings.all[0].subject == shown + (", ..." if dots else "")


# --- clocks --------------------------------------------------------------------------------------------------------


def clock() -> float:
    return NOW_MS / 1000


TOPICS = {"a": topic("a", (1, 3), (1, 3)), "__own": topic("__own", (1, 3)), "c": topic("c", (1, 3))}


async def test_records_from_the_future_are_told_by_the_furthest(findings: Findings) -> None:
    newest = {
        ("a", 0): OffsetAt(0, NOW_MS + SKEW_MS + 1000, 0), ("a", 1): OffsetAt(5, NOW_MS + 3_600_000, 0),
        ("c", 0): OffsetAt(5, NOW_MS, 0),
    }  # fmt: skip
    admin: Any = StandIn(topics=TOPICS, offsets=newest)
    await check_clock(admin, findings, writes=False, clock=clock)
    assert brief(findings) == [
        (
            "clock",
            "a-0, a-1",
            PROBLEM,
            "the newest records of 2 partitions are from the future, by 3600 s at most",
        )
    ]
    assert [call for call in admin.asked if call[0] == "offsets"] == [
        ("offsets", {("a", 0): -3, ("a", 1): -3, ("c", 0): -3})
    ]


@pytest.mark.parametrize(
    ("newest", "finding"),
    [
        (OffsetAt(0, NOW_MS + SKEW_MS, 0), ("1 partition", OK, "no record is from the future")),
        (OffsetAt(0, NOW_MS + SKEW_MS + 1, 0), ("c-0", PROBLEM, "the newest records of 1 partition")),
        (OffsetAt(-1, NOW_MS + SKEW_MS + 1, 0), ("records", SKIPPED, "there are no records to compare with")),
        (REFUSED, ("records", SKIPPED, "there are no records to compare with")),
    ],
)
async def test_a_difference_of_clocks_is_one_from_so_many_seconds_on(
    findings: Findings, newest: Any, finding: tuple[str, str, str]
) -> None:
    admin: Any = StandIn(topics={"c": TOPICS["c"]}, offsets={("c", 0): newest})
    await check_clock(admin, findings, writes=False, clock=clock)
    (result,) = findings.all
    assert (result.subject, result.status) == finding[:2]
    assert result.text.startswith(finding[2])


def broker(stamped_ms: int | Exception, **more: Any) -> Any:
    """An administration of a broker that stamps a record so."""

    async def ask_leader(name: str, partition: int, request: Any, *, error_of: Any, version_max: int) -> Any:
        if isinstance(stamped_ms, Exception):
            raise stamped_ms
        (topic_data,) = request.topic_data
        (data,) = topic_data.partition_data
        assert (name, partition, topic_data.name, data.index, request.acks) == (
            topic_data.name,
            0,
            name,
            0,
            -1,
        )
        assert version_max == 12
        answer = SimpleNamespace(log_append_time_ms=stamped_ms, error_code=3)
        response = SimpleNamespace(responses=[SimpleNamespace(partition_responses=[answer])])
        assert error_of(response) == 3
        return response

    created = StandIn(**{
        "topics": {}, "create_topics": lambda new: {new[0].name: None}, "delete_topics": lambda names: dict.fromkeys(names),
        **more,
    })  # fmt: skip
    created.client = SimpleNamespace(ask_leader=ask_leader)  # type: ignore[attr-defined]
    return created


async def test_clock_check_is_skipped_without_its_topic(findings: Findings) -> None:
    admin = broker(0, create_topics=lambda new: {new[0].name: REFUSED})
    await check_clock(admin, findings, writes=True)
    assert (findings.all[0].status, findings.all[0].text) == (
        SKIPPED, f"no topic can be made to read it: {REFUSED_TEXT}",
    )  # fmt: skip
    assert [call[0] for call in admin.asked] == ["create_topics", "topics"], "nothing is there to delete"
    admin = broker(ResponseError(29, "appending", None))
    await check_clock(admin, findings, writes=True)
    assert (findings.all[2].status, findings.all[2].text) == (SKIPPED, f"appending: {REFUSED_TEXT}")
    assert [call[0] for call in admin.asked] == ["create_topics", "delete_topics", "topics"]


@pytest.mark.parametrize("delete", [lambda names: dict.fromkeys(names, REFUSED), ClientError("away")])
async def test_a_topic_that_cannot_be_deleted_is_named(findings: Findings, delete: Any) -> None:
    admin = broker(NOW_MS, delete_topics=delete)
    await check_clock(admin, findings, writes=True, clock=clock)
    name = admin.asked[1][1][0]
    assert [finding.status for finding in findings.all] == [OK, NOTE, SKIPPED]
    assert findings.all[1].text.startswith(f"topic {name}, made for this, is left: ")
    assert findings.all[1].advice == f"delete it: `barnabas topics delete {name}`"


# --- open files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "most", "status"),
    [
        (8000, 10_000, OK), (8001, 10_000, PROBLEM), (0, 4096, OK), (0, 4095, NOTE), (3277, 4096, PROBLEM),
        (5_000_000, -1, OK), (0, 0, NOTE), (1, 0, PROBLEM),
    ],
)  # fmt: skip
def test_a_broker_has_files_left_that_it_may_open(
    findings: Findings, used: int, most: int, status: str
) -> None:
    processes = Processes(
        True,
        lambda port: 77 if port == 9 else None,
        lambda process: (used, most) if process == 77 else (0, 0),
    )
    check_local_files(Endpoint("h", 9), ["192.0.2.1", "::1"], findings, processes)
    assert brief(findings) == [("open files", "h:9", status, f"process 77 has {used} files open of {most}")]
    assert bool(findings.all[0].advice) == (status != OK)


def test_files_are_not_counted_where_nobody_tells(findings: Findings) -> None:
    untold = Processes(True, lambda _: None)
    check_local_files(Endpoint("h", 9), ["192.0.2.1"], findings, untold)
    check_local_files(Endpoint("h", 9), ["127.0.0.1"], findings, untold)
    check_local_files(Endpoint("h", 9), ["127.0.0.1"], findings, Processes(are_shown=False))
    assert [(finding.status, finding.text) for finding in findings.all] == [
        (SKIPPED, "the broker is not on this machine"),
        (SKIPPED, "the process that listens belongs to another user, or is in a container"),
        (SKIPPED, "this system does not show the files of other processes"),
    ]
