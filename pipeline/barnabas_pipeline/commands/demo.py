"""demo: a run of all jobs, from a broker to an HTML page with the results.

The rule: the demo only runs other commands, which a user could run one by one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from barnabas_pipeline import charts
from barnabas_pipeline.commands import common, lake, pages, stores
from barnabas_pipeline.commands import load as loading
from barnabas_pipeline.commands import simulate as simulating
from barnabas_pipeline.commands.arguments import AuditArguments, LakeArguments, LoadArguments
from barnabas_pipeline.errors import EXIT_DONE, IncompleteError
from barnabas_pipeline.formats.registry import Registry
from barnabas_pipeline.progress import Bar
from barnabas_pipeline.simulate.model import HOUR_MS, KINDS, LATE_HOURS_MAX, Simulation, Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas_pipeline.commands.arguments import DemoArguments
    from barnabas_pipeline.data_types import Row
    from barnabas_pipeline.jobs.derived import Derived, DerivedJob

A = TypeVar("A")
BOOTSTRAP, REGISTRY = "bootstrap.servers", "registry"
SPAN_MS = 600_000
STOP_SECONDS_MAX = 20


def add_demo(parser: argparse.ArgumentParser) -> None:
    """Add the options of demo."""
    parser.add_argument(
        "--out",
        default="pipeline-demo",
        metavar="DIR",
        help="directory of the page, the lake and the results",
    )
    parser.add_argument("--events", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bad", type=float, default=0.01, metavar="FRACTION")
    parser.add_argument("--format", choices=("json", "avro"), default="json", help="format of the events")
    parser.add_argument(
        "--store",
        choices=("local", "s3"),
        default="local",
        help="s3: start moto's server, which keeps objects in memory",
    )
    common.add_spark(parser)


def run_demo(args: DemoArguments) -> int:
    """Run the demo, and print the location of the page. Returns the exit code."""
    out = Path(args.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=out))
    with ExitStack() as stack:
        store = (
            stack.enter_context(stores.open_s3(work))
            if args.store == "s3"
            else ["--lake", str(work / "lake")]
        )
        broker = stack.enter_context(running_broker(work / "broker"))
        page = Demo(args, work, broker, store).run()
    target = out / "report.html"
    target.write_text(page, encoding="utf-8")
    print(f"report: {target}")
    return EXIT_DONE


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker of this machine: its process, and the addresses of broker and registry."""

    pid: int
    bootstrap: str
    registry: str


