"""Descriptions of seeds, and what is said about those that cannot be followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.security.acls import AccessControlEntry, AclBinding, PatternType, Permission, ResourcePattern
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.tools.seeding.files import document_of, seeds_of_file, seeds_of_options
from barnabas.tools.seeding.reading import read_seeds
from barnabas.tools.seeding.seeds import (
    EARLIEST,
    LATEST,
    SeedError,
    SeedOffset,
    SeedQuota,
    SeedRecord,
    SeedTopic,
    SeedUser,
    topic_of_option,
)

EVERYTHING = """
topics:
  orders:
    partitions: 3
    settings: {cleanup.policy: compact, retention.ms: 1000, preallocate: true}
    records:
      - {key: a, value: text, headers: {source: shop, nothing: null}, timestamp: 1700000000000, partition: 2}
      - {key: {base64: AAE=}, value: {json: {id: 1, name: "ä"}}, timestamp: 2024-05-01T12:00:00Z}
      - only a value
      - {key: gone, value: null}
      - {value: x, headers: [{h: "1"}, {h: "2"}]}
  plain:
  five: 5
groups:
  billing:
    orders: {0: 5, 1: earliest, 2: {offset: latest, metadata: note}}
acls:
  - {principal: "User:alice", operation: read, topic: orders-, pattern: prefixed}
  - {principal: "User:bob", operation: ALTER, cluster: true, permission: deny, host: 10.0.0.1}
users:
  alice: {password: secret}
  bob: {password: other, mechanisms: [SCRAM-SHA-256], iterations: 8192}
quotas:
  - {user: alice, client_id: default, producer_byte_rate: 1000000}
  - {ip: 10.0.0.1, connection_creation_rate: 5}
