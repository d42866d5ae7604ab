"""What `barnabas serve` says about settings that are wrong, before it starts anything."""

import pytest

from barnabas.cli import SET_OPTION, USAGE_ERROR, main
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


def test_a_slip_in_an_option_is_an_error_and_one_in_a_file_a_warning(tmp_path, capsys):
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
