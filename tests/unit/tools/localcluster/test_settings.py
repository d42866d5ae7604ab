"""Brokers on one machine: settings that they share, options of the command, ports, and how a group of processes ends."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

import pytest
import trio

from barnabas.config.setting import SettingError
from barnabas.ending import DONE
from barnabas.tools.localcluster.children import ChildError
from barnabas.tools.localcluster.command import _directory, check_settings, parser
from barnabas.tools.localcluster.process_group import ProcessGroup
from barnabas.tools.localcluster.workers import _moved, _ports_used
from barnabas.tools.localcluster.zookeeper import PORTS, free_port, is_free


@pytest.mark.parametrize("text", ["1", "100"])
def test_a_cluster_has_up_to_a_hundred_brokers(text):
    assert parser().parse_args(["--brokers", text]).brokers == int(text)


@pytest.mark.parametrize(
    "pair", ["broker.id=1", "node.id=1", "log.dirs=/x", "listeners=PLAINTEXT://:1", "zookeeper.connect=x"]
)
def test_what_each_broker_has_of_its_own_cannot_be_set_for_all(pair):
    with pytest.raises(SettingError, match="each broker has its own"):
        check_settings(None, ["num.partitions=3", pair])


def test_in_a_file_it_has_no_effect_which_is_said(tmp_path, capsys):
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nnum.partitions=3\nlog.dirs=/x\n")
    check_settings(str(file), ["log.retention.ms=5"])
    output = capsys.readouterr().err
    assert "each broker has its own value of these settings" in output
    assert "broker.id" in output
    assert "log.dirs" in output
    assert "num.partitions" not in output
    check_settings(None, ["num.partitions=3"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "pair", ["num.partitionz=3", "num.partitions=0", "remote.log.storage.system.enable=true"]
)
def test_settings_that_prevent_a_start_are_refused_at_once(pair):
    with pytest.raises(SettingError, match=pair.partition("=")[0]):
        check_settings(None, [pair])


def test_data_lies_in_given_directory_or_the_users_state(tmp_path, set_environment):
    set_environment(XDG_STATE_HOME=str(tmp_path / "state"))
    with _directory(parser().parse_args(["--dir", str(tmp_path / "a" / "b")])) as result:
        assert result == tmp_path / "a" / "b"
        assert result.is_dir()
    with _directory(parser().parse_args([])) as result:
        assert result == tmp_path / "state" / "barnabas-cluster"
    set_environment(XDG_STATE_HOME=None)
    set_environment(HOME=str(tmp_path / "home"))
    with _directory(parser().parse_args([])) as result:
        assert result == tmp_path / "home" / ".local" / "state" / "barnabas-cluster"
    with _directory(parser().parse_args(["--ephemeral"])) as result:
        assert result.is_dir()
    assert not result.exists()
    (tmp_path / "file").touch()
    with (
        pytest.raises(ChildError, match="file"),
        _directory(parser().parse_args(["--dir", str(tmp_path / "file" / "x")])),
    ):
        pass


# --- ports ----------------------------------------------------------------------------------------------------------


def test_workers_have_ports_one_after_the_other_or_free_ones():
    assert _ports_used(("A://h:5", "B://[::1]:0", "C://:7")) == [5, 7]
    assert _moved("A://h:9092", 0) == "A://h:9092"
    assert _moved("A://[::1]:9092", 3) == "A://[::1]:9095"
    host, _, port = _moved("A://h:0", 2).rpartition(":")
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
