"""A probe of a broker in this process: what it finds, and that it writes nothing unless it is told to."""

from __future__ import annotations

import pytest
import trio.testing

from barnabas.client.errors import ClientError
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.tools.probing import probe as probing
from barnabas.tools.probing import timing
from barnabas.tools.probing.exchanges import ClosedByBrokerError, NonsenseError, SilentError, Target
from barnabas.tools.probing.harmless import Names
from barnabas.tools.probing.honoured import (
    OF_GROUPS,
    OF_SHARES,
    OF_TRANSACTIONS,
    Status,
    ask_all,
    learn_versions,
)
from barnabas.tools.probing.limits import read_limits
from barnabas.tools.probing.messages import make
from barnabas.tools.probing.probe import probe
from barnabas.tools.probing.quirks import look_at_all
from barnabas.tools.probing.writing import try_writing
from barnabas.wire import registry
from tests.support.brokers import running

PRODUCE, METADATA, COORDINATOR, API_VERSIONS, CONFIGS, SHARE_STATE = 0, 3, 10, 18, 32, 84
NOWHERE = Names("n", "n", "n")
EVERYWHERE = Names("n", "n", "n", has_offsets_topic=True, has_transactions_topic=True, has_shares_topic=True)
SETTINGS = {"offsets_topic_num_partitions": "1", "num_partitions": "3"}


@pytest.fixture
async def client(tmp_path):
    async with running([tmp_path], **SETTINGS) as client:
        yield client


@pytest.fixture
def target(client):
    return Target(Endpoint(*client.broker.listeners[0].addresses[0][:2]), ClientSettings(), timeout_s=5)


async def test_a_probe_says_who_answers_and_leaves_nothing(client, target, monkeypatch):
    async def few(target, versions, names):
        assert (names.node_id, names.has_offsets_topic, names.has_shares_topic) == (1, False, False)
        return await ask_all(target, {key: versions[key] for key in (METADATA, COORDINATOR)}, names)

    monkeypatch.setattr(probing, "ask_all", few)
    monkeypatch.setattr(timing, "REQUESTS", 3)
    monkeypatch.setattr(timing, "CONNECTIONS", 2)
    await client.create("t")
    result = (await probe(target)).as_json()
    assert sorted(client.services.metadata.image.topics) == ["t"]
    where = str(target.endpoint)
    assert (result["address"], result["brokers"]) == (where, [f"1: {where}"])
    assert (result["node_id"], result["controller_id"]) == (1, 1)
    assert result["cluster_id"] == client.services.metadata.image.cluster_id
    assert "4.4" in result["release"]["names"]
    assert not result["release"]["exact"]
    assert "Fetch" in result["release"]["differing"]
    apis = {api["name"]: api for api in result["apis"]}
    assert apis["Metadata"]["advertised"] == [0, 13]
    assert [row["version"] for row in apis["Metadata"]["versions"]] == list(range(14))
    assert {row["status"] for row in apis["Metadata"]["versions"]} == {"honoured"}
    assert [row["errors"] for row in apis["Metadata"]["versions"]] == [[]] * 4 + [[3]] * 10
    assert [row["status"] for row in apis["FindCoordinator"]["versions"]] == ["not tried"] + ["honoured"] * 6
    assert {"name": "group.version", "supported": (0, 1), "finalized": 1} in result["features"]
    assert [row["name"] for row in result["features"]] == sorted(row["name"] for row in result["features"])
    assert result["limits"]["settings"]["num.partitions"] == "3"
    assert (result["limits"]["problem"], result["written"]) == ("", [])
    assert [(row["what"], row["count"]) for row in result["timings"]] == [
        ("connection", 2), ("ApiVersions v5", 3), ("Metadata v13", 3),
    ]  # fmt: skip
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in result["timings"])


