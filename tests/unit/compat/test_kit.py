"""The comparisons' own reading of the schemas agrees with the broker's codecs, and they end what they start."""

import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnabas.wire import registry
from barnabas.wire.headers import encode_request
from compat.kit.records import record_batch
from compat.kit.wire import WireError, decode, encode, message

ROOT = Path(__file__).resolve().parents[3]
WISH = {
    "Topics": [
        {
            "Name": "t", "NumPartitions": 2, "ReplicationFactor": 1,
            "Assignments": [{"PartitionIndex": 0, "BrokerIds": [1, 2]}],
            "Configs": [{"Name": "a", "Value": None}, {"Name": "b", "Value": ""}],
        }
    ],
    "timeoutMs": 5,
}  # fmt: skip


@pytest.mark.parametrize("version", range(8))
def test_both_readings_of_the_schemas_agree(version):
    definition = message("CreateTopicsRequest")
    data = encode(definition, version, WISH)
    request = registry.request_codec(19).decode_whole(data, version, 0)
    assert request.topics[0].assignments[0].broker_ids == [1, 2]
    assert [entry.value for entry in request.topics[0].configs] == [None, ""]
    assert b"".join(bytes(chunk) for chunk in encode_request(19, version, 1, "kit", request)).endswith(data)
    assert decode(definition, version, data)["Topics"] == WISH["Topics"]


def test_nullable_structs_and_tags():
    definition = message("DescribeTopicPartitionsRequest")
    for cursor in (None, {"TopicName": "t", "PartitionIndex": 3}):
        data = encode(definition, 0, {"Topics": [], "ResponsePartitionLimit": 7, "Cursor": cursor})
        request = registry.request_codec(75).decode_whole(data, 0, 0)
        assert (request.cursor and request.cursor.topic_name) == (cursor and "t")
        assert decode(definition, 0, data)["Cursor"] == cursor


def test_a_message_that_is_cut_short_is_no_answer():
    definition = message("CreateTopicsRequest")
    data = encode(definition, 7, WISH)
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode(definition, 7, data[:end])


def test_the_records_are_a_batch_that_the_broker_takes():
    from barnabas.records.rules import AppendRules
    from tests.unit.records.test_validate import NOW, validate

    assert validate(bytearray(record_batch([b"v", b"w"], NOW)), AppendRules()).record_count == 2


def test_records_are_of_now_if_nobody_says_when():
    before_ms = time.time_ns() // 1_000_000
    _, max_timestamp_ms = struct.unpack_from(">qq", record_batch([b"v"]), 27)
    assert before_ms <= max_timestamp_ms <= time.time_ns() // 1_000_000


def test_a_program_that_is_terminated_ends_what_it_has_started() -> None:
    """As a comparison does: its server is a process that would outlive it."""
    program = (
        "import subprocess, sys, time\n"
        "from compat.kit.ending import end_servers_at_sigterm\n"
        "end_servers_at_sigterm()\n"
        "server = subprocess.Popen(['sleep', '600'])\n"
        "try:\n"
        "    print(server.pid, flush=True)\n"
        "    time.sleep(600)\n"
        "finally:\n"
        "    server.terminate()\n"
        "    print('ended by', -server.wait(), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline())
        process.terminate()
        assert process.stdout.read() == f"ended by {int(signal.SIGTERM)}\n"
        assert process.wait() == 128 + signal.SIGTERM
