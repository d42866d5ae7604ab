"""python -m compat.matrix: the stock clients against a fresh broker.

Each client has a broker of its own, and so has each suite of cases that only one client has (compat/matrix/suites.py);
then all clients write to one broker and read what the others wrote (`interop`). Ends with 1 when a case fails that
compat/matrix/known.py does not list, or passes though it is listed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from compat.clients.shared.python.harness import CASES
from compat.kafka import KafkaError
from compat.kit.certificates import CertificateError
from compat.kit.ending import rows_in_threads
from compat.matrix import clients, history, secured
from compat.matrix.brokers import (
    NOTHING_ELSE,
    ApacheKafka,
    Barnabas,
    Broker,
    BrokerError,
    Given,
    RestartService,
)
from compat.matrix.channels import CHANNELS
from compat.matrix.clients import Verdict, Verdicts
from compat.matrix.clusters import ZooKeeperCluster
from compat.matrix.known import WITHOUT_HEADERS
from compat.matrix.report import Matrix
from compat.matrix.suites import SUITES

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / ".tools" / "compat"
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
SECURED_PAGE = PAGE.with_name("compatibility-security.md")
INTEROP_RECORDS_MAX = 1000
SAID_LINES = 60
"""So many lines of a client that has failed are printed, for readers of nothing but the output."""
CASE_TIMEOUT_S = os.environ.get("COMPAT_CASE_TIMEOUT_S", "300")
PRODUCE = tuple(case for case in CASES if case.startswith("produce-"))


def arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line. Ends the process with 2 for an unknown name."""
    parser = argparse.ArgumentParser(
        prog="python -m compat.matrix", description="Stock clients against a broker."
    )
    parser.add_argument("--clients", default="", metavar="A,B", help="only these (default: all)")
    parser.add_argument("--cases", default="", metavar="A,B", help="only these (default: all)")
    parser.add_argument(
        "--records", type=int, default=0, metavar="N",
        help=f"records per topic (10000, with --as-version {history.RECORDS})",
    )  # fmt: skip
    parser.add_argument(
        "--against", default="barnabas", metavar="barnabas|barnabas-VERSION|kafka|kafka-VERSION|HOST:PORT"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="clients at the same time")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--list", action="store_true", help="only say which clients and cases there are")
    parser.add_argument(
        "--as-version", default="", metavar="all|A,B",
        help="against brokers that are these releases of Kafka; `--write` writes the table, with what earlier runs found",
    )  # fmt: skip
    parser.add_argument(
        "--missing",
        action="store_true",
        help="with --as-version: only clients that earlier runs have not tried, or that failed",
    )
    parser.add_argument("--security", action="store_true", help="each client in each protocol and mechanism")
    parser.add_argument(
        "--channels", default="", metavar="A,B", help="with --security only these (default: all)"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE",
        help="with --security: what passed is kept there, and not run again (so the whole can be run in pieces)",
    )
    options = parser.parse_args(argv)
    options.records = options.records or (history.RECORDS if options.as_version else 10_000)
    options.told = {}
    options.channels = _chosen(parser, "channel", options.channels, CHANNELS)
    if options.security:
        return _with_security(parser, options)
    if options.as_version:
        return _with_releases(parser, options)
    chosen = _chosen(parser, "client", options.clients, [*clients.names(), *SUITES])
    options.cases = _chosen(parser, "case", options.cases, CASES)
    options.clients = [name for name in chosen if name not in SUITES]
    # Single cases of the matrix do not include those of a suite, unless the suite is named, too.
    options.suites = [
        name for name in chosen if name in SUITES and (options.cases == list(CASES) or not options.clients)
    ]
    if not re.fullmatch(r"(barnabas|kafka)(-.+)?|.+:\d+", options.against):
        parser.error(
            f"no such broker: {options.against}; there are barnabas, barnabas-2.8, kafka, kafka-3.9, ..., "
            "HOST:PORT"
        )
    everything = (clients.names(), list(SUITES), list(CASES), "barnabas")
    if options.write and (options.clients, options.suites, options.cases, options.against) != everything:
        parser.error("--write needs all clients and all cases against barnabas")
    if options.records < 100:
        parser.error("--records must be at least 100")
    return options