async def test_questions_are_answered_as_by_kafka_here(client, target):
    await client.create("t")
    versions, answer = await learn_versions(target)
    assert versions[API_VERSIONS] == (0, 5)
    assert not answer.error_code
    quirks = {quirk.name: quirk for quirk in await look_at_all(target, versions, EVERYWHERE)}
    not_compared = {
        "bytes left over after a request": "answered as if they were not there",
        "topic ids": "in Metadata, Fetch, Produce, OffsetCommit",
        "consumer groups of KIP-848": "ConsumerGroupHeartbeat: on",
        "share groups of KIP-932": "ShareGroupHeartbeat: on",
        "streams groups of KIP-1071": "StreamsGroupHeartbeat: on",
    }
    assert {name: quirk.seen for name, quirk in quirks.items() if quirk.as_kafka is None} == not_compared
    assert {name: quirk.seen for name, quirk in quirks.items() if quirk.as_kafka is not None} == {
        "ApiVersions in an unknown version": "error UNSUPPORTED_VERSION, 1 APIs named",
        "an unknown API": "connection closed",
        "an unknown version of another API": "connection closed",
        "a request that is cut short": "connection closed",
        "correlation ids": "echoed, negative ones too",
        "a client id of null": "taken",
        "tagged fields": "unknown ones ignored, in header and body",
        "pipelined requests": "50 answers in order",
        "topics null and empty": "an empty list: 0 topics, null: 1",
        "a client that does not ask for versions": "Metadata v0 answered without ApiVersions before it",
        "a wrong name of the client's software": "INVALID_REQUEST",
        "a frame larger than any limit": "a frame that says 2 GiB: connection closed",
    }
    assert all(quirk.as_kafka for quirk in quirks.values() if quirk.as_kafka is not None)


async def test_questions_that_old_brokers_cannot_be_asked(target):
    old = {METADATA: (0, 0), API_VERSIONS: (0, 2)}
    quirks = {entry.name: (entry.seen, entry.as_kafka) for entry in await look_at_all(target, old, NOWHERE)}
    assert quirks["tagged fields"] == ("no version with tagged fields", None)
    assert quirks["topics null and empty"] == ("Metadata v0 only", None)
    assert quirks["a wrong name of the client's software"] == ("no version with a name", None)
    assert quirks["topic ids"] == ("none", None)
    assert quirks["consumer groups of KIP-848"] == ("ConsumerGroupHeartbeat: not advertised", None)
    new = {METADATA: (0, 10), API_VERSIONS: (0, 3), 68: (0, 0), PRODUCE: (3, 12), 1: (4, 13)}
    quirks = {entry.name: (entry.seen, entry.as_kafka) for entry in await look_at_all(target, new, NOWHERE)}
    assert quirks["topic ids"] == ("in Metadata, Fetch", None)
    assert quirks["consumer groups of KIP-848"][0].endswith(
        "not tried, a broker may make __consumer_offsets first"
    )


async def test_what_may_make_a_topic_or_is_unknown_is_not_tried(target):
    first_and_last = {key: registry.info(key) for key in OF_GROUPS | OF_TRANSACTIONS | OF_SHARES}
    versions = {key: (info.request_max_version,) * 2 for key, info in first_and_last.items()}
    for verdict in await ask_all(target, {**versions, COORDINATOR: (0, 0)}, NOWHERE):
        assert verdict.status is Status.NOT_TRIED
        topic = "offsets" if verdict.key in OF_GROUPS else "state"
        assert verdict.reason.startswith("a broker may make __")
        assert topic in verdict.reason
    odd = {
        9999: (0, 1), METADATA: (12, 99), 4: (0, 0), API_VERSIONS: (4, 4),
        2: (registry.info(2).request_min_version, registry.info(2).request_min_version),
    }  # fmt: skip
    result = await ask_all(target, odd, NOWHERE)
    assert [(entry.key, entry.version) for entry in result[:3]] == [(2, 0), (3, 12), (3, 13)]
    reasons = {(entry.key, entry.version): (entry.status, entry.reason) for entry in result}
    expected = registry.info(METADATA).request_max_version
    for version in range(12, 100):
        is_known = version <= expected
        assert reasons[METADATA, version] == (
            (Status.HONOURED, "") if is_known else (Status.NOT_TRIED, "a version that is not known here")
        )
    assert reasons[9999, 0] == reasons[9999, 1] == (Status.NOT_TRIED, "an API that is not known here")
    assert reasons[4, 0] == (Status.NOT_TRIED, "between brokers")
    assert reasons[API_VERSIONS, 4][0] is reasons[2, 0][0] is Status.HONOURED


async def test_a_connection_that_was_closed_is_opened_again(target):
    handshake, authenticate = 17, 36
    result = await ask_all(target, {handshake: (0, 1), authenticate: (0, 2), METADATA: (1, 2)}, NOWHERE)
    assert [(row.key, row.status) for row in result] == [
        (METADATA, Status.HONOURED), (METADATA, Status.HONOURED), (handshake, Status.HONOURED),
        (handshake, Status.HONOURED), (authenticate, Status.HONOURED), (authenticate, Status.HONOURED),
        (authenticate, Status.HONOURED),
    ]  # fmt: skip


