"""`barnabas produce` and `barnabas consume` against a broker in a thread, and the forms of records by themselves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cli import main
from barnabas.client import ConsumedRecord
from barnabas.commands import consume, printing
from barnabas.commands.records_in import Parsed, Reading, json_record, line_record
from barnabas.commands.records_out import formatter, json_lines, lines_of
from barnabas.testing import KafkaBroker
from barnabas.testing.in_process import start_thread
from barnabas.testing.running import import_path

RECORD = ConsumedRecord("t", 3, 7, 1_700_000_000_123, b"k", "ä".encode(), [("h", b"1"), ("n", None)], 2)
(LINES,) = lines_of([RECORD])
Run = Callable[..., tuple[int, bytes, str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with start_thread({"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def run(broker: KafkaBroker, capfdbinary: pytest.CaptureFixture[bytes], set_environment) -> Run:
    """Run a command in this process: exit code, standard output, standard error.

    A librdkafka client that another test of this process has not closed yet writes to the same standard error.
    """
    set_environment(BARNABAS_BOOTSTRAP=broker.bootstrap)

    def run(*arguments: str) -> tuple[int, bytes, str]:
        capfdbinary.readouterr()
        code = main(arguments)
        output = capfdbinary.readouterr()
        return code, output.out, re.sub(r"(?m)^%\d\|.*rdkafka.*\n", "", output.err.decode())

    return run


@pytest.fixture
def topic(broker: KafkaBroker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[:100]
    broker.create_topic(name, partitions=2)
    return name


def test_values_are_sent_and_printed(run: Run, topic: str) -> None:
    code, output, _ = run(
        "produce", topic, "one", "two", "-p", "1", "-k", "key", "-H", "a=b", "-H", "c", "--json"
    )
    assert code == 0
    row = json.loads(output)["produced"]
    assert (row["records"], row["bytes"], row["partitions"], row["first"], row["last"]) == (
        2,
        12,
        [1],
        "1:0",
        "1:1",
    )
    assert run("consume", topic, "-f", "%t %p %o %k=%s %K %S %h%%\\n")[:2] == (
        0,
        b"".join(
            b"%b 1 %d key=%b 3 3 a=b,c=%%\n" % (topic.encode(), n, v) for n, v in enumerate((b"one", b"two"))
        ),
    )


def test_files_are_read_line_by_line_or_whole(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a:1\nb:\nc:3")
    assert run("produce", topic, "-f", str(file), "-K", ":", "-Z", "-p", "0")[0] == 0
    assert run("consume", topic, "-f", "%k:%s:%S,", "-Z", "NULL")[1] == b"a:1:1,b:NULL:-1,c:3:1,"
    assert run("produce", topic, "-f", str(file), "--whole", "-p", "1", "-z", "gzip")[0] == 0
    assert run("consume", topic, "-p", "1", "-f", "%s")[1] == b"a:1\nb:\nc:3"
    code, _, error = run("produce", topic, "-f", str(file), "-K", "::")
    assert (code, error) == (1, "barnabas produce: record 1: b'a:1' has no separator b'::'\n")


def test_json_goes_round(run: Run, topic: str, tmp_path: Path) -> None:
    lines = [
        {"key": {"base64": "/w=="}, "value": "x", "headers": [{"h": "1"}, {"h": None}], "timestamp": 5},
        {"key": None, "value": None, "headers": [], "timestamp": 6},
    ]
    file = tmp_path / "json"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run("produce", topic, "-f", str(file), "--input-json", "-p", "0")[0] == 0
    output = [json.loads(line) for line in run("consume", topic, "--json")[1].splitlines()]
    where = {"topic": topic, "partition": 0}
    assert output == [{**where, "offset": offset, **line} for offset, line in enumerate(lines)]


def test_where_to_begin_and_to_end(run: Run, topic: str) -> None:
    for number in range(6):
        assert run("produce", topic, str(number), "-p", "0", "--timestamp", str(1_000 * (number + 1)))[0] == 0

    def values(*options: str) -> bytes:
        return run("consume", topic, "-f", "%s", "-q", *options)[1]

    assert values() == b"012345"
    assert values("--from", "4") == b"45"
    assert values("--from", "-2") == b"45"
    assert values("--from", "@3000", "--to", "@5000") == b"23"
    assert values("--to", "2") == b"01"  # the other partition ends before
    assert values("--to", "9") == b"012345"
    assert values("--from", "9") == values("--from", "end") == b""
    assert values("-n", "3") == b"012"
    assert values("--follow", "--from", "beginning", "--idle", "0.5") == b"012345"
    assert values("--value", "[135]") == b"135"


def test_filters_look_into_keys_values_and_headers(run: Run, topic: str) -> None:
    run("produce", topic, "v1", "-k", "one", "-H", "h=x", "-p", "0")
    run("produce", topic, "v2", "-k", "two", "-H", "h=y", "-p", "0")
    run("produce", topic, "v3", "-p", "0")

    def values(*options: str) -> bytes:
        return run("consume", topic, "-f", "%s", *options)[1]

    assert values("--key", "^t") == b"v2"
    assert values("--header", "h") == b"v1v2"
    assert values("--header", "h=y", "--value", "v") == b"v2"
    assert values("--header", "i") == b""


def test_where_chooses_by_decoded_values_and_the_rest(run: Run, topic: str) -> None:
    for number, customer in enumerate(("ann", "bob", "ann", "eve")):
        value = json.dumps({"total": 30 * number, "customer": customer})
        run("produce", topic, value, "-k", str(number), "-H", f"trace=t{number}", "-p", str(number % 2))
    run("produce", topic, "no json", "-p", "0")

    def keys(where: str, *options: str) -> bytes:
        code, output, error = run("consume", topic, "-f", "%k", "--where", where, "-q", *options)
        assert (code, error) == (0, "")
        return output

    assert keys('$.total >= 60 and $.customer = "ann"') == b"2"
    assert keys("partition = 1 and $.customer ~ /^b/") == b"1"
    assert keys("headers.trace in ('t3', 't4') or key = 0", "-n", "1") in (b"0", b"3")
    assert keys("not $.total") == b""  # of the record without a key
    assert keys("$.total > 0", "--key", "[12]", "--to", "end") in (b"12", b"21")
    assert keys("timestamp < '2020-01-01'") == b""


def test_where_of_a_record_with_too_many_steps_tells_its_place(run: Run, topic: str) -> None:
    run("produce", topic, json.dumps([0] * 2_000), "5", "-p", "0")
    code, output, error = run("consume", topic, "--where", "$ = 5 or $..* < $..*")
    assert (code, output) == (1, b"5\n")
    reason = "the filter takes more than 200000 steps for this record"
    assert error == (
        f"barnabas consume: {topic} partition 0 offset 0: {reason}\n1 record, 1 could not be read\n"
    )


def test_what_a_group_has_printed_is_committed_and_no_more(run: Run, topic: str) -> None:
    run("produce", topic, *map(str, range(6)), "-p", "0")
    options = ("consume", topic, "-g", f"{topic}-g", "-f", "%s", "--from", "beginning", "--idle", "20")
    assert run(*options, "-n", "2")[:2] == (0, b"01")
    assert run(*options, "-n", "3", "-X", "group.protocol=classic")[:2] == (0, b"234")
    assert run(*options, "-n", "1", "--regex")[:2] == (0, b"5")


def test_transactions_are_printed_once_they_are_committed(run: Run, topic: str) -> None:
    numbers = [str(number) for number in range(5)]
    assert (
        run("produce", topic, *numbers, "--transactional-id", topic, "--transaction-size", "2", "-p", "0")[0]
        == 0
    )
    assert run("consume", topic, "-f", "%o ")[1] == b"0 1 3 4 6 "  # markers between them


def test_a_transactional_id_may_be_a_setting(run: Run, topic: str) -> None:
    assert run("produce", topic, "a", "b", "-X", f"transactional.id={topic}", "-p", "0")[0] == 0
    assert run("consume", topic, "-f", "%o%s ")[1] == b"0a 1b "
    assert run("produce", topic, "c", "--acks", "0", "-p", "1", "--json")[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_record_in_writing_counts_when_a_signal_comes(
    run: Run, topic: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("produce", topic, "a", "-p", "0")
    write = printing._write

    def slowly(data: bytes) -> None:
        write(data)
        os.kill(os.getpid(), number)
        time.sleep(0.1)

    monkeypatch.setattr(printing, "_write", slowly)
    monkeypatch.setattr(consume, "WRITTEN_SECONDS", 1.0)
    assert run("consume", topic, "-F", "--from", "beginning") == (130, b"a\n", "1 record\n")


@pytest.mark.parametrize(("options", "is_shown"), [(("-q",), False), ((), True)])
def test_progress_is_shown_at_a_terminal_unless_it_is_quiet(
    run: Run, topic: str, options: tuple[str, ...], is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "a second" not in run("produce", topic, "a")[2]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _, out, error = run("produce", topic, "a", "--json", *options)
    assert json.loads(out)["produced"]["records"] == 1
    assert (error.endswith("\r\x1b[K"), "records" in error) == (is_shown, is_shown)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("consume", "no-such-topic"), "there is no topic"),
        (("consume", "{topic}", "-p", "7"), "has no partition 7"),
        (("produce", "{topic}", "x", "-p", "7"), "has no partition 7"),
        (("consume", "{topic}", "-f", "%x"), "there is no %x"),
        (("consume", "{topic}", "--from", "soon"), "an offset, -N for the last N, or @TIME"),
        (("consume", "{topic}", "--value", "("), "no regular expression"),
        (("consume", "{topic}", "--where", "$.total >> 60"), "character 10: a value is expected, not '>'"),
        (("consume", "{topic}", "--group", "g", "--from", "7"), "beginning or end"),
        (("consume", "{topic}", "--follow", "--to", "7"), "--to says where"),
        (("produce", "{topic}", "x", "-k", "k", "-K", ":"), "a record has one key"),
        (("produce", "{topic}", "x", "--acks", "1", "--transactional-id", "t"), "idempotent"),
        (("produce", "{topic}", "{{", "--input-json"), "record 1"),
    ],
)
def test_what_is_wrong_is_one_line(run: Run, topic: str, arguments: tuple[str, ...], reason: str) -> None:
    code, out, error = run(*(argument.format(topic=topic) for argument in arguments))
    assert code in (1, 2)
    assert out == b""
    assert reason in error.splitlines()[0]
    assert "Traceback" not in error


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_ended_consumer_reports_number_of_printed_records(
    broker: KafkaBroker, topic: str, number: signal.Signals, code: int
) -> None:
    broker.produce(topic, "x")
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", "consume", topic, "-F", "-o", "beginning", "-b", broker.bootstrap],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": import_path()},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"x\n"
        process.send_signal(number)
        _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (code, b"1 record\n")


def test_a_format_prints_bytes_as_they_are() -> None:
    assert formatter("%s|%k\\x00\\t%D %e\\q", b"")(LINES) == (
        "ä|k\0\t2023-11-14T22:13:20.123+00:00 2\\q".encode()
    )
    for wrong in ("%", "%%%", "%z"):
        with pytest.raises(ValueError, match="%"):
            formatter(wrong, b"")
    assert json.loads(json_lines(LINES))["headers"] == [{"h": "1"}, {"n": None}]


def test_lines_and_objects_are_read() -> None:
    reading = Reading(key_separator=b":", empty_is_null=True)
    assert line_record(b"k:v:w", reading) == Parsed(b"v:w", b"k")
    assert line_record(b":", reading) == Parsed(None, None)
    assert line_record(b"", Reading()) == Parsed(b"")
    assert json_record(b'{"value": {"a": [1]}, "headers": {"h": 2}}') == Parsed(
        b'{"a":[1]}', None, [("h", b"2")]
    )
    for wrong in (
        b"[]",
        b'{"valeu": 1}',
        b'{"timestamp": "now"}',
        b'{"headers": [1]}',
        b'{"key": {"base64": "?"}}',
    ):
        with pytest.raises(ValueError, match=r"\w"):
            json_record(wrong)
