"""Brokers on one machine: settings that they share, options of the command, ports, and how a group of processes ends."""

from __future__ import annotations

import argparse
import os
import signal
import socket
from typing import Any

import pytest
import trio

from barnabas.config.setting import SettingError
from barnabas.ending import DONE, FAILED
from barnabas.tools.localcluster.children import ChildError
from barnabas.tools.localcluster.command import (
    check_settings,
    directory_of,
    is_on_zookeeper,
    made,
    main,
    parser,
)
from barnabas.tools.localcluster.ports import PORTS, free_port, is_free
from barnabas.tools.localcluster.process_group import ProcessGroup
from barnabas.tools.localcluster.quorum import Node, controller_ids, prepare, settings_of_node
from barnabas.tools.localcluster.workers import moved, ports_used


@pytest.mark.parametrize("text", ["1", "100"])
def test_a_cluster_has_up_to_a_hundred_brokers(text):
    assert parser().parse_args(["--brokers", text]).brokers == int(text)


@pytest.mark.parametrize(
    "pair", ["broker.id=1", "node.id=1", "log.dirs=/x", "listeners=PLAINTEXT://:1", "zookeeper.connect=x"]
)
@pytest.mark.parametrize("on_zookeeper", [False, True])
def test_what_each_broker_has_of_its_own_cannot_be_set_for_all(pair, on_zookeeper):
    with pytest.raises(SettingError, match="each broker has its own"):
        check_settings(None, ["num.partitions=3", pair], on_zookeeper=on_zookeeper)


@pytest.mark.parametrize(
    "pair", ["process.roles=broker", "controller.quorum.voters=1@h:1", "metadata.log.dir=/x"]
)
def test_place_in_the_quorum_cannot_be_set_for_all(pair):
    with pytest.raises(SettingError, match="each broker has its own"):
        check_settings(None, [pair], on_zookeeper=False)


def test_in_a_file_it_has_no_effect_which_is_said(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nnum.partitions=3\nlog.dirs=/x\n")
    shared = check_settings(str(file), ["log.retention.ms=5"], on_zookeeper=False)
    assert shared == {"num.partitions": "3", "log.retention.ms": "5"}
    output = capsys.readouterr().err
    assert "each broker has its own value of these settings" in output
    assert "broker.id" in output
    assert "log.dirs" in output
    assert "num.partitions" not in output
    check_settings(None, ["num.partitions=3"], on_zookeeper=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "pair", ["num.partitionz=3", "num.partitions=0", "remote.log.storage.system.enable=true"]
)
@pytest.mark.parametrize("on_zookeeper", [False, True])
def test_settings_that_prevent_a_start_are_refused_at_once(pair, on_zookeeper):
    with pytest.raises(SettingError, match=pair.partition("=")[0]):
        check_settings(None, [pair], on_zookeeper=on_zookeeper)


# --- directories ----------------------------------------------------------------------------------------------------


def asked(*options: str) -> argparse.Namespace:
    return parser().parse_args(options)


def test_data_lies_in_given_directory_or_the_users_state(tmp_path, set_environment):
    set_environment(XDG_STATE_HOME=str(tmp_path / "state"))
    assert directory_of(asked("--dir", str(tmp_path / "a"))) == tmp_path / "a"
    assert directory_of(asked()) == tmp_path / "state" / "barnabas-cluster"
    set_environment(XDG_STATE_HOME=None)
    set_environment(HOME=str(tmp_path / "home"))
    assert directory_of(asked()) == tmp_path / "home" / ".local" / "state" / "barnabas-cluster"
    with made(tmp_path / "a" / "b") as result:
        assert result == tmp_path / "a" / "b"
        assert result.is_dir()
    with made(None) as result:
        assert result.is_dir()
    assert not result.exists()
    (tmp_path / "file").touch()
    with pytest.raises(ChildError, match="file"), made(tmp_path / "file" / "x"):
        pass


@pytest.mark.parametrize(
    "options",
    [["--zookeeper"], ["--zookeeper", "h:1"], ["--apache-zookeeper"], ["--zookeeper-jars=/j"], ["--fetch"]],
)
def test_zookeeper_is_used_where_it_is_asked_for(tmp_path, options):
    assert is_on_zookeeper(asked(*options), tmp_path)
    assert is_on_zookeeper(asked(*options), None)
    assert not is_on_zookeeper(asked(), tmp_path)
    assert not is_on_zookeeper(asked(), None)
    with pytest.raises(SettingError, match="--controllers"):
        is_on_zookeeper(asked(*options, "--controllers", "1"), tmp_path)
    prepare(tmp_path, [1, 2, 3])
    with pytest.raises(SettingError, match="has controllers of its own"):
        is_on_zookeeper(asked(*options), tmp_path)


def test_old_directory_on_zookeeper_starts_so_again(tmp_path, capsys):
    (tmp_path / "zookeeper").mkdir()
    assert is_on_zookeeper(asked(), tmp_path)
    assert "is on ZooKeeper since its first start" in capsys.readouterr().out
    with pytest.raises(SettingError, match="--controllers"):
        is_on_zookeeper(asked("--controllers", "3"), tmp_path)


def test_old_directory_on_a_named_zookeeper_wants_its_name(tmp_path):
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "meta.properties").touch()
    with pytest.raises(SettingError, match="name it again"):
        is_on_zookeeper(asked(), tmp_path)
    assert is_on_zookeeper(asked("--zookeeper", "h:1"), tmp_path)


