"""A broker that is one of Kafka 4.4, as a process: what it advertises, and what only it answers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from barnabas.config import releases
from barnabas.testing.running import import_path
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest
from tests.support.raw_client import RawClient

from .conftest import ROOT, StartBroker

pytestmark = pytest.mark.e2e

OF_THE_QUORUM = {55, 64, 80, 81, 94}
TELEMETRY = {71, 72}


def test_a_client_that_has_been_led_astray_is_told_and_goes_on(start_broker: StartBroker) -> None:
    broker = start_broker(options=["--as-version", "4.4"])
    named = {"client_software_name": "x", "client_software_version": "1"}
    with RawClient(broker.bootstrap) as client:
        here = client.ask(MetadataRequest(topics=[]), 12)
        node = here.brokers[0].node_id
        wrong = ApiVersionsRequest(**named, cluster_id=here.cluster_id, node_id=node + 1)
        assert client.ask(wrong, 5).error_code == ErrorCode.REBOOTSTRAP_REQUIRED
        right = ApiVersionsRequest(**named, cluster_id=here.cluster_id, node_id=node)
        answer = client.ask(right, 5)
    assert answer.error_code == 0
    advertised = {row.api_key: row.max_version for row in answer.api_keys}
    published = releases.versions_of("4.4")
    assert advertised == {
        key: last for key, (_, last) in published.items() if key not in OF_THE_QUORUM | TELEMETRY
    }


def test_whom_a_client_means_is_looked_at_once_it_has_logged_in(start_broker: StartBroker) -> None:
    """Kafka 4.4.0 answered the same."""
    broker = start_broker(
        "kafka.version=4.4",
        "sasl.enabled.mechanisms=PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config="
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_u="p";',
        listen="SASL_PLAINTEXT://127.0.0.1:0",
    )
    wrong = ApiVersionsRequest(
        client_software_name="x", client_software_version="1", cluster_id="other", node_id=9
    )
    with RawClient(broker.bootstrap) as client:
        before = client.ask(wrong, 5)
        assert (before.error_code, bool(before.api_keys)) == (0, True)
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert client.ask(SaslAuthenticateRequest(auth_bytes=b"\0u\0p"), 2).error_code == 0
        after = client.ask(wrong, 5)
        assert (after.error_code, after.api_keys) == (ErrorCode.REBOOTSTRAP_REQUIRED, [])
    half = ApiVersionsRequest(client_software_name="x", client_software_version="1", cluster_id="other")
    with RawClient(broker.bootstrap) as client:
        assert client.ask(half, 5).error_code == ErrorCode.INVALID_REQUEST


def test_the_wire_suite_holds_it_to_what_4_4_answers(start_broker: StartBroker) -> None:
    """Kafka 4.4.0 passes the same cases."""
    broker = start_broker("group.initial.rebalance.delay.ms=0", options=["--as-version", "4.4"])
    requested = (
        "ApiVersions",
        "TxnOffsetCommit",
        "DeleteGroups",
        "StreamsGroupTopologyDescriptionUpdate",
        "transactions",
        "walks/transactions",
    )
    patterns = [word for pattern in requested for word in ("--select", pattern)]
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "conform", broker.bootstrap, "--seed", "7", *patterns],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": import_path(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ": Apache Kafka 4.4; " in done.stdout
    passed, failed = (int(words.split()[0]) for words in done.stdout.splitlines()[-1].split(",")[:2])
    assert (passed > 200, failed) == (True, 0)


def test_broker_of_4_3_has_nothing_of_4_4(start_broker: StartBroker) -> None:
    broker = start_broker(options=["--as-version", "4.3"])
    with RawClient(broker.bootstrap) as client:
        named = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        answer = client.ask(named, 4)
    advertised = {row.api_key: row.max_version for row in answer.api_keys}
    assert (advertised[18], advertised[28], advertised[42]) == (4, 5, 2)
    assert 93 not in advertised
