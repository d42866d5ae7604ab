"""Ways of commands to a cluster: options, files, profiles and questions, and what they come to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from barnabas.client import Endpoint
from barnabas.commands import profiles
from barnabas.commands.connection import Connecting, _profiles, connecting_of, connection_options
from barnabas.commands.errors import CommandError
from tests.support.certificates import Files
from tests.support.certificates import written as certificates_in

LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return certificates_in(tmp_path_factory.mktemp("certificates"))


def connecting(*arguments: str) -> Connecting:
    """Return what options come to."""
    found = []

    @click.command()
    @connection_options
    def command(**options: Any) -> None:
        found.append(connecting_of(options))

    command.main(list(arguments), standalone_mode=False)
    (one,) = found
    return one


def written(text: str, mode: int = 0o600) -> Path:
    """Write the user's file of profiles."""
    path = profiles.path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode)
    path.write_text(text)
    path.chmod(mode)
    return path


def secret(path: Path, text: str) -> str:
    path.touch(0o600)
    path.write_text(text)
    return str(path)


# --- options -------------------------------------------------------------------------------------------------------


def test_without_options_it_is_a_broker_on_this_machine_without_tls_or_login() -> None:
    found = connecting()
    assert found.bootstrap == [Endpoint("localhost", 9092)]
    assert (found.settings.tls, found.settings.sasl, found.settings.request_timeout_ms) == (
        None,
        None,
        20_000,
    )
    assert found.properties == {"security.protocol": "PLAINTEXT"}
    assert found.typed == {}


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ([], "PLAINTEXT"),
        (["--tls"], "SSL"),
        (["--ca", "{ca}"], "SSL"),
        (["--cert", "{cert}", "--cert-key", "{key}"], "SSL"),
        (["--cert-key", "{key}"], "PLAINTEXT"),
        (["--user", "ann"], "SASL_PLAINTEXT"),
        (["--mechanism", "PLAIN"], "SASL_PLAINTEXT"),
        (["--user", "ann", "--tls"], "SASL_SSL"),
        (["-X", "security.protocol=SSL", "--user", "ann"], "SASL_SSL"),
        (["-X", "security.protocol=sasl_plaintext", "--ca", "{ca}"], "SASL_SSL"),
        (["-X", "security.protocol=SASL_SSL"], "SASL_SSL"),
        (["-X", "security.protocol=PLAINTEXT", "--tls"], "SSL"),
    ],
)
def test_an_option_of_tls_or_of_a_login_asks_for_it(
    files: Files, options: list[str], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_PASSWORD", "secret")
    names = {"ca": files.authority, "cert": files.client, "key": files.client_key}
    found = connecting(*(one.format(**names) for one in options))
    assert found.properties["security.protocol"] == protocol
    assert (found.settings.tls is not None) == protocol.endswith("SSL")
    assert (found.settings.sasl is not None) == protocol.startswith("SASL")


def test_files_of_tls_are_those_of_the_options(files: Files) -> None:
    options = ("--ca", files.authority, "--cert", files.client, "--cert-key", files.client_key)
    found = connecting(*map(str, options)).properties
    assert found == {
        "ssl.ca.location": str(files.authority), "ssl.certificate.location": str(files.client),
        "ssl.key.location": str(files.client_key), "security.protocol": "SSL",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "mechanism"),
    [
        (["--user", "ann"], "SCRAM-SHA-512"),
        (["--user", "ann", "--mechanism", "SCRAM-SHA-256"], "SCRAM-SHA-256"),
        (["--user", "ann", "-X", "sasl.mechanism=PLAIN"], "PLAIN"),
        (["--mechanism", "SCRAM-SHA-256", "-X", "sasl.mechanism=PLAIN"], "SCRAM-SHA-256"),
        (["-X", "security.protocol=SASL_PLAINTEXT"], "PLAIN"),
    ],
)
def test_a_user_of_an_option_logs_in_with_scram_unless_it_is_said(
    options: list[str], mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_PASSWORD", "secret")
    sasl = connecting(*options).settings.sasl
    assert sasl is not None
    assert (sasl.mechanism, sasl.password) == (mechanism, "secret")
    assert sasl.username == ("ann" if "--user" in options else "")


@pytest.mark.parametrize(
    ("timeout", "milliseconds"),
    [("20", 20_000), ("0.5", 500), ("0.001", 1), ("0.0001", 1), ("3600", 3_600_000)],
)
def test_a_timeout_is_in_seconds_and_at_least_a_millisecond(timeout: str, milliseconds: int) -> None:
    assert connecting("--timeout", timeout).settings.request_timeout_ms == milliseconds


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--timeout", "0"], "0.0 is not in the range"),
        (["--timeout", "3601"], "is not in the range"),
        (["-b", "h"], "bootstrap server 'h' is not host:port"),
        (["-X", "x"], "--property: 'x' is not KEY=VALUE"),
        (["-X", "security.protocol=TLS"], "security.protocol is one of"),
        (["--mechanism", "NTLM"], "sasl.mechanism is one of"),
    ],
)
def test_what_is_wrong_with_an_option_is_a_usage_error(arguments: list[str], said: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        connecting(*arguments)
    assert said in caught.value.message


def test_several_brokers_may_be_named_and_settings_have_blanks_around_them() -> None:
    found = connecting("-b", "a:1, [::1]:2", "-X", " client.id = me=us ")
    assert found.bootstrap == [Endpoint("a", 1), Endpoint("::1", 2)]
    assert found.settings.client_id == "me=us"
    assert found.typed == {"client.id": "me=us"}


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_file_of_settings_has_comments_and_empty_lines(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# one\n! two\n\n   \n  client.id = me \nbootstrap.servers=a:1\n#x=1\n")
    found = connecting("--client-config", str(file))
    assert found.bootstrap == [Endpoint("a", 1)]
    assert found.settings.client_id == "me"
    assert found.typed == {}
    assert set(found.properties) == {"client.id", "bootstrap.servers", "security.protocol"}


def test_a_file_of_settings_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    with pytest.raises(CommandError, match=r"client\.properties: No such file or directory$"):
        connecting("--client-config", str(file))
    file.write_bytes(b"\xff")
    with pytest.raises(CommandError, match=r"client\.properties: .*can't decode"):
        connecting("--client-config", str(file))
    file.write_text("a=1\nnothing\n")
    with pytest.raises(click.UsageError, match=r"client\.properties: 'nothing' is not KEY=VALUE"):
        connecting("--client-config", str(file))


def test_each_place_goes_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.properties"
    written(
        'default = "d"\n[d]\nclient.id = "default"\n[p]\nclient.id = "profile"\nbootstrap.servers = "profile:1"\n'
    )
    assert connecting().settings.client_id == "default"
    arguments = ["--profile", "p"]
    found = connecting(*arguments)
    assert (found.settings.client_id, found.bootstrap) == ("profile", [Endpoint("profile", 1)])
    file.write_text("client.id=file\nbootstrap.servers=file:1\n")
    arguments += ["--client-config", str(file)]
    found = connecting(*arguments)
    assert (found.settings.client_id, found.bootstrap) == ("file", [Endpoint("file", 1)])
    arguments += ["-X", "client.id=typed", "-X", "bootstrap.servers=typed:1"]
    found = connecting(*arguments)
    assert (found.settings.client_id, found.bootstrap) == ("typed", [Endpoint("typed", 1)])
    assert connecting(*arguments, "-b", "option:1").bootstrap == [Endpoint("option", 1)]
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "variable:1")
    assert connecting(*arguments).bootstrap == [Endpoint("variable", 1)]


# --- passwords -----------------------------------------------------------------------------------------------------


def test_a_password_of_a_file_is_its_first_line_and_goes_before_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_PASSWORD", "variable")
    file = secret(tmp_path / "password", "first\nsecond\n")
    sasl = connecting("--user", "ann", "--password-file", file).settings.sasl
    assert sasl is not None
    assert sasl.password == "first"
    (tmp_path / "password").chmod(0o640)
    with pytest.raises(CommandError, match="chmod 600"):
        connecting("--user", "ann", "--password-file", file)


@pytest.mark.parametrize("mechanism", LOGINS)
def test_a_password_is_asked_for_at_a_terminal_without_an_echo(
    mechanism: str, at_terminal: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def hidden(prompt: str) -> str:
        asked.append(prompt)
        return "typed"

    monkeypatch.setattr("click.termui.hidden_prompt_func", hidden)
    at_terminal("")
    sasl = connecting("--user", "ann", "--mechanism", mechanism.lower()).settings.sasl
    assert sasl is not None
    assert (sasl.mechanism, sasl.password, len(asked)) == (mechanism, "typed", 1)
    monkeypatch.setenv("BARNABAS_PASSWORD", "variable")
    sasl = connecting("--user", "ann").settings.sasl
    assert sasl is not None
    assert (sasl.password, len(asked)) == ("variable", 1)


def test_only_a_login_by_password_needs_one() -> None:
    with pytest.raises(click.UsageError, match="no password for 'ann': give --password-file"):
        connecting("--user", "ann")
    connecting("-X", "sasl.username=ann")  # without a login nobody is asked
    bearer = ("sasl.oauthbearer.config=principal=ann", "enable.sasl.oauthbearer.unsecure.jwt=true")
    found = connecting("--mechanism", "OAUTHBEARER", *(word for one in bearer for word in ("-X", one)))
    assert found.settings.sasl is not None
    assert "sasl.password" not in found.properties


# --- profiles ------------------------------------------------------------------------------------------------------


def test_the_file_of_profiles_is_where_the_user_keeps_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/elsewhere")
    assert profiles.path() == Path("/elsewhere/barnabas/profiles.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    assert profiles.path() == Path.home() / ".config/barnabas/profiles.toml"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert profiles.path() == Path.home() / ".config/barnabas/profiles.toml"


def test_names_of_a_profile_may_be_nested_and_paths_begin_at_home() -> None:
    written(
        '[a]\nssl.ca.location = "~/ca"\n"sasl.password.file" = "~/pw"\nclient.id = "~/me"\nretries = 5\n'
        'allow.auto.create.topics = true\nfetch.enabled = false\n[a.sasl.kerberos]\nkeytab = "~/k"\nname = "X"\n'
    )
    home = os.path.expanduser("~")
    assert profiles.read("a") == {
        "ssl.ca.location": f"{home}/ca", "sasl.password.file": f"{home}/pw", "client.id": "~/me", "retries": "5",
        "allow.auto.create.topics": "true", "fetch.enabled": "false", "sasl.kerberos.keytab": f"{home}/k",
        "sasl.kerberos.name": "X",
    }  # fmt: skip


def test_a_profile_is_that_of_the_name_or_the_default_or_none() -> None:
    assert profiles.read(None) == {}
    assert profiles.names() == []
    with pytest.raises(CommandError, match=r"has no profile 'a'; it has none$"):
        profiles.read("a")
    written('[b]\nx = "1"\n[a]\nx = "2"\n')
    assert profiles.read(None) == profiles.read("") == {}
    assert (profiles.read("a"), profiles.names()) == ({"x": "2"}, ["a", "b"])
    written('default = "b"\n[b]\nx = "1"\n[a]\nx = "2"\n')
    assert (profiles.read(None), profiles.read("a")) == ({"x": "1"}, {"x": "2"})
    written('default = "c"\n[b]\nx = "1"\n[a]\nx = "2"\n')
    with pytest.raises(CommandError, match=r"has no profile 'c'; it has a, b$"):
        profiles.read(None)


@pytest.mark.parametrize("text", ["[a\n", "a = 1\n", '[a]\nsasl.password = "x"\n'])
def test_a_file_that_cannot_be_used_has_no_names_to_complete(text: str) -> None:
    written(text, 0o644)
    with pytest.raises(CommandError, match=str(profiles.path())):
        profiles.read(None)
    assert profiles.names() == []


def test_a_file_of_profiles_that_cannot_be_read_is_named() -> None:
    path = profiles.path()
    path.mkdir(parents=True)
    with pytest.raises(CommandError, match=r"profiles\.toml: Is a directory$"):
        profiles.read(None)
    path.rmdir()
    path.write_bytes(b'a = "\xff"')
    with pytest.raises(CommandError, match=r"profiles\.toml: .*can't decode"):
        profiles.read(None)


@pytest.mark.parametrize(
    ("setting", "is_secret"),
    [
        ("sasl.password", True), ("ssl.key.password", True), ("a.client.secret", True),
        ("schema.registry.basic.auth.user.info", True), ("schema.registry.bearer.auth.token", True),
        ("sasl.password.file", False), ("client.id", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o604, 0o620, 0o602])
def test_a_secret_of_any_profile_is_its_owners_alone(setting: str, is_secret: bool, mode: int) -> None:
    path = written(f'[a]\nx = "1"\n[b]\ny = "2"\n"{setting}" = "z"\n', mode)
    if is_secret and mode != 0o600:
        with pytest.raises(CommandError, match=f"chmod 600 {path}"):
            profiles.read("a")
    else:
        assert profiles.read("a") == {"x": "1"}


@pytest.mark.parametrize(
    ("name", "text", "is_refused"),
    [("r.url", "http://a:b@h", True), ("r.url", "http://h", False), ("client.id", "ann@h", False)],
)
def test_an_address_with_a_user_in_it_is_a_secret(name: str, text: str, is_refused: bool) -> None:
    written(f'[a]\n{name} = "{text}"\n', 0o644)
    if is_refused:
        with pytest.raises(CommandError, match="holds a password"):
            profiles.read("a")
    else:
        assert profiles.read("a") == {name: text}


def test_profiles_are_completed_by_their_first_letters() -> None:
    written('[local]\nx = "1"\n[lost]\nx = "1"\n[other]\nx = "1"\n')
    context = click.Context(click.Command("x"))
    parameter = click.Option(["--profile"])
    assert _profiles(context, parameter, "lo") == ["local", "lost"]
    assert _profiles(context, parameter, "los") == ["lost"]
    assert _profiles(context, parameter, "") == ["local", "lost", "other"]