def _with_security(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    """Return the choice of clients and cases for --security."""
    if not re.fullmatch(r"(barnabas|kafka)(-.+)?", options.against):
        parser.error("--security starts the broker: --against barnabas or kafka")
    is_all = options.keep or (not options.clients and options.channels == list(CHANNELS))
    is_all = is_all and not options.cases
    if options.write and (not is_all or options.against != "barnabas"):
        parser.error("--write needs all clients, cases and channels against barnabas")
    options.clients = _chosen(parser, "client", options.clients, clients.names())
    options.cases = _chosen(parser, "case", options.cases, CASES) if options.cases else list(secured.CASES)
    options.suites = []
    return options


def _with_releases(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    """Return the choice of clients and cases with brokers of old releases."""
    if options.against != "barnabas":
        parser.error("--as-version starts the brokers")
    try:
        options.as_version = history.chosen(options.as_version)
    except ValueError as error:
        parser.error(str(error))
    options.clients = _chosen(parser, "client", options.clients, clients.names())
    options.cases = _chosen(parser, "case", options.cases, CASES) if options.cases else list(history.CASES)
    options.suites = []
    return options


def _chosen(parser: argparse.ArgumentParser, what: str, text: str, all_: Iterable[str]) -> list[str]:
    names = list(all_)
    chosen = [name for name in text.split(",") if name]
    for name in chosen:
        if name not in names:
            parser.error(f"no such {what}: {name}; there are {', '.join(names)}")
    return [name for name in names if name in chosen] if chosen else names


class Run:
    """One run of the matrix."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self.matrix = Matrix(excuses=options.against == "barnabas")

    @property
    def is_given(self) -> bool:
        """Return whether all clients use one broker, which cannot be restarted or set."""
        return ":" in self.options.against

    def broker(self, name: str, settings: Mapping[str, str] = NOTHING_ELSE) -> Broker:
        """Return a new broker with a separate directory, or the given one."""
        if self.is_given:
            return Given(self.options.against)
        directory = self.directory / name
        directory.mkdir()
        kind, _, version = self.options.against.partition("-")
        if kind == "barnabas":
            return Barnabas(directory, {**settings, "kafka.version": version} if version else settings)
        return ApacheKafka(directory, version or "4.x", settings)

    def cluster(self, name: str, settings: Mapping[str, str]) -> Broker:
        """Return three new brokers on ZooKeeper; a single broker if the one under test does not support it."""
        has_zookeeper = self.options.against in ("barnabas", "kafka-3.9")
        if not has_zookeeper:
            return self.broker(name, settings)
        directory = self.directory / name
        directory.mkdir()
        return ZooKeeperCluster(directory, ours=self.options.against == "barnabas", settings=settings)

    def all(self) -> Matrix:
        """Each client by itself, then all together."""
        alone = [case for case in self.options.cases if case != "interop"]
        with rows_in_threads(self.options.jobs) as pool:
            suites = pool.map(self.suite, self.options.suites)
            rows = pool.map(lambda client: self.alone(client, alone), self.options.clients)
            self.matrix.rows.update(zip(self.options.clients, rows, strict=True))
            self.matrix.suites.update(zip(self.options.suites, suites, strict=True))
        if "interop" in self.options.cases:
            # Clients wait most of the time here: for the end of a fetch, topic after topic.
            with rows_in_threads(self.options.jobs * 3) as pool:
                self.together(pool)
        return self.matrix

    def alone(self, client: str, cases: list[str]) -> Verdicts:
        """One client's cases with a broker that no other client uses."""
        return self._run(client, clients.program(client), cases, self.broker(client)) if cases else {}

    def suite(self, name: str) -> Verdicts:
        """A suite's cases, with a broker that is set as they need it."""
        suite = SUITES[name]
        broker = (self.cluster if suite.zookeeper else self.broker)(name, suite.settings)
        return self._run(name, suite.program, suite.cases, broker)

    def _run(self, name: str, path: Path, cases: Sequence[str], broker: Broker) -> Verdicts:
        start = time.monotonic()

        def program() -> Verdicts:
            if self.is_given:
                environment = self.environment(self.options.records)
                return clients.run(path, broker.bootstrap, cases, environment, self.log(name))
            with RestartService(broker, self.directory / name) as command:
                environment = self.environment(
                    self.options.records, COMPAT_RESTART=command, **broker.environment(), **self.options.told
                )
                return clients.run(path, broker.bootstrap, cases, environment, self.log(name))

        verdicts = self._with(broker, cases, program)
        counts = [
            f"{status} {sum(verdict.status == status for verdict in verdicts.values())}"
            for status in ("PASS", "FAIL", "SKIP")
        ]
        print(f"{name}: {', '.join(counts)} ({time.monotonic() - start:.0f} s)", flush=True)
        return verdicts

    def _with(self, broker: Broker, cases: Iterable[str], program: Callable[[], Verdicts]) -> Verdicts:
        """Run a program with a running broker; the broker's behaviour is one more verdict."""
        try:
            broker.start()
        except (BrokerError, KafkaError) as error:
            return dict.fromkeys(cases, Verdict("FAIL", f"the broker: {error}"))
        verdicts: Verdicts = {}
        try:
            verdicts = program()
        finally:
            try:
                broker.stop()
                complaints = broker.complaints()
                note = (
                    f"{len(complaints)} errors in its log, the first: {complaints[0]}" if complaints else ""
                )
            except BrokerError as error:
                note = str(error)
        verdicts["broker"] = Verdict("FAIL" if note else "PASS", note)
        return verdicts

    @staticmethod
    def environment(records: int, **more: str) -> dict[str, str]:
        """Return the environment of clients, with longer timeouts than their defaults, as many may run at once."""
        return {"COMPAT_CASE_TIMEOUT_S": CASE_TIMEOUT_S, "COMPAT_RECORDS": str(records), **more}

    def log(self, client: str) -> Path:
        """The file that keeps a client's standard error after the run."""
        return LOGS / f"{client}.err"

    # --- interop ------------------------------------------------------------------------------------------------

    def together(self, pool: ThreadPoolExecutor) -> None:
        """Let all clients write with all codecs to one broker, and read the others' topics with supported codecs."""
        broker = self.broker("interop")
        records = min(self.options.records, INTEROP_RECORDS_MAX)

        def program() -> Verdicts:
            def write(client: str) -> Verdicts:
                environment = self.environment(records)
                program = clients.program(client)
                return clients.run(program, broker.bootstrap, PRODUCE, environment, self.log(client))

            written = dict(zip(self.options.clients, pool.map(write, self.options.clients), strict=True))
            topics = _produced_topics(broker.bootstrap)

            def read(client: str) -> Verdict:
                for case, verdict in written[client].items():
                    if verdict.status == "FAIL":
                        return Verdict("FAIL", f"with the others: {case}: {verdict.detail}")
                codecs = [case for case in PRODUCE if written[client][case].status == "PASS"]
                readable = [
                    f"{topics[writer, case]}:{records}:{'plain' if writer in WITHOUT_HEADERS else 'headers'}"
                    for writer in self.options.clients
                    for case in codecs
                    if writer != client and written[writer][case].status == "PASS"
                ]
                if not codecs:  # it has not been set up
                    return next(iter(written[client].values()))
                if not readable:
                    return Verdict("SKIP", "no other client wrote anything")
                environment = self.environment(records, COMPAT_TOPICS=",".join(readable))
                program = clients.program(client)
                read = clients.run(program, broker.bootstrap, ["interop"], environment, self.log(client))
                return read["interop"]

            return dict(zip(self.options.clients, pool.map(read, self.options.clients), strict=True))

        verdicts = self._with(broker, self.options.clients, program)
        own = verdicts.pop("broker", None)
        for client, verdict in verdicts.items():
            self.matrix.rows[client]["interop"] = verdict
        if own is not None and own.status == "FAIL":
            self.matrix.rows["interop"] = {"broker": own}


def _produced_topics(bootstrap: str) -> dict[tuple[str, str], str]:
    """Topics by the client and the produce case that made them; their names end with a number."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    topics = admin.list_topics()
    admin.close()
    return {
        (client, case): topic
        for topic in topics
        for client in clients.names()
        for case in PRODUCE
        if topic.startswith(f"compat-{client}-{case}-")
    }


def _secured(options: argparse.Namespace) -> int:
    """Run the clients in each channel; returns the exit code."""
    request = secured.Wanted(
        options.clients,
        options.channels,
        options.cases,
        min(options.records, secured.RECORDS),
        options.jobs,
        options.against,
        options.keep,
    )
    start = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="compat-") as directory:
            outcomes = secured.run(request, Path(directory), lambda client: LOGS / f"{client}.err")
    except (BrokerError, CertificateError, KafkaError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"\nagainst {options.against}, {time.monotonic() - start:.0f} s\n")
    print(outcomes.text(), flush=True)
    missing = outcomes.lacks(clients.names())
    if options.write and missing:
        print(f"not written: {len(missing)} are still to be run, the first {' '.join(missing[0])}")
        return 1
    if options.write:
        SECURED_PAGE.write_text(outcomes.page(request.cases), encoding="utf-8")
    _print_what_was_said(outcomes.failures())
    return 1 if outcomes.failures() else 0


def _print_what_was_said(failures: Iterable[tuple[str, str, Verdict]]) -> None:
    """Print the last lines that each client in `failures` wrote to its standard error."""
    for client in dict.fromkeys(client for client, _, _ in failures):
        path = LOGS / f"{client}.err"
        if path.exists():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            print(f"\nthe end of what {client} said:", *lines[-SAID_LINES:], sep="\n    ")


def _releases(options: argparse.Namespace) -> int:
    """Run the clients against brokers of the chosen releases; returns the exit code.

    The results of a client are stored immediately, so that a run can be stopped and resumed.
    """
    results = history.History()
    names: list[str] = options.as_version
    for name in names:
        options.against = f"barnabas-{name}"
        options.told = history.environment(name)
        missing = {
            client: [case for case in history.expected(client, name) if case in options.cases]
            for client in options.clients
            if not (options.missing and results.has(name, client))
        }
        with tempfile.TemporaryDirectory(prefix="compat-") as directory:
            run = Run(options, Path(directory))

            def one(client: str, run: Run = run, cases: Mapping[str, list[str]] = missing) -> Verdicts:
                return run.alone(client, cases[client])

            with rows_in_threads(options.jobs) as pool:
                started = {pool.submit(one, client): client for client, cases in missing.items() if cases}
                for done in as_completed(started):
                    results.add(name, {started[done]: done.result()})
        print(f"{name}: done", flush=True)
    print(f"\n{results.text(names)}\n", *results.failures(names), sep="\n", flush=True)
    if options.write:
        history.PAGE.write_text(results.markdown(options.records), encoding="utf-8")
    return 1 if results.failures(names) else 0


def main(argv: list[str]) -> int:
    """Run; returns the exit code."""
    options = arguments(argv)
    if options.list:
        print("clients:", *options.clients, "\ncases:", *options.cases)
        for name in options.suites:
            print(f"{name}:", *SUITES[name].cases)
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    for client in (*options.clients, *options.suites):
        (LOGS / f"{client}.err").write_bytes(b"")
    start = time.monotonic()
    if options.security:
        return _secured(options)
    if options.as_version:
        return _releases(options)
    with tempfile.TemporaryDirectory(prefix="compat-") as directory:
        matrix = Run(options, Path(directory)).all()
    print(f"\nagainst {options.against}, {options.records} records, {time.monotonic() - start:.0f} s\n")
    print(matrix.text(), flush=True)
    if options.write:
        PAGE.write_text(matrix.markdown(options.records), encoding="utf-8")
    failures, recovered = len(matrix.unexpected()), len(matrix.recovered())
    if failures:
        _print_what_was_said(matrix.unexpected())
        print(f"\n{failures} unexpected failures; what the clients said is in {os.path.relpath(LOGS)}/")
    return 1 if failures or recovered else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
