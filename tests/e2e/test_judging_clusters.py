"""`barnabas conform` and `barnabas probe` where brokers are several, encrypt, ask for logins and authorize."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.certificates import Files, written

from .conftest import StartBroker
from .test_judging import run
from .test_workers import workers

pytestmark = pytest.mark.e2e

PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="secret" user_admin="secret";'
)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def judged(address: str, tmp_path: Path, *arguments: str, random: int = 1) -> dict[str, str]:
    """Judge a broker; return the verdict of each case, of which none has failed."""
    as_json = tmp_path / f"{address.rpartition(':')[2]}.json"
    done = run("conform", address, "--random", str(random), "--json", str(as_json), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(as_json.read_text())
    assert result["left"] == []
    return {case["id"]: case["verdict"] for case in result["cases"]}


def selecting(*patterns: str) -> list[str]:
    return [word for pattern in patterns for word in ("--select", pattern)]


def test_brokers_of_a_cluster_are_judged_by_what_they_lead(tmp_path: Path) -> None:
    requested = selecting(
        "CreateTopics/v5/*",
        "JoinGroup/v7/*",
        "OffsetCommit/v8/*",
        "share groups",
        "transactions",
        "consumer groups",
        "walks",
    )
    with workers(tmp_path / "data", 2) as running:
        for address in running.bootstrap.split(","):
            verdicts = judged(address, tmp_path, *requested)
            needs_authorizer = {"walks/ACLs 0"}
            assert {case for case, verdict in verdicts.items() if verdict != "passed"} == needs_authorizer


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(tmp_path_factory.mktemp("certificates"))


def test_a_broker_with_tls_is_judged_and_probed_by_who_trusts_it(
    start_broker: StartBroker, files: Files, tmp_path: Path
) -> None:
    settings = (
        "ssl.keystore.type=PEM", f"ssl.keystore.location={files.broker}", "ssl.truststore.type=PEM",
        f"ssl.truststore.location={files.authority}",
    )  # fmt: skip
    broker = start_broker(*settings, listen="SSL://127.0.0.1:0")
    trusting = tmp_path / "client.properties"
    trusting.write_text(f"security.protocol=SSL\nssl.ca.location={files.authority}\n")
    with_tls = ("--client-config", str(trusting))
    verdicts = judged(broker.bootstrap, tmp_path, *with_tls, *selecting("connections", "Metadata/v12/*"))
    assert set(verdicts.values()) == {"passed"}
    report = json.loads(run("probe", broker.bootstrap, "--json", *with_tls).stdout)
    assert [row["name"] for row in report["quirks"] if row["as_kafka"] is False] == []
    without = run("probe", broker.bootstrap, "--property", "security.protocol=SSL")
    assert without.returncode == 1
    assert "certificate" in without.stderr


def as_admin(mechanism: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "admin",
        "sasl.password": "secret",
    }


def test_an_authorizer_is_judged_by_who_has_logged_in(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN}",
        f"authorizer.class.name={AUTHORIZER}",
        "super.users=User:admin",
        listen="SASL_PLAINTEXT://127.0.0.1:0",
    )
    client = AdminClient({"bootstrap.servers": broker.bootstrap, **as_admin("PLAIN")})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("admin", info, b"secret")
    client.alter_user_scram_credentials([change])["admin"].result(60)
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        login = [
            word for key, value in as_admin(mechanism).items() for word in ("--property", f"{key}={value}")
        ]
        requested = selecting("walks/ACLs *", "DescribeAcls", "Metadata/v12/*")
        verdicts = judged(broker.bootstrap, tmp_path, *login, *requested, random=2)
        assert {verdicts[f"walks/ACLs {number}"] for number in range(2)} == {"passed"}
        report = json.loads(run("probe", broker.bootstrap, "--json", *login).stdout)
        assert "honoured" in {row["status"] for api in report["apis"] for row in api["versions"]}
    wrong = run("conform", broker.bootstrap, *login[:-1], "sasl.password=wrong")
    assert wrong.returncode == 1
    assert "Traceback" not in wrong.stderr