"""


def written(path: Path, text: str) -> Path:
    file = path / "seeds.yaml"
    file.write_text(text)
    return file


def test_everything_that_can_be_described(tmp_path: Path) -> None:
    seeds = seeds_of_file(written(tmp_path, EVERYTHING))
    assert seeds.topics == (
        SeedTopic(
            "orders", 3,
            {"cleanup.policy": "compact", "retention.ms": "1000", "preallocate": "true"},
            (
                SeedRecord(b"a", b"text", (("source", b"shop"), ("nothing", None)), 1_700_000_000_000, 2),
                SeedRecord(b"\0\1", '{"id":1,"name":"ä"}'.encode(), (), 1_714_564_800_000),
                SeedRecord(None, b"only a value"),
                SeedRecord(b"gone", None),
                SeedRecord(None, b"x", (("h", b"1"), ("h", b"2"))),
            ),
        ),
        SeedTopic("plain"),
        SeedTopic("five", 5),
    )  # fmt: skip
    assert seeds.offsets == (
        SeedOffset("billing", "orders", 0, 5),
        SeedOffset("billing", "orders", 1, EARLIEST),
        SeedOffset("billing", "orders", 2, LATEST, "note"),
    )
    assert seeds.acls == (
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, PatternType.PREFIXED, "orders-"),
            AccessControlEntry("User:alice", "*", Operation.READ, Permission.ALLOW),
        ),
        AclBinding(
            ResourcePattern(ResourceType.CLUSTER, PatternType.LITERAL, "kafka-cluster"),
            AccessControlEntry("User:bob", "10.0.0.1", Operation.ALTER, Permission.DENY),
        ),
    )
    assert seeds.users == (SeedUser("alice", "secret"), SeedUser("bob", "other", ("SCRAM-SHA-256",), 8192))
    assert "secret" not in repr(seeds)
    assert seeds.quotas == (
        SeedQuota(QuotaEntity("alice", ""), {"producer_byte_rate": 1e6}),
        SeedQuota(QuotaEntity(ip="10.0.0.1"), {"connection_creation_rate": 5.0}),
    )


def test_a_file_says_the_same_as_json(tmp_path: Path) -> None:
    file = written(tmp_path, EVERYTHING)
    assert read_seeds(document_of(file)) == seeds_of_file(file)


def test_the_example_of_the_documentation_can_be_followed(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "seeds.md"
    text = page.read_text().partition("```yaml\n")[2].partition("```")[0]
    seeds = seeds_of_file(written(tmp_path, text))
    assert [len(part) for part in (seeds.topics, seeds.offsets, seeds.acls, seeds.users, seeds.quotas)] == [
        3,
        3,
        2,
        1,
        1,
    ]


def test_an_empty_file_describes_nothing(tmp_path: Path) -> None:
    assert not seeds_of_file(written(tmp_path, "# nothing\n"))


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("topics: [a, b]", 1, "topics: names with values expected, and there is ['a', 'b']"),
        ("topic:\n  a:", 1, "topic: there is no such field; the fields here are topics, groups"),
        ("topics:\n  t:\n    partitions: 0", 3, "topics.t.partitions: a whole number from 1 to"),
        ("topics:\n  t:\n    partitions: true", 3, "a whole number from 1"),
        (
            "topics:\n  t:\n    partition: 1",
            3,
            "topics.t.partition: there is no such field; the fields here are partitions",
        ),
        (
            "topics:\n  t:\n    records:\n      - value: 5",
            4,
            "topics.t.records[0].value: text, {json: ...} or {base64",
        ),
        ("topics:\n  t:\n    records:\n      - {value: {base64: '*'}}", 4, "'*' is not base64"),
        (
            "topics:\n  t:\n    partitions: 2\n    records:\n      - {partition: 2}",
            5,
            "a whole number from 0 to 1",
        ),
        (
            "topics:\n  t:\n    records:\n      - {timestamp: yesterday}",
            4,
            "'yesterday' is neither milliseconds",
        ),
        ("topics:\n  t:\n    settings:\n      retention.ms: [[]]", 4, "a setting's value expected"),
        ("groups:\n  g:\n    t: 5", 3, "offsets by partition expected"),
        (
            "groups:\n  g:\n    t: {0: newest}",
            3,
            "an offset, earliest or latest expected, and there is 'newest'",
        ),
        ("groups:\n  g:\n    t: {a: 1}", 3, "the number of a partition expected"),
        (
            "acls:\n  - {principal: alice, operation: READ, topic: t}",
            2,
            "a principal has its type before it, as in User:alice",
        ),
        ("acls:\n  - {principal: 'User:a', operation: EAT, topic: t}", 2, "'EAT' is not one of ALL, READ"),
        ("acls:\n  - {principal: 'User:a', operation: WRITE, group: g}", 2, "there is no WRITE on a group"),
        ("acls:\n  - {principal: 'User:a', operation: READ}", 2, "an ACL names one resource"),
        ("users:\n  alice: {password: 5}", 2, "users.alice.password: a password in quotes expected"),
        ("users:\n  alice: {}", 2, "the password is missing"),
        ("users:\n  alice: {password: a, mechanisms: [PLAIN]}", 2, "'PLAIN' is not one of SCRAM-SHA-256"),
        (
            "quotas:\n  - {user: a, speed: 1}",
            2,
            "quotas[0].speed: there is no such quota; the quotas here are producer_byte_rate",
        ),
        ("quotas:\n  - {producer_byte_rate: 1}", 2, "the quotas' user, client or address is missing"),
        ("quotas:\n  - {user: a, producer_byte_rate: fast}", 2, "a number expected, and there is 'fast'"),
        ("topics:\n  t: {a: b", 2, "expected"),
        ("topics:\n  t:\n  t:\n", 3, "t stands here twice"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, line: int, reason: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SeedError) as caught:
        seeds_of_file(file)
    assert str(caught.value).startswith(f"{file}:{line}: "), caught.value
    assert reason in str(caught.value)
    assert caught.value.line == line


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SeedError, match="No such file"):
        seeds_of_file(tmp_path / "none.yaml")
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"topics:\n  \xe4:\n")
    with pytest.raises(SeedError, match=r"latin\.yaml:2: this is not UTF-8"):
        seeds_of_file(file)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("a", SeedTopic("a")),
        ("a:3", SeedTopic("a", 3)),
        ("a::retention.ms=5", SeedTopic("a", None, {"retention.ms": "5"})),
        ("a:3:cleanup.policy=compact,,delete,retention.ms=5",
         SeedTopic("a", 3, {"cleanup.policy": "compact,delete", "retention.ms": "5"})),
    ],
)  # fmt: skip
def test_a_topic_on_the_command_line(text: str, topic: SeedTopic) -> None:
    assert topic_of_option(text) == topic


@pytest.mark.parametrize("text", [":3", "a:x", "a:0", "a:3:retention.ms", "a:3:=5"])
def test_a_topic_on_the_command_line_that_is_none(text: str) -> None:
    with pytest.raises(SeedError, match="'"):
        topic_of_option(text)


def test_a_topic_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SeedError, match="topic a is described twice"):
        seeds_of_options(["a:2"], str(written(tmp_path, "topics: {a: 1}")))