async def test_probe_writes_in_every_version_and_cleans_up(client, target):
    versions, _ = await learn_versions(target)
    written = await try_writing(target, versions, "probed")
    assert [(row.what, row.seen) for row in written] == [
        ("make a topic", "done"),
        *((f"Produce v{version}", "done") for version in range(14)),
        ("the log end", "14 after 14 records"),
        ("commit an offset", "done"),
        ("remove the topic probed", "done"),
    ]
    assert all(row.is_good for row in written)
    assert sorted(client.services.metadata.image.topics) == ["__consumer_offsets"]


async def test_writing_says_what_is_refused(client, target):
    versions, _ = await learn_versions(target)
    await client.create("taken")
    written = await try_writing(target, versions, "taken")
    assert [(row.what, row.seen, row.is_good) for row in written] == [
        ("make a topic", "TOPIC_ALREADY_EXISTS", False),
        ("remove the topic taken", "done", True),
    ]
    without = {key: value for key, value in versions.items() if key not in (19, 42)}
    assert [(row.what, row.seen, row.is_good) for row in await try_writing(target, without, "x")] == [
        ("make a topic", "CreateTopics is not served", False)
    ]


async def test_settings_are_read_where_they_can_be(client, target):
    assert (await read_limits(target, {}, 1)).problem == "DescribeConfigs is not served"
    result = await read_limits(target, {CONFIGS: (0, 4)}, 1)
    assert result.settings["offsets.retention.minutes"] == "10080"
    assert "log.dirs" not in result.settings
    assert (await read_limits(target, {CONFIGS: (0, 4)}, 7)).problem.startswith("DescribeConfigs: ")


# --- what is no answer ------------------------------------------------------------------------------------------


async def answering(*answers: bytes | None) -> Target:
    """A target with connections that are answered with these bytes, None for nothing."""

    class Fake(Target):
        async def _dial(self):
            ours, theirs = trio.testing.memory_stream_pair()
            for answer in answers:
                if answer is not None:
                    await theirs.send_all(answer)
            if None not in answers:
                await theirs.send_eof()
            self.kept = theirs
            return ours

    Fake.__slots__ = ()
    return Fake(Endpoint("b", 1), ClientSettings(), timeout_s=3)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("answers", "error", "text"),
    [
        ((), ClosedByBrokerError, "the broker closed the connection"),
        ((b"\0\0",), ClosedByBrokerError, "the broker closed the connection"),
        ((framed(b"\0\0\0\1")[:6],), ClosedByBrokerError, "the broker closed the connection"),
        ((None,), SilentError, "no answer in 3 s"),
        ((b"\0\0", None), SilentError, "no answer in 3 s"),
        ((b"\xff\xff\xff\xff", None), NonsenseError, "the answer says that it has -1 bytes"),
        ((b"\x08\0\0\x01", None), NonsenseError, "the answer says that it has 134217729 bytes"),
        ((framed(b"\0\0\0\1\0"), None), NonsenseError, "the answer cannot be decoded"),
        ((framed(b"\0\0\0\2" + bytes(6)), None), NonsenseError, "the answer's correlation id is 2, not 1"),
    ],
)  # fmt: skip
async def test_each_kind_of_no_answer_has_its_error(autojump_clock, answers, error, text):
    target = await answering(*answers)
    journal = []
    async with target.connect(journal) as wire:
        with pytest.raises(error, match=text):
            await wire.ask(make("ApiVersions", 0, {}), 0, label="x")
        assert not wire.is_open
    (exchange,) = journal
    assert (exchange.label, exchange.key, exchange.version) == ("x", API_VERSIONS, 0)
    assert exchange.outcome.startswith(text)
    assert exchange.answer is None or "correlation" in text


async def test_a_broker_that_says_no_versions_ends_the_probe(autojump_clock):
    target = await answering(framed(b"\0\0\0\1\0\x2a" + bytes(4)), None)
    with pytest.raises(ClientError, match="does not say which versions it serves"):
        await learn_versions(target)
    closing = await answering()
    with pytest.raises(ClientError, match="v0: the broker closed the connection"):
        await learn_versions(closing)