@contextmanager
def running_broker(data: Path) -> Iterator[RunningBroker]:
    """Run Barnabas with its registry on free ports of this machine; yields the broker. Raises IncompleteError."""
    command = [sys.executable, "-m", "barnabas", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    process = subprocess.Popen([*command, "--registry", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        places = dict(pair.split("=", 1) for pair in process.stdout.readline().split() if "=" in pair)
        if BOOTSTRAP not in places:
            raise IncompleteError("the broker did not start")
        yield RunningBroker(process.pid, places[BOOTSTRAP], places[REGISTRY])
    finally:
        process.terminate()
        process.wait(STOP_SECONDS_MAX)
        process.stdout.close()


class Demo:
    """A run of the demo: each step adds a section to the page."""

    def __init__(self, args: DemoArguments, work: Path, broker: RunningBroker, store: list[str]) -> None:
        """`store` are the options that name the lake."""
        self.args = args
        self.bootstrap, self.registry = broker.bootstrap, broker.registry
        self.words = ["--bootstrap", self.bootstrap, *store]
        if args.format != "json":
            self.words += ["--format", args.format, "--registry", self.registry, "--event-time", "ts"]
        self.where, self.results = store[1], f"{store[1].rpartition('/')[0]}/results"
        self.lake = common.lake(self.parsed(common.add_lake, LakeArguments, *store))
        self.live = work / "load.html"
        now = int(time.time() * 1000)
        site = Site(seed=args.seed, events=args.events)
        span = int((site.hours + LATE_HOURS_MAX) * HOUR_MS)
        start = (now - span) // HOUR_MS * HOUR_MS - HOUR_MS
        self.simulation = Simulation(Site(seed=args.seed, events=args.events, start_ms=start))
        self.facts: dict[str, object] = {}
        self.sections: list[tuple[str, str]] = []
        self._session: SparkSession | None = None

    def run(self) -> str:
        """Run all steps, in order; returns the page."""
        began = time.monotonic()
        self.simulate()
        self._session = common.spark_session(self.args, "demo")
        for step in (
            self.load,
            self.audit,
            self.rank,
            self.security,
            self.monitor,
            self.visitors,
            self.feed,
            self.report,
        ):
            print(f"{step.__name__} ...", file=sys.stderr)
            step()
        lead = (
            f"A simulated site (seed {self.args.seed}) sends events as {self.args.format} to a broker; Spark loads them "
            "into a lake, audits the lake against the log, and makes results that are scored against the simulation's "
            f"truth. The tables are in {self.where}, CSV and Parquet of each day in {self.results}/report."
        )
        self.facts["from broker to this page"] = f"{time.monotonic() - began:.0f} s"
        return charts.page("Barnabas pipeline", lead, self.facts, self.sections)

    @property
    def spark(self) -> SparkSession:
        """The Spark session of all jobs, which begins after the simulation."""
        assert self._session is not None
        return self._session

    def simulate(self) -> None:
        """Send all events, some of them spoilt."""
        from barnabas_pipeline.simulate import produce

        events = self.simulation.events()
        produce.create_topics(self.bootstrap, KINDS, 3, {})
        bar = Bar("simulate")
        self.spoilt = produce.send(
            self.bootstrap,
            events,
            values=simulating.values_of(self.args, "", Registry(self.registry)),
            bad_fraction=self.args.bad,
            seed=self.args.seed,
            config={"compression.type": "lz4"},
            progress=lambda done: bar(done, len(events)),
        )
        spans: dict[str, Counter[int]] = {kind: Counter() for kind in KINDS}
        for event in events:
            spans[event.kind][event.ts // SPAN_MS * SPAN_MS] += 1
        series = {kind: sorted(span.items()) for kind, span in spans.items()}
        self.facts["events sent"] = len(events)
        plot = charts.lines(series, "Events sent, by kind (UTC)", unit="events in ten minutes")
        self.sections.append(("The stream", plot))

    @staticmethod
    def parsed(add: Callable[[argparse.ArgumentParser], None], kind: type[A], *words: str) -> A:
        """Read options as a command does."""
        parser = common.Parser()
        add(parser)
        return parser.parse_args(words, kind())

    def load(self) -> None:
        """Load all topics, in rounds."""
        from barnabas_pipeline.jobs.loading import Load

        args = self.parsed(loading.add_load, LoadArguments, "--topic", ",".join(KINDS), *self.words)
        portion = max(self.args.events // 8, 1)
        load = Load(lambda: self.spark, loading.chosen_topics(args), offsets_max=portion)
        page = pages.Page(self.live, load, self.where)
        load.watchers.append(page)
        print(f"live: {self.live}", file=sys.stderr)
        summary = load.run()
        page.end()
        rows = [{"topic": kind, **asdict(stream.summary)} for kind, stream in sorted(load.streams.items())]
        self.facts["rows in the lake"] = summary.loaded
        is_expected = summary.reasons == self.spoilt
        expected = "all of them expected" if is_expected else "NOT as expected"
        self.facts[f"dead letters, {expected}"] = summary.dead
        caption = "Dead letters by reason (records); each was spoilt on purpose"
        verdict = "every one of them" if is_expected else f"not as sent: {dict(self.spoilt)}"
        html = (
            charts.table(rows, ["topic", "commits", "loaded", "dead", "files", "bytes_read"])
            + dict(page.sections())["Behind"]
            + charts.across({name: float(count) for name, count in sorted(summary.reasons.items())}, caption)
        )
        self.sections.append(("Load", f"{html}<p>Bad records found: {verdict}.</p>"))

    def audit(self) -> None:
        """Compare lake and log, and seal hours."""
        from barnabas_pipeline.jobs.audit import audit, raise_if_lossy

        rows: list[Row] = []
        for kind in KINDS:
            now = int(time.time() * 1000)
            options = lake.load_options(
                self.parsed(lake.add_audit, AuditArguments, "--topic", kind, *self.words)
            )
            report = audit(self.spark, options, now_ms=now, lateness_ms=0)
            raise_if_lossy(report)
            rows.append(
                {
                    "topic": kind, "offsets": report.offsets, "loaded": report.loaded, "dead": report.dead,
                    "rows_compared": report.rows_compared, "problems": len(report.problems),
                    "hours_sealed": len(report.sealed),
                }
            )  # fmt: skip
        self.facts["problems found by the audit"] = sum(row["problems"] for row in rows)
        text = "Each offset of the log is a row or a dead letter, and each row is what the log says; then hours are sealed."
        self.sections.append(("Audit", charts.note(text) + charts.table(rows)))

    def derive(self, job: DerivedJob) -> Derived:
        """Update one result."""
        from barnabas_pipeline.jobs.derived import Derived

        derived = Derived(job, lake=self.lake, root=self.results)
        derived.update(self.spark)
        return derived

    def rank(self) -> None:
        """Rank the items, and compare the ranking with their true quality."""
        from barnabas_pipeline.jobs import rank

        rows = sorted(self.derive(rank.Rank()).result("rank").to_pylist(), key=lambda row: row["position"])
        quality = self.simulation.truth.quality
        points = [(quality[row["item"]], row["score"]) for row in rows if row["views"] >= 20]
        plot = charts.scatter(
            points, "Score of items by their true quality", x_name="true quality", y_name="score"
        )
        scored = charts.table([rank.score(rows, quality)])
        top = charts.table(
            rows[:10], ["position", "item", "views", "clicks", "votes_up", "votes_down", "score"]
        )
        text = "Items by clicks per view and votes; how well that finds the quality which the simulation gave them:"
        self.sections.append(("Rank", charts.note(text) + scored + plot + top))

    def security(self) -> None:
        """Update the verdicts, and compare them with the simulation's guilty members."""
        from barnabas_pipeline.jobs import security

        verdicts = self.derive(security.Security()).result("verdicts").to_pylist()
        truth = self.simulation.truth
        scores = [
            {"kind": kind, **security.score(verdicts, kind, guilty)}
            for kind, guilty in (("crawler", truth.crawlers), ("spam", truth.spammers))
        ]
        rows = charts.table(verdicts, ["kind", "subject", "minutes", "worst"])
        text = "Verdicts on members and addresses, and how many of the guilty they are:"
        self.sections.append(("Security", charts.note(text) + charts.table(scores) + rows))

    def monitor(self) -> None:
        """Roll up the metrics, and mark the alerts."""
        from barnabas_pipeline.jobs import monitor

        derived = self.derive(monitor.Monitor(window_ms=60_000))
        alerts = derived.result("alerts").to_pylist()
        series: dict[str, list[tuple[float, float]]] = {}
        for row in derived.result("rollups").sort_by("window_start").to_pylist():
            if row["metric"] == "latency_ms":
                series.setdefault(row["service"], []).append((row["window_start"], row["mean"]))
        bands = [(row["start"], row["end"]) for row in alerts]
        caption = "Mean latency of the services (UTC); alerts are shaded"
        plot = charts.lines(series, caption, unit="ms", bands=bands)
        shown = [{**row, **{name: _clock(row[name]) for name in ("start", "end")}} for row in alerts]
        scored = charts.table([monitor.score(alerts, self.simulation.truth.incidents)])
        self.sections.append(("Monitor", plot + scored + charts.table(shown)))

    def visitors(self) -> None:
        """Count views and visitors of profiles, partition by partition."""
        from barnabas_pipeline.jobs.visitors import Visitors

        rows = self.derive(Visitors()).result("visitors").to_pylist()
        rows.sort(key=lambda row: (-row["visitors"], row["member"]))
        text = f"{len(rows):,} members whose profiles others looked at; those at whom most did:"
        table = charts.table(rows[:8], ["member", "visitors", "views"])
        self.sections.append(("Visitors", charts.note(text) + table))

    def feed(self) -> None:
        """Derive the feeds, and show an example."""
        from barnabas_pipeline.jobs.feed import Feed

        rows = self.derive(Feed(self.simulation.truth.follows)).result("feed").to_pylist()
        members = Counter(row["member"] for row in rows)
        shown = [row for row in rows if rows and row["member"] == rows[0]["member"]]
        text = f"<p>{len(members):,} feeds with {len(rows):,} entries; that of {rows[0]['member'] if rows else ''}:</p>"
        shown.sort(key=lambda row: row["place"])
        self.sections.append(("Feed", text + charts.table(shown[:8], ["place", "item", "voter"])))

    def report(self) -> None:
        """Write the tables of each day, from sealed hours."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from barnabas_pipeline.jobs.report import report
        from barnabas_pipeline.lake import store
        from barnabas_pipeline.lake.iceberg import store_properties
        from barnabas_pipeline.lake.ledger import hour_name, hour_number

        out = store.location_of(f"{self.results}/report")
        files = store.StoreIO(store_properties(self.lake))

        def rows_of(name: str) -> list[Row]:
            return pq.read_table(pa.BufferReader(store.read(files, f"{out}/{name}.parquet"))).to_pylist()

        site = self.simulation.site
        hours = range(site.start_ms // HOUR_MS, (site.start_ms + int(site.hours * HOUR_MS)) // HOUR_MS)
        traffic: dict[int, float] = {}
        parts = []
        for day in sorted({hour_name(hour)[:10] for hour in hours}):
            summary = report(self.spark, lake=self.lake, out=out, day=day)
            rows = rows_of(f"{day}/traffic_by_hour")
            traffic |= {hour_number(row["hour"]) * HOUR_MS: float(row["views"]) for row in rows}
            top = rows_of(f"{day}/top_items")
            parts.append(
                f"<p>{day}: {summary.hours} hours, all sealed</p>{charts.table(rows)}{charts.table(top[:5])}"
            )
        plot = charts.bars(traffic, "Page views by hour (UTC)", unit="page views", width_ms=HOUR_MS)
        self.sections.append(("Report", plot + "".join(parts)))


def _clock(timestamp_ms: int) -> str:
    return time.strftime("%H:%M", time.gmtime(timestamp_ms / 1000)) + " UTC"
