"""Our observer beside controllers of Kafka: python -m compat.metadata.observing [--quorum NAME]...

For each quorum (1 or 3 controllers, static or dynamic voters): the observer follows a workload with small snapshots, an
election, its own crash, the loss of its log, and a handover of its directory to Kafka's broker and back. Its records must
be those of the leader's log by kafka-dump-log, its snapshots those that kafka-metadata-shell reads, and its image that of
`barnabas metadata show`, asked of the quorum. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas.cluster.kraft.directory import MetadataLog, read_snapshot
from barnabas.log.disk import OsDisk
from barnabas.log.format.names import CHECKPOINT, LOG
from barnabas.testing.running import import_path
from compat.kafka import release
from compat.kit.certificates import Authority
from compat.kit.wire import Connection
from compat.metadata import dumps, shell, workload
from compat.metadata.quorum import HOST, Node, Quorum

QUORUMS: Mapping[str, tuple[int, bool, Sequence[str]]] = {
    "1-dynamic": (1, True, ()),
    "1-static": (1, False, ()),
    "3-dynamic": (3, True, ()),
    "3-static": (3, False, ()),
    "3-sasl-ssl": (3, True, ("SASL_SSL", "PLAIN")),
    "3-scram": (3, True, ("SASL_SSL", "SCRAM-SHA-512")),
    "1-plain": (1, True, ("SASL_PLAINTEXT", "PLAIN")),
    "3-certificates": (3, True, ("SSL", "PLAIN")),
}
"""Number of controllers, whether their voters are in the log, and protocol and mechanism of their listener."""
OBSERVER_ID = 10
ATTEMPTS = 5
DEADLINE_S = 90
EXPECTED = ("is only supported for testing",)
"""In lines of the log of Kafka's broker: of the size of segments."""
STEP_MS_MAX = 50
PASSWORD = "observer-secret"
SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.log.max.snapshot.interval.ms": "4000",
    "metadata.max.idle.interval.ms": "500",
    "internal.metadata.log.segment.bytes": "20000",
    "broker.session.timeout.ms": "6000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def security(directory: Path, protocol: str, mechanism: str) -> tuple[dict[str, str], dict[str, str]]:
    """Settings of controllers, and of an observer that reaches them by TLS, a login, or both.

    No controller has a credential of SCRAM before it has read the log: controllers log in at each other by PLAIN.
    """
    authority = Authority(directory, "authority")
    prefix = "listener.name.controller"
    common = {
        "listener.security.protocol.map": f"CONTROLLER:{protocol},ADMIN:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"{prefix}.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="node" password="{PASSWORD}" user_node="{PASSWORD}";'
        ),
        f"{prefix}.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="node" password="{PASSWORD}";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.signed("node").pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.pem),
    }
    controllers = {
        **common,
        "controller.listener.names": "CONTROLLER,ADMIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"{prefix}.sasl.enabled.mechanisms": ",".join({"PLAIN": 0, mechanism: 0}),
        f"{prefix}.ssl.client.auth": "required" if protocol == "SSL" else "none",
        "super.users": "User:ANONYMOUS;User:node;User:CN=node",
    }
    return controllers, {**common, "sasl.mechanism.controller.protocol": mechanism}


class Observer:
    """Our observer, as the node of a broker."""

    def __init__(self, version: str, directory: Path, settings: Mapping[str, str]) -> None:
        self.node = Node(version, directory, OBSERVER_ID, "broker")
        self.node.configure(settings)
        self.node.format()
        self.status_path = directory / "status.json"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.status_path.unlink(missing_ok=True)
        with (self.node.directory / "observer.out").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "compat.metadata.observer_process",
                    self.node.properties,
                    self.status_path,
                ],
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": import_path(Path(__file__).parents[2])},
            )

    def end(self, number: signal.Signals) -> None:
        """End it by a signal. Raises RuntimeError if it does not end cleanly after SIGTERM."""
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(DEADLINE_S)
        if number is signal.SIGTERM and code:
            raise RuntimeError(f"the observer ended with {code}:\n{self.output()[-3000:]}")

    def output(self) -> str:
        return (self.node.directory / "observer.out").read_text()

    def status(self) -> dict[str, Any]:
        """The last status that it wrote; empty before the first image."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the observer has ended by itself:\n{self.output()[-3000:]}")
        try:
            status: dict[str, Any] = json.loads(self.status_path.read_text())
        except FileNotFoundError:
            return {}
        return status

    def wait_until(self, offset: int, moment: str) -> None:
        """Wait until it has applied an offset. Raises RuntimeError."""
        self.wait_for(lambda status: status.get("offset", -1) >= offset, f"{moment}: not caught up")

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], purpose: str) -> None:
        """Wait until its status meets a condition. Raises RuntimeError."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition(self.status()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{purpose}: {self.status()}\n{self.output()[-3000:]}")
            time.sleep(0.2)


