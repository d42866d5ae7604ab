"""Options of `serve`: each is a setting of its own, with where it came from, and goes before the file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.serve_options import (
    CollectedSettings,
    check_workers,
    collect,
    collect_shared,
    collect_stored,
)
from barnabas.cli.options import add_serve
from barnabas.config.setting import SettingError

NO_FILE = {
    "group.initial.rebalance.delay.ms", "group.consumer.assignment.interval.ms", "group.share.assignment.interval.ms",
    "group.streams.initial.rebalance.delay.ms",
}  # fmt: skip


def given(*arguments: str, demo: dict[str, str] | None = None) -> CollectedSettings:
    parser = argparse.ArgumentParser()
    add_serve(parser.add_subparsers())
    return collect(parser.parse_args(["serve", *arguments]), demo)


@pytest.fixture
def usual(set_environment: Callable[..., None]) -> dict[str, str]:
    """The settings of no option at all."""
    set_environment(XDG_STATE_HOME="/state")
    return given().settings


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--metrics", ":9404"], "metrics.listener", ":9404"),
        (["--zookeeper", "z:2181"], "zookeeper.connect", "z:2181"),
        (["--broker-id", "7"], "broker.id", "7"),
        (["--rack", "r"], "broker.rack", "r"),
        (["--as-version", "4.0"], "kafka.version", "4.0"),
        (["--control", ":9093"], "control.listener", ":9093"),
        (["--registry", ":8081"], "registry.listener", ":8081"),
        (["--http", ":8082"], "http.listener", ":8082"),
        (["--console-origin", "http://a", "--console-origin", "http://b"], "console.origins", "http://a,http://b"),
        (["--console-registry", "http://r"], "console.registry.url", "http://r"),
        (["--console-connect", "http://c", "--console-connect", "b=http://d"], "console.connect.urls", "http://c,b=http://d"),
        (["--faults", "/f"], "faults.file", "/f"),
        (["--fault-seed", "3"], "faults.seed", "3"),
        (["--virtual-clock"], "clock.virtual", "true"),
        (["--data", "/d"], "log.dirs", "/d"),
        (["--listen", "h:1"], "listeners", "PLAINTEXT://h:1"),
    ],
)  # fmt: skip
def test_each_option_is_a_setting_of_its_own(
    usual: dict[str, str], arguments: list[str], name: str, value: str
) -> None:
    options = given(*arguments)
    assert options.settings == {**usual, name: value}
    assert options.origins == {name: arguments[0]}


def test_login_of_the_console_comes_from_a_file(usual: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "console.properties"
    path.write_text("bootstrap.servers=kafka:9092\nsasl.username=console\nsasl.password=s=e cret\n")
    path.chmod(0o600)
    login = {"console.sasl.username": "console", "console.sasl.password": "s=e cret"}
    assert given("--console-client-config", str(path)).settings == {**usual, **login}
    path.write_text("sasl.mechanism=PLAIN\nsasl.username=console\n")
    with pytest.raises(SettingError, match=r"console.properties: sasl\.password is missing"):
        given("--console-client-config", str(path))
    path.chmod(0o644)
    with pytest.raises(SettingError, match="others may read"):
        given("--console-client-config", str(path))


def test_without_a_file_groups_start_at_once_on_the_users_data(usual: dict[str, str]) -> None:
    assert usual == {**dict.fromkeys(NO_FILE, "0"), "log.dirs": "/state/barnabas"}
    assert "log.dirs" not in given("--ephemeral").settings


def test_a_state_directory_is_in_the_home_unless_one_is_named(set_environment: Callable[..., None]) -> None:
    set_environment(XDG_STATE_HOME=None)
    set_environment(HOME="/home/ann")
    assert given().settings["log.dirs"] == "/home/ann/.local/state/barnabas"


def test_a_console_plots_what_it_can_read(usual: dict[str, str]) -> None:
    options = given("--console", ":8080")
    implied = {"metrics.listener": "127.0.0.1:0", "telemetry.enable": "false"}
    assert options.settings == {**usual, "console.listener": ":8080", **implied}
    assert options.origins["metrics.listener"] == "--console"
    asked = given("--console", ":8080", "--metrics", ":9404").settings
    assert asked["metrics.listener"] == ":9404"
    assert "telemetry.enable" not in asked
    asked = given("--console", ":8080", "--set", "telemetry.enable=true").settings
    assert asked["telemetry.enable"] == "true"


@pytest.mark.parametrize(
    ("arguments", "url", "has_login"),
    [
        ([], "https://a:8081", True),
        (["--console-registry", "https://a:8081/path"], "https://a:8081/path", True),
        (["--console-registry", "https://b:8081"], "https://b:8081", False),
        (["--set", "console.registry.url=https://b:8081"], "https://b:8081", False),
        (["--set", "console.registry.basic.auth.user.info=ann:x", "--console-registry", "https://b"], "https://b", True),
    ],
)  # fmt: skip
def test_login_of_a_file_is_sent_to_that_files_registry_alone(
    tmp_path: Path, arguments: list[str], url: str, has_login: bool
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "console.registry.url=https://a:8081\nconsole.registry.basic.auth.user.info=ann:x\nnode.id=1\n"
    )
    options = given("--config", str(file), *arguments)
    assert options.settings["console.registry.url"] == url
    assert ("console.registry.basic.auth.user.info" in options.settings) == has_login
    assert ("console.registry.basic.auth.user.info" in options.origins) == has_login
    assert options.settings["node.id"] == "1"


def test_a_token_of_the_console_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\nmore\n")
    file.chmod(0o600)
    options = given("--console-token-file", str(file))
    assert options.settings["console.token"] == "secret"
    assert options.origins["console.token"] == "--console-token-file"
    file.write_text("\n")
    with pytest.raises(SettingError, match="--console-token-file"):
        given("--console-token-file", str(file))
    with pytest.raises(SettingError, match=f"--console-token-file .*{tmp_path}/none"):
        given("--console-token-file", str(tmp_path / "none"))


def test_what_is_said_last_counts_and_the_file_is_behind_all(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("broker.rack=file\nbroker.id=1\nlog.dirs=relative\nauto.create.topics.enable=false\n")
    demo = {"broker.rack": "demo", "auto.create.topics.enable": "true"}
    options = given("--config", str(file), "--set", "broker.rack=set", "--broker-id", "2", demo=demo)
    settings, origins = options.settings, options.origins
    assert not NO_FILE & settings.keys(), "a file is taken as it is"
    assert (settings["broker.rack"], origins["broker.rack"]) == ("set", "--set")
    assert (settings["broker.id"], origins["broker.id"]) == ("2", "--broker-id")
    assert settings["auto.create.topics.enable"] == "true"
    assert origins["auto.create.topics.enable"] == "--demo-security"
    assert settings["log.dirs"] == str(Path("relative").absolute())
    assert origins["log.dirs"] == f"{file}:3"


@pytest.mark.parametrize(
    ("settings", "dirs", "origin"),
    [
        (["log.dir=/a"], "/a", "--set"),
        (["log.dirs=/a , /b,,"], "/a,/b", "--set"),
        (["log.dir=/a", "log.dirs=/b"], "/b", "--set"),
    ],
)
def test_log_dirs_are_those_of_either_setting(settings: list[str], dirs: str, origin: str) -> None:
    options = given(*(word for setting in settings for word in ("--set", setting)))
    assert (options.settings["log.dirs"], options.origins["log.dirs"]) == (dirs, origin)


@pytest.mark.parametrize(
    ("option", "value", "setting"),
    [
        ("--listen", "127.0.0.1:9092", "listeners=SASL_SSL://127.0.0.1:9092"),
        ("--advertise", "PLAINTEXT://a:1", "advertised.listeners=PLAINTEXT://b:1"),
        ("--data", "/d", "log.dirs=/a"),
        ("--metrics", ":1", "metrics.listener=:2"),
        ("--zookeeper", "a:1", "zookeeper.connect=b:1"),
        ("--broker-id", "1", "broker.id=2"),
        ("--rack", "a", "broker.rack=b"),
        ("--as-version", "3.9", "kafka.version=4.0"),
        ("--control", ":1", "control.listener=:2"),
        ("--registry", ":1", "registry.listener=:2"),
        ("--http", ":1", "http.listener=:2"),
        ("--console", ":1", "console.listener=:2"),
        ("--console-registry", "https://a:8081", "console.registry.url=https://b:8081"),
        ("--faults", "/a", "faults.file=/b"),
        ("--fault-seed", "1", "faults.seed=2"),
    ],
)
def test_option_and_setting_that_differ_are_refused(option: str, value: str, setting: str) -> None:
    name = setting.partition("=")[0]
    with pytest.raises(
        SettingError, match=rf"^{option} sets {name}=.*, and --set {setting}: give one of them$"
    ):
        given(option, value, "--set", setting)


def test_option_and_setting_that_agree_are_accepted() -> None:
    assert given("--rack", "a", "--set", "broker.rack=a").settings["broker.rack"] == "a"


def test_other_commands_take_a_file_a_data_dir_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("broker.rack=file\nbroker.id=1\n")
    shared = collect_shared(str(file), ["broker.id=2"])
    assert shared.settings == {"broker.rack": "file", "broker.id": "2"}
    assert shared.origins == {"broker.rack": f"{file}:1", "broker.id": "--set"}
    assert collect_shared(None, []).settings == {}
    stored = collect_stored(str(file), "/d", ["broker.id=2"])
    assert stored.settings == {"broker.rack": "file", "broker.id": "2", "log.dirs": "/d"}


@pytest.mark.parametrize(
    ("listen", "advertise", "advertised"),
    [
        (["a://:1", "b://:2"], ["b://h:2"], "b://h:2"),
        (["A://:1", ":2"], ["h:3"], "PLAINTEXT://h:3"),
        (["A://:1"], ["h:3"], "A://h:3"),
        (["A://:1"], ["B://h:3"], "B://h:3"),
    ],
)
def test_unnamed_advertised_address_is_the_unnamed_listeners(
    listen: list[str], advertise: list[str], advertised: str
) -> None:
    words = [word for address in listen for word in ("--listen", address)]
    words += [word for address in advertise for word in ("--advertise", address)]
    assert given(*words).settings["advertised.listeners"] == advertised


def test_a_listener_gets_a_protocol_only_where_its_name_is_one() -> None:
    name = "listener.security.protocol.map"
    assert name not in given("--listen", ":1").settings
    assert given("--listen", "IN-SIDE_1://:1").settings[name].endswith(",IN-SIDE_1:PLAINTEXT")
    assert name not in given("--listen", "IN SIDE://:1").settings, "who parses the address says what is wrong"
    both = given("--listen", "B://:1", "--listen", "A://:2", "--set", f"{name}=A:SSL").settings[name]
    assert both == "A:SSL,B:PLAINTEXT"


@pytest.mark.parametrize(
    ("directories", "workers", "is_clustered", "reason"),
    [
        ([], 1, True, None),
        ([], 2, True, "a cluster of their own"),
        ([], 2, False, None),
        (["worker-1", "worker-2"], 2, False, None),
        (["worker-1", "worker-2"], 3, False, None),
        (["worker-1", "worker-2"], 1, False, "data of 2 workers: start with --workers 2"),
        (["worker-2"], 1, False, None),
        (["meta.properties"], 1, False, None),
        (["meta.properties"], 2, False, "data of one broker"),
        (["meta.properties", "worker-1"], 2, False, None),
    ],
)
def test_workers_take_only_directories_of_as_many(
    tmp_path: Path, directories: list[str], workers: int, is_clustered: bool, reason: str | None
) -> None:
    for directory in directories:
        (tmp_path / directory).mkdir()
    if reason is None:
        check_workers([str(tmp_path)], workers, is_clustered=is_clustered)
    else:
        with pytest.raises(SettingError, match=reason):
            check_workers(["/none", str(tmp_path)], workers, is_clustered=is_clustered)
