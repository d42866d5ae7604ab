"""Right and wrong answers to a probe: each look at a broker's ways, each verdict, the report as JSON."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio.testing

from barnabas.client.errors import ClientError
from barnabas.tools.probing import probe as probing
from barnabas.tools.probing import quirks
from barnabas.tools.probing.exchanges import ClosedByBrokerError, NonsenseError, SilentError, Wire
from barnabas.tools.probing.harmless import Names
from barnabas.tools.probing.honoured import Status, Verdict, ask_all, ask_for_cluster
from barnabas.tools.probing.limits import Limits
from barnabas.tools.probing.probe import Feature, Report
from barnabas.tools.probing.quirks import Quirk
from barnabas.tools.probing.release import Guess
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.produce import ProduceRequest
from tests.unit.tools.tap.test_session import response

EVERYWHERE = Names("n", "n", "n", has_offsets_topic=True, has_transactions_topic=True, has_shares_topic=True)
VERSIONS = {3: (0, 12), 18: (0, 4), 68: (0, 1), 76: (0, 1), 88: (0, 0)}


def of(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


class Target:
    """Stands for a broker: `answers` is asked for each request; what it raises or returns is the answer."""

    def __init__(self, answers: Any, *, sasl: Any = None) -> None:
        self.answers = answers
        self.settings = of(sasl=sasl)
        self.endpoint = "h:9092"
        self.connections = 0
        self.asked: list[tuple[Any, int]] = []
        self.sent: list[bytes] = []
        self.frames: list[bytes] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        self.connections += 1
        yield self._wire()

    def _wire(self) -> Any:
        def answered(message: Any, version: int) -> Any:
            self.asked.append((message, version))
            result = self.answers(message, version) if callable(self.answers) else self.answers
            if isinstance(result, Exception):
                raise result
            return result

        async def ask(message: Any, version: int) -> Any:
            return answered(message, version)

        async def ask_frame(
            frame: bytes, key: int, version: int, *, correlation_id: int | None = None
        ) -> Any:
            return answered((frame, key, correlation_id), version)

        async def send(data: bytes) -> None:
            self.sent.append(data)

        async def frame(_: Any = None) -> bytes:
            if not self.frames:
                raise ClosedByBrokerError("closed")
            return self.frames.pop(0)

        return of(ask=ask, ask_frame=ask_frame, send=send, frame=frame, is_open=True, journal=[])


async def look(
    name: str, answers: Any, *, versions: Any = None, names: Names = EVERYWHERE, **more: Any
) -> tuple[str, bool | None]:
    entry = next(each for each in quirks.LOOKS if each.name == name)
    return await entry.find(Target(answers, **more), VERSIONS if versions is None else versions, names)  # type: ignore[arg-type]


# --- looks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["an unknown API", "an unknown version of another API", "a request that is cut short"]
)
async def test_what_is_no_request_closes_the_connection(name: str) -> None:
    assert await look(name, ClosedByBrokerError("x")) == ("connection closed", True)
    assert await look(name, of()) == ("answered", False)
    with pytest.raises(SilentError):
        await look(name, SilentError("x"))


async def test_bytes_that_are_too_many_are_no_matter() -> None:
    assert await look("bytes left over after a request", ClosedByBrokerError("x")) == (
        "connection closed",
        None,
    )
    assert await look("bytes left over after a request", of()) == ("answered as if they were not there", None)


async def test_correlation_ids_of_any_sign_are_asked() -> None:
    asked: list[Any] = []

    def answers(message: Any, version: int) -> Any:
        frame, key, number = message
        assert (struct.unpack(">i", frame[8:12])[0], key, version) == (number, 18, 0)
        asked.append(number)
        return of()

    assert await look("correlation ids", answers) == ("echoed, negative ones too", True)
    assert asked == [0, -1, -(2**31), 2**31 - 1]


async def test_topics_null_and_empty() -> None:
    def answers(message: Any, version: int) -> Any:
        return of(topics=[1, 2] if message.topics is None else result)

    result: list[int] = []
    name = "topics null and empty"
    assert await look(name, answers) == ("an empty list: 0 topics, null: 2", True)
    result = [1]
    assert await look(name, answers) == ("an empty list: 1 topics, null: 2", False)
    assert await look(name, answers, versions={3: (0, 0)}) == ("Metadata v0 only", None)
    for version, is_allowed in ((3, True), (4, False)):
        target = Target(answers)
        await quirks.null_and_empty(target, {3: (0, version)}, EVERYWHERE)  # type: ignore[arg-type]
        assert [(message.topics, of_version) for message, of_version in target.asked] == [
            ([], version),
            (None, version),
        ]
        assert {message.allow_auto_topic_creation for message, _ in target.asked} == {is_allowed}


async def test_a_first_request_and_a_client_id_of_null() -> None:
    name = "a client that does not ask for versions"
    assert await look(name, of(), versions={3: (2, 12)}) == (
        "Metadata v2 answered without ApiVersions before it",
        True,
    )
    assert await look(name, of(), sasl="PLAIN") == ("not tried: a login comes first", None)
    assert await look("a client id of null", of()) == ("taken", True)
    assert await look("tagged fields", of()) == ("unknown ones ignored, in header and body", True)
    assert await look("tagged fields", of(), versions={3: (0, 8)}) == ("no version with tagged fields", None)


async def test_a_frame_that_is_too_large_closes_the_connection() -> None:
    target = Target(None)
    assert await quirks.huge_frame(target, VERSIONS, EVERYWHERE) == (  # type: ignore[arg-type]
        "a frame that says 2 GiB: connection closed", True,
    )  # fmt: skip
    assert target.sent == [b"\x7f\xff\xff\xff"]
    target.frames = [b"x"]
    assert await quirks.huge_frame(target, VERSIONS, EVERYWHERE) == ("answered", False)  # type: ignore[arg-type]


# --- verdicts -------------------------------------------------------------------------------------------------------


def heartbeat(*codes: int) -> Any:
    from barnabas.wire.generated.offset_commit import OffsetCommitResponse as Response

    parts = [Response.OffsetCommitResponsePartition(n, code) for n, code in enumerate(codes)]
    return Response(topics=[Response.OffsetCommitResponseTopic("t", partitions=parts)])


@pytest.mark.parametrize(
    ("answer", "status", "errors", "reason"),
    [
        (heartbeat(0), Status.HONOURED, (), ""),
        (heartbeat(35), Status.UNSUPPORTED, (35,), ""),
        (heartbeat(35, 35), Status.UNSUPPORTED, (35,), ""),
        (heartbeat(35, 3), Status.HONOURED, (35, 3), ""),
        (heartbeat(3, 35), Status.HONOURED, (3, 35), ""),
        (ClosedByBrokerError("a"), Status.CLOSED, (), "a"),
        (SilentError("b"), Status.SILENT, (), "b"),
        (NonsenseError("c"), Status.NONSENSE, (), "c"),
    ],
)
async def test_each_answer_has_its_verdict(
    answer: Any, status: Status, errors: tuple[int, ...], reason: str
) -> None:
    (entry,) = await ask_all(Target(answer), {8: (7, 7)}, EVERYWHERE)  # type: ignore[arg-type]
    assert (entry.key, entry.version, entry.status, entry.errors, entry.reason) == (
        8,
        7,
        status,
        errors,
        reason,
    )


async def test_cluster_is_asked_for_in_newest_decodable_version() -> None:
    for versions, with_topics, expected in (
        ((0, 99), True, (13, None)), ((0, 5), True, (5, None)), ((0, 5), False, (5, [])), ((0, 0), True, (0, [])),
    ):  # fmt: skip
        target = Target(of())
        version, _ = await ask_for_cluster(target, {3: versions}, with_topics=with_topics)  # type: ignore[arg-type]
        (message, asked) = target.asked[0]
        assert (version, message.topics) == expected
        assert asked == version
    target = Target(lambda _, version: NonsenseError("x") if version > 3 else of())
    assert (await ask_for_cluster(target, {3: (2, 5)}, with_topics=False))[0] == 3  # type: ignore[arg-type]
    assert [version for _, version in target.asked] == [5, 4, 3]
    with pytest.raises(ClientError, match="in no version so that it can be decoded"):
        await ask_for_cluster(Target(NonsenseError("x")), {3: (2, 5)}, with_topics=False)  # type: ignore[arg-type]


async def test_a_request_that_wants_no_answer_is_not_waited_for() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    journal: list[Any] = []
    wire = Wire(ours, "client", journal, 5.0)
    assert await wire.ask(ProduceRequest(acks=0), 9) is None
    data = bytes(await theirs.receive_some())
    assert (journal[0].sent, journal[0].key, journal[0].version, wire.is_open) == (data, 0, 9, True)
    assert struct.unpack_from(">hhih6s", data, 4) == (0, 9, 1, 6, b"client")
    await theirs.send_all(response(3, 9, 2, MetadataResponse(cluster_id="c")))
    assert (await wire.ask(MetadataRequest(), 9)).cluster_id == "c"
    assert journal[1].answer.cluster_id == "c"


# --- the report -----------------------------------------------------------------------------------------------------


def test_a_report_as_json_has_each_of_its_parts() -> None:
    verdicts = [
        Verdict(3, 1, Status.HONOURED, "", (5, 6)), Verdict(3, 2, Status.CLOSED, "why"), Verdict(9999, 0, Status.NOT_TRIED),
    ]  # fmt: skip
    report = Report(
        "h:1", "cluster", 11, 12, ["11: h:1"], Guess(("4.0", "4.1"), (3, 9999)), {9999: (0, 0), 3: (1, 2)}, verdicts,
        [Feature("f", (1, 2), None)], Limits({"a": "b"}, "problem"), [Quirk("q", "seen", None, "rule")], [], [],
    )  # fmt: skip
    assert report.served() == {3: (1, 1), 9999: (0, 0)}
    shown = report.as_json()
    assert shown == {
        "address": "h:1", "cluster_id": "cluster", "node_id": 11, "controller_id": 12, "brokers": ["11: h:1"],
        "release": {"names": ["4.0", "4.1"], "exact": False, "differing": ["Metadata", "API 9999"]},
        "apis": [
            {"key": 3, "name": "Metadata", "advertised": [1, 2], "versions": [
                {"version": 1, "status": "honoured", "reason": "", "errors": [5, 6]},
                {"version": 2, "status": "connection closed", "reason": "why", "errors": []},
            ]},
            {"key": 9999, "name": "API 9999", "advertised": [0, 0], "versions": [
                {"version": 0, "status": "not tried", "reason": "", "errors": []},
            ]},
        ],
        "features": [{"name": "f", "supported": (1, 2), "finalized": None}],
        "limits": {"settings": {"a": "b"}, "problem": "problem"},
        "quirks": [{"name": "q", "seen": "seen", "as_kafka": None, "rule": "rule"}],
        "timings": [], "clients": [], "written": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "port", "node_id"),
    [(((5, 1), (7, 2)), 2, 7), (((5, 1), (7, 2)), 9, 5), (((5, 1), (7, 1)), 1, 5), ((), 1, 0)],
)
async def test_the_broker_that_answers_is_found_by_its_address(
    monkeypatch: pytest.MonkeyPatch, nodes: Any, port: int, node_id: int
) -> None:
    arguments: dict[str, Any] = {}
    verdicts = [
        Verdict(68, 0, Status.UNSUPPORTED),
        Verdict(76, 0, Status.HONOURED),
        Verdict(3, 0, Status.UNSUPPORTED),
    ]

    async def cluster(*_: Any, with_topics: bool) -> Any:
        brokers = [of(node_id=id_, host="h", port=number) for id_, number in nodes]
        topics = [of(name="__consumer_offsets"), of(name="t")]
        return 9, of(brokers=brokers, topics=topics, cluster_id="c", controller_id=3)

    async def versions(_: Any) -> Any:
        return {3: (0, 1)}, of(supported_features=[], finalized_features=[])

    async def with_names(target: Any, versions: Any, names: Names) -> Any:
        arguments["names"] = names
        return verdicts

    async def nothing(*_: Any) -> Any:
        return []

    async def limits(target: Any, versions: Any, number: int) -> Any:
        arguments["limits_of"] = number
        raise SilentError("no answer")

    for name, stand_in in (
        ("ask_for_cluster", cluster), ("learn_versions", versions), ("ask_all", with_names), ("look_at_all", nothing),
        ("measure_all", nothing), ("read_limits", limits), ("needs_of_all", lambda *a: arguments.update(needs=a) or []),
    ):  # fmt: skip
        monkeypatch.setattr(probing, name, stand_in)

    class Endpoint:
        host = "h"

        def __init__(self) -> None:
            self.port = port

        def __str__(self) -> str:
            return f"h:{self.port}"

    result = await probing.probe(of(endpoint=Endpoint()))  # type: ignore[arg-type]
    assert (result.node_id, result.controller_id, result.cluster_id, result.address) == (
        node_id,
        3,
        "c",
        f"h:{port}",
    )
    assert result.brokers == [f"{id_}: h:{number}" for id_, number in sorted(nodes)]
    assert (arguments["names"].node_id, arguments["limits_of"]) == (node_id, node_id)
    names = arguments["names"]
    topics = (names.has_offsets_topic, names.has_transactions_topic, names.has_shares_topic)
    assert topics == (True, False, False)
    assert arguments["needs"][2] == {68}
    assert (result.limits.problem, result.written) == ("DescribeConfigs: no answer", [])
