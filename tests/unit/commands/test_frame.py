"""The frame of commands: addresses, profiles, passwords, errors, completion, the reference."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from barnabas.cli import TOOLS, _parsers, main
from barnabas.commands import COMMANDS, profiles
from barnabas.commands.completion import Everything
from barnabas.commands.connection import connecting_of, connection_options
from barnabas.commands.output import Output, Table, cell
from barnabas.commands.program import Root
from barnabas.commands.reference import page
from barnabas.testing import KafkaBroker
from barnabas.testing.running import import_path
from compat.commands.rows import rows, table

from .conftest import Commands

ROOT = Path(__file__).resolve().parents[3]
# What each command needs beside its options, to get as far as its first connection.
WORDS = {
    "kind": "topic",
    "levels": "a=1",
    "partition": "t:0",
    "partitions": "t:0",
    "placements": "t:0=1",
    "broker": "1",
}
MORE = {
    "topics alter": ["-p", "2"], "topics trim": ["--before", "1"], "configs alter": ["--set", "a=1"],
    "groups reset-offsets": ["--to-latest", "--all-topics"], "groups remove-members": ["--all"],
    "acls create": ["--topic", "t", "--operation", "read", "--allow", "User:a"],
    "brokers move": ["--broker", "1", "--to", "/x"],
    "quotas alter": ["--name", "user=a", "--set", "producer_byte_rate=1"], "quotas resolve": ["--name", "user=a"],
    "transactions abort": ["--producer-id", "1"],
}  # fmt: skip


def leaves(
    command: click.Command, context: click.Context, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands below one, with their words."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        result = command.get_command(context, name)
        assert result is not None
        yield from leaves(result, context, (*path, name))


SERVING = (("registry",), ("http",), ("console",))
EVERY = dict(leaves(Root(), click.Context(Root())))
ASKING = [
    path
    for path, subcommand in EVERY.items()
    if any(option.name == "bootstrap" for option in subcommand.params)
    and path not in (*SERVING, ("profiles", "create"), ("mcp",))
]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


@pytest.mark.parametrize(
    "path", [path for path in ASKING if path[0] not in ("doctor", "produce", "consume")], ids=" ".join
)
def test_every_command_says_in_one_line_that_nothing_listens(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        WORDS.get(param.name or "", "x")
        for param in EVERY[path].params
        if isinstance(param, click.Argument) and param.required
    ]
    yes = ["--yes"] if any(param.name == "yes" for param in EVERY[path].params) else []
    address = f"127.0.0.1:{closed_port()}"
    assert main([*path, *arguments, *MORE.get(" ".join(path), []), *yes, "-b", address]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    expected = (
        f"nothing listens on {address}: start a broker with `barnabas serve`, or give --bootstrap HOST:PORT"
    )
    assert output.err.splitlines() == [f"barnabas {' '.join(path)}: {expected}"]


def test_a_name_that_does_not_resolve_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "list", "-b", "nowhere.invalid:9092"]) == 1
    assert "the name of nowhere.invalid:9092 does not resolve" in capsys.readouterr().err


def test_tls_against_plaintext_is_told_both_ways(
    run: Commands, secured: KafkaBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "leave out --tls if it is plaintext" in run("topics", "list", "--tls", code=1)[1]
    wants_login = Commands(secured.bootstrap, capsys)
    assert "it may want TLS (--tls) or a login (--user)" in wants_login("topics", "list", code=1)[1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["topics", "list", "--bogus"], "No such option"),
        (["topics", "lst"], "No such command"),
        (["topics", "list", "-b", "nowhere:x"], "bootstrap server 'nowhere:x' is not host:port"),
        (["topics", "list", "-X", "a"], "'a' is not KEY=VALUE"),
        (["topics", "list", "-X", "security.protocol=TLS"], "security.protocol is one of"),
        (
            ["topics", "list", "--user", "ann"],
            "no password for 'ann': give --password-file, or set BARNABAS_PASSWORD",
        ),
        (["topics", "list", "--ca", "/missing"], "ssl.ca.location '/missing'"),
        (["topics", "create", "t", "-p", "0"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_options_are_usage_errors(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert text in capsys.readouterr().err


# --- profiles ---------------------------------------------------------------------------------------------------


def written(text: str, mode: int = 0o600) -> Path:
    path = Path(profiles.path())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_profile_gives_address_and_login(
    secured: KafkaBroker, capsys: pytest.CaptureFixture[str], set_environment: Callable[..., None]
) -> None:
    written(
        f'default = "inside"\n[inside]\nbootstrap.servers = "{secured.bootstrap}"\nsecurity.protocol = "SASL_PLAINTEXT"\n'
        'sasl.mechanism = "PLAIN"\nsasl.username = "admin"\nsasl.password = "secret"\n'
        '[ann]\n"bootstrap.servers" = "127.0.0.1:1"\n'
    )
    assert main(["acls", "list"]) == 0
    assert main(["topics", "list", "--profile", "ann"]) == 1
    assert "nothing listens on 127.0.0.1:1" in capsys.readouterr().err
    set_environment(BARNABAS_PROFILE="ann")
    assert main(["topics", "list"]) == 1
    assert main(["topics", "list", "--profile", "inside"]) == 0
    assert main(["topics", "list", "--profile", "other"]) == 1
    assert "has no profile 'other'; it has ann, inside" in capsys.readouterr().err


@pytest.mark.parametrize("secret", ["sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret"])
def test_a_file_with_a_secret_that_others_may_read_is_refused(
    secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(f'[a]\n{secret} = "x"\n', 0o640)
    assert main(["topics", "list", "--profile", "a"]) == 1
    assert f"chmod 600 {path}" in capsys.readouterr().err
    written('[a]\nbootstrap.servers = "127.0.0.1:1"\n', 0o644)
    assert main(["topics", "list", "--profile", "a"]) == 1
    assert "nothing listens" in capsys.readouterr().err


def test_a_broken_file_of_profiles_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    path = written("[a\n")
    assert main(["topics", "list"]) == 1
    assert str(path) in capsys.readouterr().err
    written("a = 1\n")
    assert main(["topics", "list"]) == 1
    assert "a is no profile" in capsys.readouterr().err


def test_options_override_properties_files_and_profiles(
    broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# ours\nbootstrap.servers={broker.bootstrap}\nsecurity.protocol=SSL\n")
    written('[a]\nbootstrap.servers = "127.0.0.1:1"\n')
    arguments = [
        "topics",
        "list",
        "--profile",
        "a",
        "--client-config",
        str(file),
        "-X",
        "security.protocol=PLAINTEXT",
    ]
    assert main(arguments) == 0
    assert main([*arguments, "-b", "127.0.0.1:2"]) == 1
    assert "nothing listens on 127.0.0.1:2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "user", "password"),
    [
        ([], "ann", "of-ann"),
        (["--user", "ann"], "ann", "of-ann"),
        (["--user", "bob"], "bob", "asked-for"),
        (["-X", "sasl.username=bob"], "bob", "asked-for"),
        (["-X", "sasl.username=bob", "--user", "ann"], "ann", "of-ann"),
        (["--user", "bob", "-X", "sasl.password=typed"], "bob", "typed"),
        (["-X", "sasl.username=bob", "-X", "sasl.password=typed"], "bob", "typed"),
        (["-X", "sasl.password=typed"], "ann", "typed"),
        (["--client-config", "{file}"], "bob", "asked-for"),
        (["--user", "bob", "--password-file", "{other}"], "bob", "of-bob"),
        (["--password-file", "{other}"], "ann", "of-bob"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_file", [False, True])
def test_a_password_is_that_of_the_user_beside_whom_it_stands(
    tmp_path: Path,
    set_environment: Callable[..., None],
    arguments: list[str],
    user: str,
    password: str,
    is_file: bool,
) -> None:
    set_environment(BARNABAS_PASSWORD="asked-for")
    files = {name: tmp_path / name for name in ("file", "other", "mine")}
    for name, text in (("file", "sasl.username=bob\n"), ("other", "of-bob\n"), ("mine", "of-ann\n")):
        files[name].touch(0o600)
        files[name].write_text(text)
    secret = f'sasl.password.file = "{files["mine"]}"' if is_file else 'sasl.password = "of-ann"'
    profile = f'[a]\nsecurity.protocol = "SASL_PLAINTEXT"\nsasl.mechanism = "PLAIN"\n{secret}\n'
    written(f'{profile}sasl.username = "ann"\n')
    values = [argument.format(**files) for argument in arguments]
    assert login("--profile", "a", *values) == (user, password)
    written(profile)
    assert login("--profile", "a", "--user", "bob") == ("bob", "of-ann"), (
        "one without a user is for who is named"
    )


def login(*arguments: str) -> tuple[str, str]:
    """Return the user as which options have a command log in."""
    result = []

    @click.command()
    @connection_options
    def command(**options: Any) -> None:
        result.append(connecting_of(options).settings.sasl)

    command.main(list(arguments), standalone_mode=False)
    (sasl,) = result
    assert sasl is not None
    return sasl.username, sasl.password


# --- output -----------------------------------------------------------------------------------------------------


def test_json_has_declared_keys_and_failures_set_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    things = Table(
        "things", {"name": "name", "size_bytes": "size", "error": "why not"}, json_only=("size_bytes",)
    )
    output = Output(as_json=True)
    output.show(things, [{"name": "a", "size_bytes": 1}])
    output.show(things, [{"name": "b", "error": "LOST"}])
    assert output.finish() == 1
    assert '"size_bytes": null' in capsys.readouterr().out
    output = Output(as_json=False)
    output.show(things, [{"name": "a"}])
    assert output.finish() == 0
    assert capsys.readouterr().out == "NAME\na\n"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("a", None, "-"), ("a", True, "yes"), ("a", [1, 2], "1,2"), ("a", (), "-"), ("a", {"k": None}, "k=-"),
        ("seen_at_ms", 0, "1970-01-01T00:00:00.000+00:00"), ("seen_at_ms", -1, "-"), ("a", "x\x1b[2J\n", "x\\x1b[2J\\n"),
    ],
)  # fmt: skip
def test_values_are_shown_to_people(name: str, value: object, text: str) -> None:
    assert cell(name, value) == text


def test_tables_stand_apart_and_one_that_is_empty_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    rows, facts = (
        Table("rows", {"a": "", "n": "", "error": ""}),
        Table("facts", {"is_it": ""}, is_single=True),
    )
    output = Output(as_json=False)
    output.show(rows, [{"a": "x", "n": 1}, {"a": "yy", "n": 10}], title="Some")
    output.show(facts, [{"is_it": True}])
    output.show(rows, [], title="None")
    assert output.finish() == 0
    output.show(rows, [{"a": "x", "n": 0, "error": "E"}])
    output.show(rows, [{"a": "y", "error": "UNKNOWN_TOPIC_OR_PARTITION"}])
    output.show(rows, [], title="Of none")
    assert output.finish() == 1
    shown = capsys.readouterr()
    assert shown.err == "a y: UNKNOWN_TOPIC_OR_PARTITION; `barnabas topics list` shows what there is\n"
    assert shown.out.split("\n") == [
        "Some",
        "A    N",
        "x    1",
        "yy  10",
        "",
        "IT     yes",
        "",
        "None",
        "no rows",
        "",
        "A  N  ERROR",
        "x  0  E",
        "",
    ]


def test_page_has_a_heading_for_each_command_in_its_group() -> None:
    lines = page().splitlines()
    for path in EVERY:
        assert f"{'#' * min(len(path) + 1, 4)} barnabas {' '.join(path)}" in lines
    assert "## barnabas topics" in lines


# --- one place --------------------------------------------------------------------------------------------------


def completions(
    set_environment: Callable[..., None], capsys: pytest.CaptureFixture[str], words: str
) -> list[str]:
    set_environment(_BARNABAS_COMPLETE="bash_complete")
    set_environment(COMP_WORDS=words)
    set_environment(COMP_CWORD=str(len(words.split(" ")) - 1))
    assert main([]) == 0
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("barnabas to", ["topics", "tokens"]),
        ("barnabas ser", ["serve"]),
        ("barnabas serve --adv", ["--advertise"]),
        ("barnabas serve --log-level w", ["warning"]),
        ("barnabas log ver", ["verify"]),
        ("barnabas log verify --js", ["--json"]),
        ("barnabas brokers reassign ", ["cancel", "list", "start"]),
        ("barnabas configs describe broker", ["broker", "broker-logger"]),
        ("barnabas topics list --prof", ["--profile"]),
        ("barnabas topics list --profile lo", ["local"]),
    ],
)
def test_old_and_new_commands_are_completed(
    words: str, expected: list[str], set_environment: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    written('[local]\nbootstrap.servers = "127.0.0.1:1"\n')
    assert completions(set_environment, capsys, words) == expected


def test_all_parsers_can_be_completed() -> None:
    everything = Everything(_parsers())
    names = {path[0] for path, _ in leaves(everything, click.Context(everything))}
    assert names == {"serve", *TOOLS, *COMMANDS}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_BARNABAS_COMPLETE" in capsys.readouterr().out


def test_a_broker_loads_no_click() -> None:
    program = """
import sys
import barnabas.broker.assembly, barnabas.broker.process
from barnabas import cli
try:
    cli.main(["serve", "--no-such-option"])
except SystemExit:
    print(sorted({"click", "barnabas.commands.program"} & set(sys.modules)))
"""
    environment = {**os.environ, "PYTHONPATH": import_path()}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout == "[]\n", done.stderr


def test_the_page_has_the_table_of_what_is_tried() -> None:
    how = "put compat.commands.rows.table(), printed from compat/commands/rows.yaml, into docs/how-to/commands.md"
    assert table() in (ROOT / "docs/how-to/commands.md").read_text(), how
    tried = {
        tuple(word for word in row.ours.split() if not word.startswith("-"))
        for row in rows()
        if not row.is_preparation
    }
    untried = [path for path in ASKING if not any(words[: len(path)] == path for words in tried)]
    assert untried in ([], [("brokers", "move")]), untried
