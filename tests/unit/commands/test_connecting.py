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
from barnabas.commands.connection import Connecting, connecting_of, connection_options
from barnabas.commands.errors import CommandError
from tests.support.certificates import Files
from tests.support.certificates import written as certificates_in

LOGINS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return certificates_in(tmp_path_factory.mktemp("certificates"))


def connecting(*arguments: str) -> Connecting:
    """Return what options come to."""
    result = []

    @click.command()
    @connection_options
    def command(**options: Any) -> None:
        result.append(connecting_of(options))

    command.main(list(arguments), standalone_mode=False)
    (entry,) = result
    return entry


def written(text: str, mode: int = 0o600) -> Path:
    """Write the user's file of profiles."""
    path = Path(profiles.path())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode)
    path.write_text(text)
    path.chmod(mode)
    return path


def secret(path: Path, text: str) -> str:
    path.touch(0o600)
    path.write_text(text)
    return str(path)


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_file_of_settings_has_comments_and_empty_lines(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# one\n! two\n\n   \n  client.id = me \nbootstrap.servers=a:1\n#x=1\n")
    result = connecting("--client-config", str(file))
    assert result.bootstrap == [Endpoint("a", 1)]
    assert result.settings.client_id == "me"
    assert result.typed == {}
    assert set(result.properties) == {"client.id", "bootstrap.servers", "security.protocol"}


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


def test_each_place_goes_before_the_next(tmp_path: Path, set_environment: Callable[..., None]) -> None:
    file = tmp_path / "client.properties"
    written(
        'default = "d"\n[d]\nclient.id = "default"\n[p]\nclient.id = "profile"\nbootstrap.servers = "profile:1"\n'
    )
    assert connecting().settings.client_id == "default"
    arguments = ["--profile", "p"]
    result = connecting(*arguments)
    assert (result.settings.client_id, result.bootstrap) == ("profile", [Endpoint("profile", 1)])
    file.write_text("client.id=file\nbootstrap.servers=file:1\n")
    arguments += ["--client-config", str(file)]
    result = connecting(*arguments)
    assert (result.settings.client_id, result.bootstrap) == ("file", [Endpoint("file", 1)])
    arguments += ["-X", "client.id=typed", "-X", "bootstrap.servers=typed:1"]
    result = connecting(*arguments)
    assert (result.settings.client_id, result.bootstrap) == ("typed", [Endpoint("typed", 1)])
    assert connecting(*arguments, "-b", "option:1").bootstrap == [Endpoint("option", 1)]
    set_environment(BARNABAS_BOOTSTRAP="variable:1")
    assert connecting(*arguments).bootstrap == [Endpoint("variable", 1)]


# --- passwords -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", LOGINS)
def test_a_password_is_asked_for_at_a_terminal_without_an_echo(
    mechanism: str,
    at_terminal: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    set_environment: Callable[..., None],
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
    set_environment(BARNABAS_PASSWORD="variable")
    sasl = connecting("--user", "ann").settings.sasl
    assert sasl is not None
    assert (sasl.password, len(asked)) == ("variable", 1)


# --- profiles ------------------------------------------------------------------------------------------------------


def test_profile_names_may_nest_and_paths_start_at_home() -> None:
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


@pytest.mark.parametrize("text", ["[a\n", "a = 1\n", '[a]\nsasl.password = "x"\n'])
def test_a_file_that_cannot_be_used_has_no_names_to_complete(text: str) -> None:
    written(text, 0o644)
    with pytest.raises(CommandError, match=profiles.path()):
        profiles.read(None)
    assert profiles.names() == []


def test_a_file_of_profiles_that_cannot_be_read_is_named() -> None:
    path = Path(profiles.path())
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
