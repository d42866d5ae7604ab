"""`barnabas probe` and `barnabas conform`: what they say of a good broker, and of one that breaks a rule."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from barnabas.testing.running import import_path

from .conftest import ROOT, BrokerProcess, StartBroker

pytestmark = pytest.mark.e2e

SECONDS_MAX = 120
SHORT = (
    "Metadata/v12/*",
    "Fetch/v[14]/*",
    "Produce/v9/*",
    "OffsetCommit/v8/*",
    "EndTxn/v3/*",
    "connections",
    "idempotence",
    "walks",
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    import os

    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    command = [sys.executable, "-m", "barnabas", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX, env=environment
    )


def test_a_broker_of_ours_keeps_every_rule_and_nothing_is_left(broker: BrokerProcess, tmp_path: Path) -> None:
    html, junit, as_json = tmp_path / "a.html", tmp_path / "a.xml", tmp_path / "a.json"
    patterns = [word for pattern in SHORT for word in ("--select", pattern)]
    files = ["--html", str(html), "--junit", str(junit), "--json", str(as_json)]
    done = run("conform", broker.bootstrap, "--seed", "7", "--random", "1", *patterns, *files)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(as_json.read_text())
    assert result["summary"]["failed"] == 0
    assert result["summary"]["passed"] > 100
    assert result["left"] == []
    suites = ElementTree.parse(junit).getroot()
    assert sum(int(suite.get("failures", "1")) for suite in suites) == 0
    assert "Conformance of" in html.read_text()


def test_a_planted_fault_fails_the_case_whose_rule_it_breaks(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    faulty = start_broker(options=["--fault", "Heartbeat -> error=REBALANCE_IN_PROGRESS"])
    as_json = tmp_path / "a.json"
    done = run("conform", faulty.bootstrap, "--select", "Heartbeat", "--json", str(as_json))
    assert done.returncode == 1, done.stdout + done.stderr
    cases = {case["id"]: case for case in json.loads(as_json.read_text())["cases"]}
    failed = cases["Heartbeat/v3/an unknown member"]
    assert failed["verdict"] == "failed"
    assert failed["reason"] == "error_code is REBALANCE_IN_PROGRESS, not UNKNOWN_MEMBER_ID"
    [exchange] = failed["exchanges"]
    assert exchange["request"]["member_id"] == "nobody"
    assert exchange["answer"]["error_code"] == 27
    assert bytes.fromhex(exchange["answer_hex"]).endswith(b"\0\x1b")
    assert "rule: An id that no member of the group has is UNKNOWN_MEMBER_ID." in done.stdout
    # Wrong frames are refused before anything of them is done.
    assert cases["Heartbeat/v3/last byte missing"]["verdict"] == "passed"


def test_a_probe_sees_what_is_advertised_and_changes_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    old = start_broker("kafka.version=2.8")
    card = tmp_path / "card.html"
    done = run("probe", old.bootstrap, "--json", "--html", str(card))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["release"] == {"names": ["2.8"], "exact": True, "differing": []}
    assert {entry["status"] for api in result["apis"] for entry in api["versions"]} == {
        "honoured",
        "not tried",
    }
    assert [entry["name"] for entry in result["quirks"] if entry["as_kafka"] is False] == []
    by_name = {entry["client"]: entry for entry in result["clients"]}
    assert "transactions" in by_name["kafka-clients 4.3"]["works"]
    assert any(use == "groups of KIP-848" for use, _ in by_name["kafka-clients 4.3"]["lacks"])
    assert "Apache Kafka 2.8" in card.read_text()
    assert [path.name for path in old.data.iterdir() if path.is_dir() and path.name[-2:] == "-0"] == []


def test_writing_probe_appends_in_each_version_and_cleans_up(broker: BrokerProcess) -> None:
    done = run("probe", broker.bootstrap, "--json", "--write")
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)["written"]
    assert [row["what"] for row in written if not row["is_good"]] == []
    assert written[-1]["what"].startswith("remove the topic")


def test_a_broker_that_is_not_there_is_told_in_a_line() -> None:
    for command in ("probe", "conform"):
        done = run(command, "127.0.0.1:1")
        assert done.returncode == 1
        assert "127.0.0.1:1" in done.stderr
        assert "Traceback" not in done.stderr