@pytest.mark.parametrize(
    ("first", "options", "refusal"),
    [
        ((3, None), (), None),
        ((3, None), ("--brokers", "4"), None),
        ((3, None), ("--brokers", "2"), "--brokers 2"),
        ((3, None), ("--controllers", "3"), "--controllers 3"),
        ((2, None), ("--brokers", "1"), None),
        ((3, 2), ("--brokers", "1"), None),
        ((3, 2), ("--controllers", "2"), None),
        ((3, 2), ("--controllers", "3"), "has 2 since"),
    ],
)
def test_controllers_are_those_of_the_first_start(tmp_path, first, options, refusal):
    prepare(tmp_path, controller_ids(*first))
    if refusal is None:
        assert not is_on_zookeeper(asked(*options), tmp_path)
    else:
        with pytest.raises(SettingError, match=refusal):
            is_on_zookeeper(asked(*options), tmp_path)


def test_a_damaged_file_of_the_cluster_ends_the_start(tmp_path, capsys):
    (tmp_path / "cluster.properties").write_text("cluster.id=x\n")
    assert main(["--dir", str(tmp_path)]) == FAILED
    assert "cluster.properties cannot be read" in capsys.readouterr().err


def test_a_port_that_another_process_has_taken_is_replaced(tmp_path):
    before = prepare(tmp_path, [1, 2, 3])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", before.ports[2]))
        listener.listen()
        after = prepare(tmp_path, [1, 2, 3])
    assert after.ports[2] != before.ports[2]
    assert {**after.ports, 2: before.ports[2]} == before.ports
    assert prepare(tmp_path, [1, 2, 3]) == after


def test_a_port_that_a_broker_will_have_is_replaced(tmp_path):
    before = prepare(tmp_path, [1])
    after = prepare(tmp_path, [1], taken=[before.ports[1]])
    assert after.ports[1] != before.ports[1]
    assert after.cluster_id == before.cluster_id


def test_protocols_of_a_file_get_that_of_controllers(tmp_path):
    quorum, node = prepare(tmp_path, [1, 2, 3]), Node(1, (str(tmp_path),), ("PLAINTEXT://localhost:1",))
    name = "listener.security.protocol.map"
    for protocols, expected in (
        ("PLAINTEXT:PLAINTEXT", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"),
        ("CONTROLLER:SASL_PLAINTEXT", "CONTROLLER:SASL_PLAINTEXT"),
    ):
        assert settings_of_node(quorum, node, {name: protocols})[name] == expected
    assert name not in settings_of_node(quorum, node, {})


# --- ports ----------------------------------------------------------------------------------------------------------


def test_workers_have_ports_one_after_the_other_or_free_ones():
    assert ports_used(("A://h:5", "B://[::1]:0", "C://:7")) == [5, 7]
    assert moved("A://h:9092", 0) == "A://h:9092"
    assert moved("A://[::1]:9092", 3) == "A://[::1]:9095"
    host, _, port = moved("A://h:0", 2).rpartition(":")
    assert host == "A://h"
    assert int(port) in range(*PORTS)


def test_a_port_is_free_where_nobody_listens():
    port = free_port()
    assert port in range(*PORTS)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        assert not is_free(taken)
    assert is_free(taken)


# --- groups of processes --------------------------------------------------------------------------------------------


class Group(ProcessGroup):
    """A group of one process that is none; `act` is what happens once it has started."""

    def __init__(self, act: Any = None, *, error: Exception | None = None) -> None:
        super().__init__()
        self.act, self.error = act, error
        self.steps: list[Any] = []
        self.waits_for_kill = False
        self.killed = trio.Event()

    async def start(self, nursery: trio.Nursery) -> None:
        self.steps.append("start")
        if self.error is not None:
            raise self.error
        if self.act is not None:
            nursery.start_soon(self.act, self)

    async def stop(self) -> None:
        self.steps.append(("stop", self.is_stopping))
        if self.waits_for_kill:
            os.kill(os.getpid(), signal.SIGTERM)
            await self.killed.wait()
            self.steps.append("stopped")

    def children(self) -> Any:
        return [self]

    def signal(self, number: int) -> None:
        self.steps.append(("killed", number))
        self.killed.set()

    def say_stopping(self, name: str, *, at_once: bool) -> None:
        self.steps.append((name, at_once))


async def signals(_: Group) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def test_another_signal_kills_what_is_still_there():
    group = Group(signals)
    group.waits_for_kill = True
    with trio.fail_after(5):
        assert await group.run() == DONE
    assert group.steps == [
        "start", ("SIGTERM", False), ("stop", True), ("SIGTERM", True), ("killed", signal.SIGKILL), "stopped",
    ]  # fmt: skip
