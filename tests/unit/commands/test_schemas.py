"""`barnabas registry`, and `produce` and `consume` with schemas, against a broker in a thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from barnabas.cli import main
from barnabas.commands.connection import connecting_of, connection_options
from barnabas.commands.schemas import registry_of, registry_option
from barnabas.registry.client_settings import RegistryAt
from barnabas.testing import KafkaBroker
from barnabas.testing.in_process import start_thread
from barnabas.testing.running import import_path
from tests.support.certificates import signed

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"n","type":"int","default":1}]}'
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with start_thread({"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture(scope="module")
def registry(broker: KafkaBroker) -> Iterator[str]:
    """A registry in a process; its address. It ends well at a signal."""
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "registry",
        "-b",
        broker.bootstrap,
        "--listen",
        "127.0.0.1:0",
    ]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert words[:4] == ["barnabas", "registry", "is", "ready:"]
        yield words[4].removeprefix("registry=")
        process.terminate()
        assert process.wait(20) == 0


@pytest.fixture
def run(broker: KafkaBroker, registry: str, capfd: pytest.CaptureFixture[str], set_environment) -> Run:
    """Run a command in this process: exit code, standard output, standard error."""
    set_environment(BARNABAS_BOOTSTRAP=broker.bootstrap)
    set_environment(BARNABAS_REGISTRY=registry)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(arguments)
        output = capfd.readouterr()
        return code, output.out, output.err

    return run


def test_texts_need_no_quotes_also_those_that_look_like_numbers(
    broker: KafkaBroker, run: Run, tmp_path: Path
) -> None:
    broker.create_topic("texts")
    (tmp_path / "text.avsc").write_text('"string"')
    assert run("produce", "texts", "ann", "5", '"six"', "--value-schema", str(tmp_path / "text.avsc"))[0] == 0
    assert run("consume", "texts", "-q")[1] == '"ann"\n"5"\n"six"\n'


def test_where_looks_at_what_a_schema_reads(broker: KafkaBroker, run: Run, tmp_path: Path) -> None:
    broker.create_topic("chosen")
    (tmp_path / "order.avsc").write_text(ORDER)
    value = "--value-schema", str(tmp_path / "order.avsc")
    assert run("produce", "chosen", '{"id":"a","n":1}', '{"id":"b","n":2}', *value)[0] == 0
    assert run("consume", "chosen", "-q", "--where", "$.n > 1")[1] == '{"id": "b", "n": 2}\n'
    assert run("consume", "chosen", "-q", "--where", "$.n > 1", "--registry", "")[1] == ""
    assert run("consume", "chosen", "-q", "--where", "value contains '\"a\"'")[1] == '{"id": "a", "n": 1}\n'


def test_what_does_not_fit_is_told_with_its_place(broker: KafkaBroker, run: Run, tmp_path: Path) -> None:
    broker.create_topic("poison")
    (tmp_path / "order.avsc").write_text(ORDER)
    value = "--value-schema", str(tmp_path / "order.avsc")
    code, _, error = run("produce", "poison", '{"id":"a"}', '{"id":7}', *value)
    assert (code, error) == (1, "barnabas produce: record 2: id is no string\n")
    broker.produce("poison", {"value": {"base64": "AAAAI/8="}}, "readable")
    reason = "barnabas consume: poison partition 0 offset 1: Schema 9215 not found (40403)\n"
    for of_group in ((), ("-g", "readers", "-o", "beginning", "--idle", "3")):
        code, printed, error = run("consume", "poison", *of_group)
        assert code == 1
        assert printed == '{"id": "a", "n": 1}\nreadable\n'
        assert error == f"{reason}2 records, 1 could not be read\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--value-schema", "latest"],
            "schema latest of nothing-value: Subject 'nothing-value' not found. (40401)",
        ),
        (["--value-schema", "99"], "schema 99 of nothing-value: Schema 99 not found (40403)"),
        (
            ["--value-schema", "x.xsd"],
            "x.xsd: a schema's file ends with .avsc, .json, .proto; or give an id, or latest",
        ),
        (["--value-schema", "no.avsc"], "no.avsc: No such file or directory"),
        (
            ["--value-schema", "1", "--registry", "nowhere"],
            "--registry: 'nowhere' is not the address of a registry",
        ),
        (["--value-schema", "1", "--registry", "http://127.0.0.1:1"], "http://127.0.0.1:1 cannot be reached"),
    ],
)
def test_a_schema_that_cannot_be_had_is_one_line(
    broker: KafkaBroker, run: Run, arguments: list[str], message: str
) -> None:
    code, _, error = run(
        "produce", "nothing", "x", "--auto-create", *arguments
    )  # else the topic is looked for first
    assert code in (1, 2)
    assert message in error.splitlines()[0]


def test_a_schema_needs_a_registry(run: Run, set_environment: Callable[..., None]) -> None:
    set_environment(BARNABAS_REGISTRY=None)
    code, _, error = run("produce", "nothing", "x", "--value-schema", "1")
    assert code == 2
    assert "need --registry" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "0.0.0.0:0"], "could change every schema"),
        (["--listen", "nothing"], "not of the form HOST:PORT"),
        (["--listen-cert", "/nowhere.pem"], "the certificate of the registry, '/nowhere.pem'"),
    ],
)
def test_a_registry_that_cannot_be_served_says_so(run: Run, arguments: list[str], message: str) -> None:
    code, _, error = run(
        "registry", *(arguments if "--listen" in arguments else ["--listen", "localhost:0", *arguments])
    )
    assert code == 1
    assert len(error.splitlines()) == 1
    assert message in error


LOGIN = "schema.registry.basic.auth.user.info"
PROFILE = f"""[a]
schema.registry.url = "https://a:8081"
{LOGIN} = "ann:x"
schema.registry.ssl.ca.location = "{{ca}}"
"""


@pytest.mark.parametrize(
    ("arguments", "url", "user"),
    [
        ([], "https://a:8081", "ann"),
        (["--registry", "https://a:8081/path"], "https://a:8081/path", "ann"),
        (["--registry", "https://b:8081"], "https://b:8081", ""),
        (["--registry", "http://a:8081"], "http://a:8081", ""),
        (["-X", "schema.registry.url=https://b:8081"], "https://b:8081", ""),
        (["-X", "schema.registry.url=https://b:8081", "--registry", "https://a:8081"], "https://a:8081", ""),
        (["-X", f"{LOGIN}=bob:y", "--registry", "http://b:8081"], "http://b:8081", "bob"),
        (["-X", f"{LOGIN}=bob:y"], "https://a:8081", "bob"),
        (["--client-config", "{file}"], "http://c:8081", ""),
        (["--client-config", "{file}", "--registry", "https://a:8081"], "https://a:8081", ""),
    ],
)  # fmt: skip
def test_profile_login_goes_only_to_the_profiles_registry(
    tmp_path: Path, set_environment: Callable[..., None], arguments: list[str], url: str, user: str
) -> None:
    (tmp_path / "ca.pem").write_text(signed({"CN": "ours"}).pem)
    (tmp_path / "other").write_text("schema.registry.url=http://c:8081\n")
    profile = tmp_path / "barnabas" / "profiles.toml"
    profile.parent.mkdir()
    profile.touch(0o600)
    profile.write_text(PROFILE.format(ca=tmp_path / "ca.pem"))
    set_environment(XDG_CONFIG_HOME=str(tmp_path))
    result: list[RegistryAt | None] = []

    @click.command()
    @registry_option
    @connection_options
    def command(registry: str | None, **options: Any) -> None:
        result.append(registry_of(registry, connecting_of(options)))

    values = [argument.format(file=tmp_path / "other") for argument in arguments]
    command.main(["--profile", "a", *values], standalone_mode=False)
    (argument,) = result
    assert argument is not None
    assert (argument.url, argument.user, argument.password) == (
        url,
        user,
        {"ann": "x", "bob": "y"}.get(user, ""),
    )
    assert (argument.tls is not None) == (
        url.startswith("https://a:8081") and not (arguments and user == "")
    ), "whom to trust"


def test_an_address_with_a_password_makes_a_profile_a_secret(
    tmp_path: Path, set_environment: Callable[..., None], capsys
) -> None:
    profile = tmp_path / "barnabas" / "profiles.toml"
    profile.parent.mkdir()
    profile.touch(0o644)
    set_environment(XDG_CONFIG_HOME=str(tmp_path))
    for url, is_secret in (
        ("https://ann:x@a:8081", True),
        ("https://ann@a", True),
        ("https://a:8081", False),
    ):
        profile.write_text(f'[a]\nbootstrap.servers = "127.0.0.1:1"\nschema.registry.url = "{url}"\n')
        assert main(["topics", "list", "--profile", "a"]) == 1
        assert (f"chmod 600 {profile}" in capsys.readouterr().err) == is_secret, url


# --- commands that ask a registry ---------------------------------------------------------------------------------


def test_subject_is_registered_checked_shown_and_deleted(run: Run, tmp_path: Path) -> None:
    first, second, wrong = (str(tmp_path / name) for name in ("a.avsc", "b.avsc", "c.avsc"))
    Path(first).write_text(ORDER)
    Path(second).write_text(ORDER.replace("]}", ',{"name":"t","type":"long","default":0}]}'))
    Path(wrong).write_text(ORDER.replace('"string"', '"bytes"').replace('"int"', '"boolean"'))
    subject = "a/subject-value"

    def answer(*arguments: str, code: int = 0) -> Any:
        ended_with, output, error = run("registry", *arguments, "--json")
        assert (ended_with, error) == (code, "")
        (value,) = json.loads(output).values()
        return value

    registered = answer("register", subject, first)
    assert (registered["subject"], registered["version"]) == (subject, 1)
    assert answer("register", subject, second)["version"] == 2
    assert answer("register", subject, first) == registered
    assert answer("subjects", "a/") == [{"subject": subject}]
    shown = answer("get", subject, "1")
    assert (shown["id"], shown["type"], shown["references"]) == (registered["id"], "AVRO", [])
    assert answer("get", "--id", str(registered["id"]))["schema"] == shown["schema"]
    assert json.loads(run("registry", "get", subject, "1", "--raw")[1]) == json.loads(ORDER)
    assert answer("check", subject, second)["is_compatible"]
    refused = answer("check", subject, wrong, "--version", "all", code=1)
    assert not refused["is_compatible"]
    assert refused["messages"]
    assert any('+      "name": "t"' in line for line in answer("diff", subject, "1", code=1)["lines"])
    assert answer("diff", subject, "1", "1")["lines"] == []
    assert answer("level", subject) == {"subject": subject, "level": "BACKWARD"}
    assert answer("level", subject, "--set", "full") == {"subject": subject, "level": "FULL"}
    assert answer("level", subject, "--delete") == {"subject": subject, "level": "BACKWARD"}
    assert answer("mode") == {"subject": None, "mode": "READWRITE"}
    assert answer("mode", subject, "--set", "READONLY")["mode"] == "READONLY"
    assert answer("mode", subject, "--delete")["mode"] == "READWRITE"
    assert answer("delete", subject, "1", "--yes") == {"subject": subject, "versions": [1]}
    assert answer("delete", subject, "--yes") == {"subject": subject, "versions": [2]}
    assert answer("subjects", "a/", "--deleted") == [{"subject": subject}]
    assert answer("delete", subject, "--permanent", "--yes") == {"subject": subject, "versions": [1, 2]}
    assert answer("subjects", "a/", "--deleted") == []


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["get", "no-such"], 1, "Subject 'no-such' not found. (40401); `barnabas registry subjects` shows"),
        (["get"], 2, "give a SUBJECT, or --id"),
        (["get", "--id", "999"], 1, "Schema 999 not found"),
        (["register", "s", "x.txt"], 1, "a schema's file ends with .avsc, .json, .proto"),
        (["register", "s", "{wrong}"], 1, "(42201)"),
        (["register", "s", "{wrong}", "--reference", "x"], 2, "NAME=SUBJECT:VERSION is expected"),
        (["check", "no-such", "{order}", "--version", "7"], 1, "(4040"),
        (["level", "--set", "x"], 2, "'x' is not one of 'backward'"),
        (["mode", "s", "--set", "READONLY", "--delete"], 2, "exclude each other"),
        (["delete", "no-such"], 1, "give --yes"),
        (["delete", "no-such", "--yes"], 1, "(40401)"),
        (["subjects", "--registry", "http://127.0.0.1:1"], 1, "cannot be reached"),
        (["subjects", "--registry", "nowhere"], 2, "is not the address of a registry"),
        (["subject"], 2, "Did you mean 'subjects'?"),
    ],
)
def test_registry_refusal_is_a_line_that_says_why(
    run: Run, tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    (tmp_path / "wrong.avsc").write_text("no schema")
    (tmp_path / "order.avsc").write_text(ORDER)
    words = [word.format(wrong=tmp_path / "wrong.avsc", order=tmp_path / "order.avsc") for word in arguments]
    ended_with, output, error = run("registry", *words)
    assert (ended_with, output) == (code, "")
    assert text in error
    assert len(error.splitlines()) <= (2 if code == 2 else 1)