class Run:
    """One quorum with the observer beside it."""

    def __init__(
        self,
        version: str,
        tools: str,
        directory: Path,
        count: int,
        *,
        is_dynamic: bool,
        listener: Sequence[str],
    ) -> None:
        self.tools = tools
        controllers, observer = security(directory / "certificates", *listener) if listener else ({}, {})
        user = ("--add-scram", f"SCRAM-SHA-512=[name=node,password={PASSWORD}]")
        self.quorum = Quorum(
            version, directory, count, is_dynamic=is_dynamic, settings={**SMALL, **controllers},
            has_admin=bool(listener), format_arguments=user if listener else (),
        )  # fmt: skip
        self.observer = Observer(
            version, directory / "observer", {**SMALL, **observer, **self.quorum.settings}
        )

    def lines(self) -> Iterator[str]:
        """Yield a line for each difference."""
        observer = self.observer
        self.quorum.start()
        observer.start()
        self.work()
        yield from self.compare("followed")
        self.settings(40)
        yield from self.compare("snapshots taken")
        if len(self.quorum.nodes) > 1:
            before = self.quorum.leader()
            before.process.kill()
            after = self.quorum.leader(but=before.id)
            observer.wait_for(
                lambda status: status.get("leader") == after.id, "the new leader is not followed"
            )
            self.settings(10)
            yield from self.compare("leader killed")
            before.start()
        observer.end(signal.SIGKILL)
        self.settings(10)
        observer.start()
        yield from self.compare("observer killed")
        observer.end(signal.SIGTERM)
        yield from self.dump("stopped")
        yield from self.snapshots()
        self.settings(10)
        shutil.rmtree(observer.node.metadata_dir)
        observer.start()
        yield from self.compare("log lost: from a snapshot")
        observer.end(signal.SIGTERM)
        if not any(observer.node.metadata_dir.glob(f"*{CHECKPOINT}")):
            yield "log lost: no snapshot was fetched"
        yield from self.dump("log lost")
        yield from self.hand_over()
        longest = (
            observer.status_path.exists() and json.loads(observer.status_path.read_text())["longest_step_ms"]
        )
        print(
            f"longest step of the event loop: {longest} ms (compared by {STEP_MS_MAX} ms only on an idle machine)"
        )

    def stop(self) -> None:
        """End all that still runs."""
        process = self.observer._process
        if process is not None and process.poll() is None:
            process.kill()
        self.observer.node.process.stop()
        self.quorum.stop()

    def leader(self) -> Connection:
        return Connection(HOST, self.quorum.leader().admin_port)

    def work(self) -> None:
        """Make the controller write records of several kinds."""
        with self.leader() as active:
            epoch = workload._register(active)
            workload._heartbeat_until(active, epoch, fenced=False)
            workload._topics(active)
            workload._access(active)

    def settings(self, count: int) -> None:
        """Make the controller write `count` records."""
        with self.leader() as active:
            for number in range(count):
                workload.configure(active, workload.TOPIC, "payments", "retention.ms", str(100_000 + number))

    def offset(self) -> int:
        """The offset up to which the leader's records are those of the last request."""
        show = self.show("--bootstrap-controller", f"{HOST}:{self.quorum.leader().admin_port}")
        return int(show["quorum"]["offset"])

    def show(self, *arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "barnabas", "metadata", "show", "--json", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
            env={**os.environ, "PYTHONPATH": import_path()},
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"barnabas metadata show {' '.join(arguments)} failed:\n{done.stderr}")
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def compare(self, moment: str) -> Iterator[str]:
        """Wait until the observer has all committed records, and compare it with the quorum."""
        for attempt in range(ATTEMPTS):
            live = self.show("--bootstrap-controller", f"{HOST}:{self.quorum.leader().admin_port}")
            offset = int(live["quorum"]["offset"])
            self.observer.wait_until(offset, moment)
            try:
                stored = self.show("--dir", str(self.observer.node.metadata_dir), "--at", str(offset))
                break
            except RuntimeError:  # it has fetched a later snapshot, or removed what was before one
                if attempt == ATTEMPTS - 1:
                    raise
        for section, rows in stored.items():
            is_untold = section == "voters" and not (
                rows and live[section]
            )  # static: by a record that has gone
            if section != "quorum" and live[section] != rows and not is_untold:
                yield f"{moment}: {section}: {live[section]} live, {rows} in the directory"
        status = self.observer.status()
        print(f"{moment}: offset {offset}, {status['topics']} topics, {status['deltas']} deltas", flush=True)

    def dump(self, moment: str) -> Iterator[str]:
        """Compare the records with those of the leader's log, by Kafka's tool."""
        ours = self._records(self.observer.node.metadata_dir)
        theirs = self._records(self.quorum.leader().metadata_dir)
        both = sorted(set(ours) & set(theirs))
        if not both:
            yield f"{moment}: no record is in both logs"
        for offset in both:
            if ours[offset] != theirs[offset]:
                yield f"{moment}: offset {offset}: {theirs[offset]} there, {ours[offset]} here"
        print(f"{moment}: {len(both)} records as in the leader's log", flush=True)

    def _records(self, directory: Path) -> dict[int, dumps.Shown]:
        files = sorted(directory.glob(f"*{LOG}"))
        return {
            record.offset: record
            for records in dumps.kafka_dump(self.tools, files).values()
            for record in records
        }

    def snapshots(self) -> Iterator[str]:
        """Compare each snapshot in the observer's directory with what Kafka's shell reads of it."""
        paths = sorted(self.observer.node.metadata_dir.glob(f"*{CHECKPOINT}"))
        if not paths:
            yield "no snapshot was written"
        for path in paths[-2:]:
            image = read_snapshot(OsDisk(read_only=True), str(path)).image
            if not shell.can_read(self.tools, image):
                print(
                    f"{path.name}: the shell of {self.tools} does not read metadata.version {image.metadata_version}"
                )
                continue
            theirs, ours = shell.shell_tree(self.tools, path), shell.image_tree(image)
            for name in sorted({*theirs, *ours}):
                if theirs.get(name) != ours.get(name):
                    yield f"{path.name}: {name}: {theirs.get(name)!r} there, {ours.get(name)!r} here"
            print(f"{path.name}: {len(theirs)} leaves of the shell's tree", flush=True)

    def hand_over(self) -> Iterator[str]:
        """Have Kafka's broker take over the directory, and take it back."""
        node = self.observer.node
        before = MetadataLog(OsDisk(read_only=True), str(node.metadata_dir))
        before.begin()
        for _ in before.steps():
            pass
        offset = before.state.position.offset
        node.start()
        self.settings(5)
        time.sleep(3)
        output = node.process.output.read_text()
        node.process.stop()
        complaints = [
            line
            for line in output.splitlines()
            if ("ERROR" in line or "WARN" in line) and not any(text in line for text in EXPECTED)
        ]
        yield from (f"Kafka's broker complains: {line}" for line in complaints)
        after = self._records(node.metadata_dir)
        print(f"Kafka's broker took over at offset {offset}, and left it at {max(after)}", flush=True)
        if max(after) <= offset:
            yield f"Kafka's broker appended nothing after offset {offset}"
        yield from self.dump("handed over")
        self.observer.start()
        yield from self.compare("taken back")
        self.observer.end(signal.SIGTERM)
        yield from self.dump("taken back")
        for line in self.observer.output().splitlines():
            if " ERROR " in line or "Traceback" in line:
                yield f"the observer says: {line}"


def main() -> int:
    """Run the comparison; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", default="4.3.1", help="which Kafka (default: 4.3.1)")
    parser.add_argument(
        "--tools", default="", help="whose tools read, if that release has none on Maven Central"
    )
    parser.add_argument("--quorum", action="append", choices=[*QUORUMS], help="only this one")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave the directories there")
    options = parser.parse_args()
    directory = options.keep or Path(tempfile.mkdtemp(prefix="compat-observing-"))
    lines: list[str] = []
    try:
        for name in options.quorum or QUORUMS:
            count, is_dynamic, listener = QUORUMS[name]
            print(f"quorum {name} of Kafka {release(options.version).version}", flush=True)
            tools = options.tools or options.version
            run = Run(
                options.version, tools, directory / name, count, is_dynamic=is_dynamic, listener=listener
            )
            try:
                for line in run.lines():
                    lines.append(f"{name}: {line}")
                    print(lines[-1][:2000], flush=True)
            finally:
                run.stop()
    finally:
        if options.keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"{len(lines)} differences")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
