"""`barnabas serve` names wrong settings before it starts anything."""

import argparse
import re
from pathlib import Path

import pytest

import barnabas
from barnabas.broker.serve_options import SET_OPTION, collect
from barnabas.cli import USAGE_ERROR, main
from barnabas.cli.options import add_serve
from barnabas.config.loading import BrokerConfig


def said(capsys, *arguments):
    assert main(["serve", *arguments]) == USAGE_ERROR
    return capsys.readouterr().err.splitlines()


def test_a_bad_value_in_a_file_is_named_with_its_line(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("# a comment\nnum.partitions=1\nlog.cleanup.policy=\\\n  compact,shred\n")
    assert said(capsys, "--config", str(file)) == [
        f"barnabas: {file}:3: log.cleanup.policy=compact,shred: some of compact, delete expected"
    ]


def test_the_last_of_several_lines_counts(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=0\nnum.partitions=-1\n")
    (line,) = said(capsys, "--config", str(file))
    assert f"{file}:2: num.partitions=-1" in line


def test_a_broken_file_is_named_with_its_line(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("a=1\nb=\\u00zz\n")
    (line,) = said(capsys, "--config", str(file))
    assert f"{file}: line 2" in line


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    (line,) = said(capsys, "--config", f"{tmp_path}/none")
    assert line == f"barnabas: --config {tmp_path}/none: No such file or directory"


def test_an_option_goes_before_the_file(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=0\n")
    (line,) = said(capsys, "--config", str(file), "--set", "num.partitions=x")
    assert line == f"barnabas: {SET_OPTION}: num.partitions=x: a whole number from 1 on expected"


def test_slip_in_an_option_is_an_error_and_in_a_file_a_warning(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("log.retention.hour=3\nrsm.config.bucket=b\n")
    assert said(capsys, "--config", str(file), "--set", "num.partition=3") == [
        f"barnabas: {file}:1: unknown setting 'log.retention.hour'; did you mean log.retention.hours?",
        f"barnabas: {SET_OPTION}: unknown setting 'num.partition'; did you mean num.partitions?",
    ]


@pytest.mark.parametrize(
    ("controllers", "opened"),
    [(None, ("PLAINTEXT://:9092", "CONTROLLER://:9093")), ("controller", ("PLAINTEXT://:9092",))],
)
def test_listeners_of_controllers_are_not_opened(controllers, opened):
    settings = {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}
    if controllers:
        settings["controller.listener.names"] = controllers
    assert BrokerConfig(settings).listeners() == opened


@pytest.mark.parametrize("arguments", [("--metrics", "nowhere"), ("--set", "metrics.listener=nowhere")])
def test_a_wrong_address_for_metrics_is_explained(tmp_path, capsys, arguments):
    assert main(["serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "barnabas: metrics.listener=nowhere is not of the form HOST:PORT"


def test_a_file_that_is_not_utf8_is_named_with_line_and_byte(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_bytes(b"num.partitions=1\nbroker.rack=Caf\xe9\n")
    (line,) = said(capsys, "--config", str(file))
    assert line.startswith(f"barnabas: {file}:2: byte 0xe9 in column 16 is not UTF-8")


@pytest.mark.parametrize("option", ["--data", "--config", "--metrics"])
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_option_is_refused(capsys, option, text):
    (line,) = said(capsys, option, text)
    assert line.startswith(f"barnabas: {option} is empty; ")


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_an_empty_list_of_log_dirs_is_refused(capsys, name):
    (line,) = said(capsys, "--set", f"{name}=")
    assert line == f"barnabas: --set: {name} is empty; name a directory, or leave the setting out"


def given(*arguments):
    """The settings of a command line."""
    parser = argparse.ArgumentParser()
    add_serve(parser.add_subparsers())
    return collect(parser.parse_args(["serve", *arguments])).settings


def test_a_security_protocol_as_a_name_is_not_made_plaintext():
    settings = given("--listen", "SSL://127.0.0.1:0")
    assert BrokerConfig(settings).listener_security_protocols()["SSL"] == "SSL"


@pytest.mark.parametrize(
    ("arguments", "advertised"),
    [
        (("--advertise", "outside:39092"), "PLAINTEXT://outside:39092"),
        (("--listen", "IN://127.0.0.1:0", "--advertise", "outside:39092"), "IN://outside:39092"),
        (
            ("--listen", ":9092", "--listen", "OUT://:9094", "--advertise", "broker:9092", "--advertise", "OUT://h:39094"),
            "PLAINTEXT://broker:9092,OUT://h:39094",
        ),
        (
            ("--set", "listeners=OUT://:9092,C://:9093", "--set", "controller.listener.names=C", "--advertise", "h:1"),
            "OUT://h:1",
        ),
    ],
)  # fmt: skip
def test_advertise_is_a_short_form(arguments, advertised):
    assert given(*arguments)["advertised.listeners"] == advertised


def test_advertise_asks_for_a_name_where_there_are_several(capsys):
    (line,) = said(capsys, "--listen", "A://:1", "--listen", "B://:2", "--advertise", "h:1")
    assert "NAME://HOST:PORT; the listeners are A, B" in line


def test_every_option_of_serve_is_read_somewhere() -> None:
    commands = argparse.ArgumentParser().add_subparsers()
    add_serve(commands)
    declared = set(vars(commands.choices["serve"].parse_args([]))) - {"run"}
    (package,) = barnabas.__path__
    read = {
        name
        for path in Path(package).rglob("*.py")
        if "generated" not in path.parts
        for name in re.findall(r"\boptions\.(\w+)", path.read_text())
    }
    assert declared - read == set()
