"""`barnabas metadata` and `barnabas log dump` on a log of Kafka 4.3.1: sections, states, changes, and no secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli import main
from barnabas.commands.metadata import SECTIONS
from barnabas.log.disk import OsDisk
from tests.support.own_stores import GROUPS, make, running

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "metadata" / "kafka-4.3.1"
LOG = GOLDEN / "__cluster_metadata-0"
PASSWORD = "secret-of-the-workload"


class Runs:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as end:
            raise SystemExit(main(list(arguments)))
        output = self._capsys.readouterr()
        assert end.value.code == code, output.err
        return output.out, output.err

    def json(self, *arguments: str, directory: Path = GOLDEN) -> Any:
        return json.loads(self.text("metadata", *arguments, "--dir", str(directory), "--json")[0])


@pytest.fixture
def runs(capsys: pytest.CaptureFixture[str]) -> Runs:
    return Runs(capsys)


def test_show_has_every_section(runs: Runs) -> None:
    shown = runs.json("show")
    assert list(shown) == list(SECTIONS)
    assert shown["quorum"]["leader"] == 1
    assert shown["quorum"]["leader_since_offset"] == 85
    assert shown["voters"] == [
        {
            "voter": 1,
            "directory_id": "S7kmAEGERoaAfX8SIzsssA",
            "endpoints": ["CONTROLLER://127.0.0.1:37557"],
            "kraft_versions": "0-1",
        }
    ]
    assert [topic["name"] for topic in shown["topics"]] == ["orders", "payments", "shared"]
    assert [broker["broker"] for broker in shown["brokers"]] == [1]
    assert {"kind": "broker", "name": "default", "key": "log.cleaner.threads", "value": "2"} in shown[
        "configs"
    ]
    assert [acl["operation"] for acl in shown["acls"]] == ["read"]
    assert {"feature": "metadata.version", "level": 30} in shown["features"]
    assert [quota["client_id"] for quota in shown["quotas"]] == ["<default>", None]
    assert [user["user"] for user in shown["users"]] == ["admin", "bob"]
    assert [token["owner"] for token in shown["tokens"]] == ["User:alice"]


async def test_log_of_a_broker_that_is_alone_is_shown(runs: Runs, tmp_path: Path) -> None:
    async with running(OsDisk(), log_dir=str(tmp_path)) as store:
        await make(store, *GROUPS)
    shown = runs.json("show", directory=tmp_path)
    assert [topic["name"] for topic in shown["topics"]] == ["a.b", "last", "t"]
    assert [acl["principal"] for acl in shown["acls"]] == ["User:bob"]
    assert [voter["voter"] for voter in shown["voters"]] == [shown["quorum"]["leader"]] == [1]
    assert {"feature": "metadata.version", "level": 33} in shown["features"]


@pytest.mark.parametrize("section", SECTIONS)
def test_section_alone_is_the_same_as_among_all(runs: Runs, section: str) -> None:
    alone = runs.json("show", section)
    assert list(alone) == [section]
    assert alone[section] == runs.json("show")[section]


def test_show_at_an_offset_and_at_its_time_agree(runs: Runs) -> None:
    at_offset = runs.json("show", "--at", "66")
    time_ms = at_offset["quorum"]["written_at_ms"]
    assert runs.json("show", "--at", str(time_ms)) == at_offset
    assert [(broker["broker"], broker["is_fenced"]) for broker in at_offset["brokers"]] == [
        (1, False),
        (2, True),
    ]
    assert (
        "2026-11-29T14:59:17.841"
        in runs.text("metadata", "show", "quorum", "--dir", str(LOG), "--at", "66")[0]
    )


def test_snapshot_file_is_shown_by_itself(runs: Runs) -> None:
    path = LOG / "00000000000000000076-0000000001.checkpoint"
    shown = runs.json("show", directory=path)
    log = runs.json("show", "--at", "75")
    for section in set(SECTIONS) - {"quorum"}:
        assert sorted(map(json.dumps, shown[section])) == sorted(map(json.dumps, log[section]))
    assert shown["quorum"]["leader"] is None
    assert shown["quorum"]["offset"] == 75


def test_diff_shows_what_records_changed(runs: Runs) -> None:
    changes = runs.json("diff", "--from", "64", "--to", "70")["changes"]
    assert [(row["offset"], row["record"], row["kind"], row["entry"]) for row in changes] == [
        (65, "PartitionChange", "partition", "shared-0"),
        (66, "BrokerRegistrationChange", "broker", "2"),
        (67, "PartitionChange", "partition", "shared-0"),
        (70, "UnregisterBroker", "broker", "2"),
    ]
    assert changes[0]["before"] == {"partition_epoch": 0, "in_sync": [1, 2], "eligible": []}
    assert changes[0]["after"] == {"partition_epoch": 1, "in_sync": [1], "eligible": [2]}
    assert changes[0]["change"] == "partition_epoch 0 -> 1, in_sync 1,2 -> 1, eligible - -> 2"
    assert changes[-1]["after"] is None


def test_diff_of_a_removed_topic_knows_its_name(runs: Runs) -> None:
    changes = runs.json("diff")["changes"]
    removed = [row["entry"] for row in changes if row["record"] == "RemoveTopic"]
    assert removed == ["gone-0", "gone-1", "topic gone retention.bytes", "gone"]


def test_diff_shows_leaders_and_voters(runs: Runs) -> None:
    changes = [row for row in runs.json("diff")["changes"] if row["kind"] == "quorum"]
    assert [(row["offset"], row["entry"], row["change"]) for row in changes] == [
        (0, "leader", "new: leader=1,epoch=1"),
        (1, "kraft.version", "new: level=1"),
        (2, "voters", "new: voters=1"),
        (85, "leader", "new: leader=1,epoch=2"),
    ]


def test_diff_with_all_has_every_record(runs: Runs) -> None:
    changes = runs.json("diff", "--all")["changes"]
    assert {row["offset"] for row in changes} == set(range(105))


@pytest.mark.parametrize(
    "arguments",
    [
        ("metadata", "show", "--dir", str(GOLDEN)),
        ("metadata", "show", "--dir", str(GOLDEN), "--json"),
        ("metadata", "show", "--dir", str(LOG / "00000000000000000055-0000000001.checkpoint"), "--json"),
        ("metadata", "diff", "--dir", str(GOLDEN), "--json", "--all"),
        ("metadata", "diff", "--dir", str(GOLDEN), "--all"),
        ("log", "dump", "--deep", str(GOLDEN)),
        ("log", "dump", "--deep", "--json", str(LOG)),
    ],
    ids=lambda arguments: " ".join(word.rpartition("/")[2] for word in arguments),
)
def test_no_password_or_credential_is_shown(runs: Runs, arguments: tuple[str, ...]) -> None:
    credential = (
        "8zHNY/CsRfApujaq5Nhdl/QkADG4Or37JSlcxAgnHOU="  # admin's stored key, as Kafka's tool shows it
    )
    assert credential in (GOLDEN / "dump.jsonl").read_text()
    text, errors = runs.text(*arguments)
    for secret in (PASSWORD, credential, credential[:20]):
        assert secret not in text + errors
    assert "my.plugin.api.token" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("show", "--dir", "/nonexistent"), "/nonexistent: No such file or directory"),
        (("show", "--dir", str(GOLDEN), "--at", "soon"), "'soon' is no time"),
        (("show", "--dir", str(LOG / "quorum-state")), "is a file"),
        (("show",), "give --dir or --bootstrap-controller"),
        (("show", "--dir", "x", "--bootstrap-controller", "y:1"), "give --dir or --bootstrap-controller"),
        (("show", "--bootstrap-controller", "y:1", "--at", "5"), "--at is for --dir"),
        (("diff",), "Missing option '--dir'"),
        (("show", "everything", "--dir", str(GOLDEN)), "'everything' is not one of"),
    ],
)
def test_wrong_argument_is_one_line(runs: Runs, arguments: tuple[str, ...], text: str) -> None:
    code = 1 if text.startswith(("/", "is a file")) else 2
    _, errors = runs.text("metadata", *arguments, code=code)
    assert text in errors
    assert "Traceback" not in errors
