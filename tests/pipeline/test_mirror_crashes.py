"""A mirror that is killed anywhere, paused and overtaken, or told to end: each record is there once."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from barnabas_pipeline import cli, faults
from barnabas_pipeline.jobs.mirror.copying import copy_parts
from barnabas_pipeline.jobs.mirror.model import Part, PartResult, Place
from barnabas_pipeline.log.model import READ_COMMITTED, LogOptions
from barnabas_pipeline.log.transports import open_log
from tests.support import pages
from tests.support.pages import Shell, network

from .conftest import ROOT, Broker
from .mirroring import (
    assert_mirrored,
    commit,
    committed,
    create,
    high_watermark,
    records,
    send,
    values_from,
    wait_until,
)
from .test_faults import run_cli

POINTS = [name for name in faults.POINTS if name.startswith("mirror.")]
WORKER_POINTS = {name for name in POINTS if faults.POINTS[name].startswith("worker")}
PORTION = 60
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}/server{os.pathsep}{ROOT}/pipeline"}
SPARK = ["--master", "local[2, 4]", "--conf", "spark.driver.memory=512m"]


@pytest.fixture
def pair(new_broker: Callable[..., Broker], tmp_path: Path) -> tuple[Broker, Broker]:
    """A source and a target."""
    return new_broker(data=tmp_path / "source"), new_broker(data=tmp_path / "target")


def test_a_mirror_that_dies_anywhere_has_each_record_once(
    tmp_path: Path, pair: tuple[Broker, Broker]
) -> None:
    source, target = pair
    once = tmp_path / "once"
    once.mkdir()
    arguments = ["mirror", "--topic", "t[0-9]", "--bootstrap", source.bootstrap, "--json", *SPARK]
    arguments += ["--to-bootstrap", target.bootstrap, "--groups", "g"]
    create(source.bootstrap, "t0", 2)
    for n, name in enumerate(POINTS):
        send(source.bootstrap, "t0", range(n * PORTION, (n + 1) * PORTION), 2)
        commit(source.bootstrap, "g", "t0", high_watermark(source.bootstrap, "t0") - 5)
        done = run_cli(*arguments, fault=name, once=once)
        assert (once / name).exists(), f"{name} was not reached:\n{done.stderr[-2000:]}"
        expected = 0 if name in WORKER_POINTS else -signal.SIGKILL
        assert done.returncode == expected, f"{name}:\n{done.stderr[-2000:]}"
    done = run_cli(*arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    assert assert_mirrored(source.bootstrap, "t0", target.bootstrap) == len(POINTS) * PORTION
    there = committed(target.bootstrap, "g", "t0")[0]
    position = committed(source.bootstrap, "g", "t0")[0]
    assert values_from(target.bootstrap, "t0", there) == values_from(source.bootstrap, "t0", position)


# --- zombies --------------------------------------------------------------------------------------------------------

ZOMBIE = """
import pickle, sys
from barnabas_pipeline.jobs.mirror.copying import copy_parts
part = pickle.loads(bytes.fromhex(sys.argv[1]))
(result,) = copy_parts([part])
print(result.failure and result.failure.text)
"""


def part_of(source: str, target: str, topic: str) -> Part:
    """The part that a driver would plan."""
    read = open_log(LogOptions(topic, "wire", source))
    write = open_log(LogOptions(topic, "wire", target))
    try:
        identity, there = read.identity(), write.identity()
        place = Place(identity.cluster_id, identity.topic_id, 0, topic, there.topic_id)
        options = [LogOptions(topic, "wire", host, isolation=READ_COMMITTED) for host in (source, target)]
        return Part(place, options[0], options[1], read.bounds()[0], there.cluster_id)
    finally:
        read.close()
        write.close()


def start_zombie(part: Part, point: str) -> subprocess.Popen[str]:
    """Start a copy that stops, as by SIGSTOP, where it comes to a point."""
    environment = {**ENVIRONMENT, "BARNABAS_FAULT": point, "BARNABAS_FAULT_SIGNAL": "SIGSTOP"}
    command = [sys.executable, "-c", ZOMBIE, pickle.dumps(part).hex()]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: _is_stopped(process), f"{point} was not reached")
    return process


def _is_stopped(process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None, "the copy has ended"
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def copy(part: Part) -> PartResult:
    (result,) = copy_parts([part])
    return result


@pytest.mark.parametrize("point", [name for name in POINTS if name in WORKER_POINTS])
def test_resumed_zombie_duplicates_no_record(pair: tuple[Broker, Broker], point: str) -> None:
    zombie_doubles_nothing(*(broker.bootstrap for broker in pair), point)


def zombie_doubles_nothing(source: str, target: str, point: str, topic: str = "t") -> None:
    for bootstrap in (source, target):
        create(bootstrap, topic)
    send(source, topic, range(1200))  # more than a block, so that a part is on its way and a part is not
    part = part_of(source, target, topic)
    zombie = start_zombie(part, point)
    try:
        result = copy(part)
        assert result.failure is None
        assert result.mirrored == (0 if point == "mirror.after_commit" else 1200)
        assert assert_mirrored(source, topic, target) == 1200
        os.kill(zombie.pid, signal.SIGCONT)
        while zombie.poll() is None:  # it comes to the same point again, after each block
            if _state(zombie.pid) == "T":
                os.kill(zombie.pid, signal.SIGCONT)
            time.sleep(0.02)
        output = (zombie.stdout.read() if zombie.stdout else "").strip()
        if point == "mirror.after_commit":
            assert output == "None", "it was done, and nobody else has written"
        elif point == "mirror.after_fence":
            assert output == "None", "it has found nothing left to do"
        else:
            assert f"another mirror has taken over {topic}-0" in output
    finally:
        if zombie.poll() is None:
            zombie.kill()
        zombie.wait(20)
        if zombie.stdout:
            zombie.stdout.close()
    assert assert_mirrored(source, topic, target) == 1200
    send(source, topic, range(1200, 1210))
    last = copy(part_of(source, target, topic))
    assert (last.mirrored, last.failure) == (10, None)
    assert assert_mirrored(source, topic, target) == 1210


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


# --- rounds of the command ------------------------------------------------------------------------------------------


def start_cli(log: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "barnabas_pipeline.cli", "mirror", *arguments, *SPARK]
    with log.open("w") as errors:
        return subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_rounds_continue_beside_failures_and_end_by_a_signal(
    tmp_path: Path, pair: tuple[Broker, Broker], number: int
) -> None:
    source, target = pair
    create(source.bootstrap, "good.a")
    create(source.bootstrap, "good.bad", 2)
    create(target.bootstrap, "eu.good.bad", 2)
    send(target.bootstrap, "eu.good.bad", range(2), 2)
    send(source.bootstrap, "good.a", range(50))
    send(source.bootstrap, "good.bad", range(50), 2)
    sources = ["--source", f"eu={source.bootstrap}", "--source-client", "eu:client.id=mine"]
    arguments = ["--topic", r"good\..*", *sources, "--to-bootstrap", target.bootstrap]
    arguments += ["--rename", "{source}.{topic}", "--trigger", "200 milliseconds"]
    process = start_cli(tmp_path / "log", *arguments, *(["--json"] if number == signal.SIGTERM else []))
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        create(source.bootstrap, "good.new")
        send(source.bootstrap, "good.new", range(30))
        lines = [first]
        while not any("30" in line for line in lines):
            line = process.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            lines.append(line)
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(60) == 2, "one of the topics has failed"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(20)
        process.stdout.close()
    assert assert_mirrored(source.bootstrap, "good.a", target.bootstrap, "eu.good.a") == 50
    assert assert_mirrored(source.bootstrap, "good.new", target.bootstrap, "eu.good.new") == 30
    if number == signal.SIGTERM:
        rounds = [json.loads(line) for line in lines]
        assert rounds[0]["round"] == 1
        assert rounds[0]["mirrored"] == 50
        assert any("not from a mirror" in failure for failure in rounds[0]["failures"])
        summary = json.loads(rest.splitlines()[-1])
        assert summary["mirrored"] == 80
        assert len(summary["failures"]) == 2, "both partitions"
    else:
        assert first.startswith("round 1: 50 records of 2 topics in ")
        assert "1 made" in first
        assert any("not from a mirror" in line for line in lines)
        assert "mirrored             80" in rest


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--topic", "a"], "give --bootstrap, --source or --log-dir"),
        (
            ["--topic", "a", "--bootstrap", "h:1", "--source", "x=h:1"],
            "give --bootstrap, --source or --log-dir",
        ),
        (["--topic", "(", "--bootstrap", "h:1"], "neither a name nor a regular expression"),
        (["--topic", "a", "--source", "x"], "not NAME=VALUE"),
        (["--topic", "a", "--source", "x=h:1", "--source", "x=h:2"], "have the same name"),
        (["--topic", "a", "--source", "x y=h:1"], "a part of a topic's name"),
        (["--topic", "a", "--source", "x=h:1", "--source-client", "y:a=b"], "with one of x"),
        (
            ["--topic", "a", "--bootstrap", "h:1", "--rename", "{source}.{topic}"],
            "needs a source with a name",
        ),
        (["--topic", "a", "--bootstrap", "h:1", "--trigger", "often"], "a trigger is"),
        (["--topic", "a", "--bootstrap", "h:1", "--groups", "("], "nor a regular expression"),
        (["--topic", "a.*b+", "--log-dir", "/tmp"], "by their names"),
        (["--topic", "a", "--log-dir", "/tmp", "--groups", "g"], "log dirs have no groups"),
    ],
)
def test_wrong_options_fail_before_spark_starts(
    wrong: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["mirror", *wrong, "--to-bootstrap", "h:2"]) == 4
    assert why in capsys.readouterr().err


def test_exit_codes_say_what_the_worst_was(pair: tuple[Broker, Broker]) -> None:
    source, target = pair
    create(source.bootstrap, "a")
    send(source.bootstrap, "a", range(10))
    arguments = [
        "mirror",
        "--bootstrap",
        source.bootstrap,
        "--to-bootstrap",
        target.bootstrap,
        "--json",
        *SPARK,
    ]
    done = run_cli(*arguments, "--topic", "nowhere")
    assert (done.returncode, "there is no topic 'nowhere'" in done.stderr) == (4, True), done.stderr[-2000:]
    done = run_cli(*arguments, "--topic", "a,nowhere")
    assert done.returncode == 2, done.stderr[-2000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["mirrored"], len(summary["failures"])) == (10, 1)
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.delete_topics(["a"])["a"].result(20)
    create(source.bootstrap, "a")
    done = run_cli(*arguments, "--topic", "a")
    assert (done.returncode, "data loss: " in done.stderr) == (3, True), done.stderr[-2000:]


def test_log_dirs_are_mirrored_without_a_broker(tmp_path: Path, pair: tuple[Broker, Broker]) -> None:
    source, target = pair
    create(source.bootstrap, "a", 2)
    send(source.bootstrap, "a", range(100), 2)
    ledger = records(source.bootstrap, "a")
    source.stop()
    done = run_cli(
        "mirror",
        "--topic",
        "a",
        "--log-dir",
        str(source.data),
        "--to-bootstrap",
        target.bootstrap,
        "--json",
        *SPARK,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    copies: dict[int, list[Any]] = records(target.bootstrap, "a")
    for partition, expected in ledger.items():
        assert [(record.key, record.value) for record in copies[partition]] == [
            (record.key, record.value) for record in expected
        ]


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_page_goes_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SECONDS_MAX", 240)  # Spark starts twice
    home, programs = tmp_path / "home", tmp_path / "bin"
    for directory in (home, programs):
        directory.mkdir()
    for name, module in (("barnabas", "barnabas"), ("barnabas-pipeline", "barnabas_pipeline.cli")):
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        path.chmod(0o755)
    environment = {
        "HOME": str(home),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": ENVIRONMENT["PYTHONPATH"],
    }
    with network() as words, Shell(words, tmp_path, environment) as shell:
        shell.follow("docs/how-to/mirror.md")
