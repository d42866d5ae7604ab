"""Common mistakes with every command: names that are not there, addresses with a scheme, names that a terminal obeys."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle

import click
import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas.cli import main
from barnabas.testing import KafkaBroker, start_thread
from barnabas.testing.running import import_path

from .conftest import Commands
from .test_frame import ASKING, EVERY, MORE, SERVING, WORDS

HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202eb"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
UNKNOWN_TOPIC = {
    "produce": ["nothing", "x"],
    "consume": ["nothing"],
    "topics alter": ["nothing", "-p", "2"],
    "topics delete": ["nothing", "--yes"],
    "topics describe": ["nothing"],
    "topics list": ["nothing"],
    "topics offsets": ["nothing"],
    "topics trim": ["nothing", "--before", "end", "--yes"],
    "groups reset-offsets": ["g", "-t", "nothing", "--to-latest"],
    "configs alter": ["topic", "nothing", "--set", "retention.ms=1"],
    "configs describe": ["topic", "nothing"],
    "transactions abort": ["nothing:0", "--producer-id", "1", "--yes"],
    "transactions find-hanging": ["nothing:0"],
    "transactions producers": ["nothing"],
    "brokers elect": ["nothing:0", "--yes"],
    "brokers log-dirs": ["--topic", "nothing"],
    "brokers reassign start": ["nothing:0=1", "--yes"],
}
UNKNOWN_GROUP = {
    "groups delete": ["nothing", "--yes"],
    "groups delete-offsets": ["nothing", "t", "--yes"],
    "groups describe": ["nothing"],
    "groups list": ["nothing"],
    "groups remove-members": ["nothing", "--all", "--yes"],
    "groups reset-offsets": ["nothing", "--all-topics", "--to-latest"],
    "lag": ["nothing"],
}
NEEDS_NONE = {
    "topics create": "makes it",
    "acls create": "an ACL may be there before its topic",
    "acls delete": "the same",
    "acls list": "the same",
    "groups delete-offsets": "the group is looked for first",
    "consume": "a group begins with its first member",
    "registry": "makes its topic",
    "brokers move": "the log dir is looked for first",
    "brokers reassign cancel": "says that nothing of it is being moved",
}
"""Commands with a topic or a group that need not be there."""


def text_parameters(command: click.Command) -> list[click.Parameter]:
    return [p for p in command.params if p.type.name not in ("boolean", "integer", "choice", "file")]


def words_of(path: tuple[str, ...], text: str) -> list[str]:
    """Arguments that a command needs, each of them the text where it may be any."""
    required = [param for param in EVERY[path].params if isinstance(param, click.Argument) and param.required]
    arguments = [
        WORDS.get(param.name or "", text) if param.type.name != "topic_partition" else f"{text}:0"
        for param in required
    ]
    yes = ["--yes"] if any(param.name == "yes" for param in EVERY[path].params) else []
    return [*arguments, *MORE.get(" ".join(path), []), *yes]


# --- names of commands ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [(), *sorted({path[:number] for path in EVERY for number in range(1, len(path))} - set(SERVING))],
    ids=str,
)
def test_a_command_that_lacks_its_command_shows_them(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(path) == 2
    shown = capsys.readouterr().err
    assert shown.lower().startswith(f"usage: barnabas {' '.join(path)}".rstrip())
    for below in EVERY:
        if below[: len(path)] == path:
            assert f" {below[len(path)]} " in shown.replace("\n", " \n")


def test_a_name_like_none_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quotas", "list"]) == 2
    assert "No such command 'list'. There are alter, describe, resolve.\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("help", 0, "usage: barnabas"),
        ("help topics", 0, "Usage: barnabas topics"),
        ("version", 0, "barnabas 0."),
        ("", 2, "Start a broker:    barnabas serve"),
        ("topic list", 2, "Did you mean 'topics'?"),
        ("serve --port 9093", 2, "unrecognized arguments: --port 9093; give --listen HOST:PORT"),
        ("serve --ephemral", 2, "did you mean --ephemeral?"),
        ("topics list --bootstrap-server x", 2, "Did you mean '--bootstrap'?"),
        ("topics list -b nowhere.invalid", 1, "the name of nowhere.invalid:9092 does not resolve"),
        ("topics create lines:x", 2, "'lines:x' is not NAME or NAME:PARTITIONS"),
        ("registry subject", 2, "Did you mean 'subjects'?"),
        ("profiles use x", 1, "has no profile 'x'; it has none"),
    ],
)
def test_mistyped_line_is_answered_with_what_to_do(
    line: str, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended_with = main(line.split())
    except SystemExit as end:  # of argparse
        ended_with = int(end.code or 0)
    output = capsys.readouterr()
    assert ended_with == code
    assert text in output.out + output.err


def test_refusals_of_brokers_have_the_way_out_beside_them(run: Commands) -> None:
    assert run.rows("topics", "topics", "create", "hinted:3")[0]["outcome"] == "created"
    assert run.rows("topics", "topics", "list", "hinted")[0]["partitions"] == 3
    out, _ = run("topics", "create", "hinted", code=1)
    assert "--if-not-exists treats that as success" in out
    for words in (["configs", "alter", "topic", "hinted", "--set"], ["topics", "create", "other", "-c"]):
        out, _ = run(*words, "retention.msx=1", code=1)
        assert "'retention.msx'; did you mean retention.ms?" in out
    out, _ = run("groups", "delete", "nothing", "--yes", code=1)
    assert "`barnabas groups list` shows what there is" in out


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "scheme"),
    list(zip([*ASKING, *SERVING], cycle(["http", "https", "PLAINTEXT", "kafka"]), strict=False)),
)
def test_a_scheme_in_the_address_is_what_is_wrong(
    path: tuple[str, ...], scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"{scheme}://127.0.0.1:9"
    assert main([*path, *words_of(path, "x"), "-b", address]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"bootstrap server '{address}' begins with '{scheme}://': host:port alone is expected" in shown.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor", "{}"],
        ["probe", "{}"],
        ["conform", "{}"],
        ["tap", "{}"],
        ["replay", "nothing.log", "--to", "{}"],
    ],
)
def test_a_scheme_in_an_argument_is_what_is_wrong(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    address = "http://127.0.0.1:9"
    try:
        code = main([argument.format(address) for argument in arguments])
    except SystemExit as end:  # of argparse
        code = int(end.code or 0)
    assert code in (1, 2)
    assert "begins with 'http://'" in capsys.readouterr().err


# --- names that are not there -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", UNKNOWN_TOPIC)
def test_a_topic_that_is_not_there_is_an_error_of_a_line(path: str, run: Commands) -> None:
    out, err = run(*path.split(), *UNKNOWN_TOPIC[path], code=1)
    assert "nothing" in out + err
    assert "UNKNOWN_TOPIC_OR_PARTITION" in out + err or "there is no topic" in err
    if not out:
        (line,) = err.splitlines()
        assert "`barnabas topics" in line


@pytest.mark.parametrize("path", UNKNOWN_GROUP)
def test_a_group_that_is_not_there_is_an_error_of_a_line(path: str, run: Commands) -> None:
    out, err = run(*path.split(), *UNKNOWN_GROUP[path], code=1)
    assert "GROUP_ID_NOT_FOUND" in out or "`barnabas groups list` shows what there is" in err
    if not out:
        assert len(err.splitlines()) == 1


def test_each_command_with_a_topic_or_a_group_is_tried() -> None:
    named = {"topic", "topics", "group", "partition", "partitions", "placements"}
    tried = {*UNKNOWN_TOPIC, *UNKNOWN_GROUP, *NEEDS_NONE}
    left_out = [
        " ".join(path)
        for path in EVERY
        if any(text_parameter.name in named for text_parameter in text_parameters(EVERY[path]))
        and " ".join(path) not in tried
    ]
    assert left_out == []


def test_a_member_is_told_that_its_topic_is_not_there(run: Commands) -> None:
    _, err = run("consume", "nothing", "-g", "waits", "--idle", "0.5")
    assert err.splitlines()[0].endswith(
        "`barnabas topics list` shows what there is; waiting for it to be made"
    )


# --- what a terminal would obey -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile() -> Iterator[KafkaBroker]:
    """A broker with groups, clients, transactions and quotas that have names for terminals."""
    started = start_thread({"group.initial.rebalance.delay.ms": "0"})
    started.create_topic("t")
    started.produce("t", {"key": HOSTILE, "value": HOSTILE, "headers": [[HOSTILE, HOSTILE]]})
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BARNABAS_BOOTSTRAP", raising=False)
        for words in (
            ["produce", "t", "x", "--transactional-id", HOSTILE],
            ["quotas", "alter", "--name", f"client-id={HOSTILE}", "--set", "producer_byte_rate=1"],
            ["configs", "alter", "group", HOSTILE, "--set", "share.auto.offset.reset=earliest"],
        ):
            assert main([*words, "-b", started.bootstrap]) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": started.bootstrap,
            "group.id": HOSTILE,
            "client.id": HOSTILE,
            "group.instance.id": HOSTILE,
        }
    )
    consumer.subscribe(["t"])
    consumer.poll(5)
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    yield started
    consumer.close()
    started.close()


SHOWING = [
    ["groups", "list"],
    ["groups", "describe", "-r", ".*"],
    ["lag", "--partitions"],
    ["transactions", "list"],
    ["transactions", "describe", HOSTILE],
    ["quotas", "describe"],
    ["configs", "list", "group"],
    ["configs", "describe", "group", HOSTILE],
    ["groups", "remove-members", HOSTILE, "--all"],
    ["groups", "delete", HOSTILE],
    ["groups", "reset-offsets", HOSTILE, "--all-topics", "--to-latest"],
    ["quotas", "resolve", "--name", f"client-id={HOSTILE}"],
]


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["people", "json"])
@pytest.mark.parametrize(
    "words", SHOWING, ids=lambda words: " ".join(words).encode("unicode_escape").decode()
)
def test_answers_with_names_for_terminals_are_shown_not_obeyed(
    words: list[str], form: list[str], hostile: KafkaBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, *form, "-b", hostile.bootstrap]) in (0, 1)
    shown = capsys.readouterr()
    assert OBEYED.findall(shown.out + shown.err) == []
    assert "owned" in shown.out + shown.err


@pytest.mark.parametrize("path", ASKING, ids=" ".join)
def test_arguments_for_terminals_are_shown_not_obeyed(
    path: tuple[str, ...], run: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = ["--idle", "0.5"] if path == ("consume",) else []
    options = [[]] + [
        [text_parameter.opts[0], HOSTILE]
        for text_parameter in text_parameters(EVERY[path])
        if isinstance(text_parameter, click.Option)
    ]
    for option in options:
        if option[:1] == ["--format"] or (path == ("produce",) and option):  # which ask for what they print
            continue
        main([*path, *words_of(path, HOSTILE), *option, *ends, "--timeout", "2", "-b", run.address])
        shown = capsys.readouterr()
        assert OBEYED.findall(shown.out + shown.err) == [], option


@pytest.mark.parametrize("arguments", [["-f", r"%k %s %h\n"], ["--json"]])
def test_records_at_a_terminal_are_shown_not_obeyed(arguments: list[str], hostile: KafkaBroker) -> None:
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "consume",
        "t",
        "-q",
        "-n",
        "1",
        "-b",
        hostile.bootstrap,
        *arguments,
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": import_path()},
    ) as process:
        assert process.wait(30) == 0
    os.close(theirs)
    shown = os.read(ours, 10_000).decode().replace("\r\n", "\n")
    os.close(ours)
    assert shown.count("owned") == 4
    assert OBEYED.findall(shown) == []


def test_records_that_go_elsewhere_are_the_bytes_they_are(hostile: KafkaBroker) -> None:
    command = [sys.executable, "-m", "barnabas", "consume", "t", "-q", "-n", "1", "-b", hostile.bootstrap]
    done = subprocess.run(
        command, capture_output=True, check=True, timeout=30, env={**os.environ, "PYTHONPATH": import_path()}
    )
    assert done.stdout == HOSTILE.encode() + b"\n"
