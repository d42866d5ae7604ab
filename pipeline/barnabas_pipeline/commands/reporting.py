"""Progress of a load while it runs: bars for people, lines of JSON for programs, a structured log.

The rule: bars, lines for people and the log go to standard error; lines of JSON to standard output, before the summary.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO, TypeAlias, cast

if TYPE_CHECKING:
    import argparse

    from rich.progress import TaskID

    from barnabas_pipeline.commands.arguments import ReportingArguments
    from barnabas_pipeline.data_types import Json
    from barnabas_pipeline.errors import PipelineError
    from barnabas_pipeline.jobs.loading import Commit, LoadRound, Watcher

AUTO, JSON, NONE, TEXT = "auto", "json", "none", "text"
LOGGER = "barnabas_pipeline.load"
BARS_MAX = 8  # bars of topics, beside that of all: the topics with the greatest lag
Event: TypeAlias = "dict[str, Json]"


def add_reporting(parser: argparse.ArgumentParser) -> None:
    """Add the options of progress and log."""
    group = parser.add_argument_group("progress")
    group.add_argument(
        "--progress",
        choices=(AUTO, JSON, NONE),
        default=AUTO,
        help="auto: bars on a terminal, else a line for each round of a continuous load; json: a line of JSON for each "
        "commit and round",
    )
    group.add_argument(
        "--log-format",
        choices=(TEXT, JSON),
        help="log events to standard error in this format; default: no log",
    )


def watchers(args: ReportingArguments, stack: ExitStack, *, is_bounded: bool) -> list[Watcher]:
    """Return the reporters of a load that the options select."""
    reporters: list[Events | Bars] = []
    if args.progress == JSON:
        reporters.append(Events(lambda event: print(json.dumps(event, default=str), flush=True)))
    elif args.progress == AUTO and sys.stderr.isatty():
        reporters.append(stack.enter_context(Bars(sys.stderr)))
    elif args.progress == AUTO and not is_bounded:
        reporters.append(Events(lines_to(sys.stderr)))
    if args.log_format:
        log = begin_log(sys.stderr, is_json=args.log_format == JSON)
        reporters.append(Events(log))
    return cast("list[Watcher]", reporters)


class Events:
    """Watcher that passes the events of a load to a function, as plain values."""

    def __init__(self, say: Callable[[Event], None]) -> None:
        self._say = say

    def _tell(self, event: str, **facts: Json) -> None:
        self._say({"event": event, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts})

    def joined(self, topic: str) -> None:
        """Report that a topic was added to the load."""
        self._tell("joined", topic=topic)

    def failed(self, topic: str, error: PipelineError, *, is_over: bool) -> None:
        """Report a topic's failure."""
        self._tell("failed", topic=topic, error=str(error), exit_code=error.exit_code, left_out=is_over)

    def recovered(self, topic: str) -> None:
        """Report that a failed topic is loaded again."""
        self._tell("recovered", topic=topic)

    def committed(self, commit: Commit) -> None:
        """Report a commit."""
        counts = commit.summary
        self._tell(
            "commit",
            topic=commit.topic,
            version=commit.version,
            offsets={str(partition): list(span) for partition, span in commit.offsets.items()},
            rows=counts.loaded,
            dead=counts.dead,
            reasons=counts.reasons,
            files=counts.files,
            bytes_read=counts.bytes_read,
            seconds=round(commit.seconds, 3),
            lag=commit.behind,
        )

    def ended(self, done: LoadRound) -> None:
        """Report a round with commits."""
        if not done.commits:
            return
        self._tell(
            "round",
            round=done.number,
            topics=done.topics,
            commits=len(done.commits),
            rows=sum(commit.summary.loaded for commit in done.commits),
            dead=sum(commit.summary.dead for commit in done.commits),
            lag=done.behind,
            failing=done.failures,
            seconds=round(done.seconds, 3),
            steps={name: round(seconds, 3) for name, seconds in done.steps.items()},
        )


# --- for people -----------------------------------------------------------------------------------------------------


def text_of(event: Event) -> str:
    """Return an event as a line for people."""
    what, topic = event["event"], event.get("topic")
    if what == "commit":
        dead = f", {event['dead']:,} dead letters" if event["dead"] else ""
        return f"{topic}: version {event['version']}, {event['rows']:,} rows{dead}, {event['lag']:,} behind"
    if what == "round":
        text = f"round {event['round']}: {event['rows']:,} rows of {event['commits']} of {event['topics']} topics in "
        more = {"dead letters": event["dead"], "behind": event["lag"], "topics failing": event["failing"]}
        return f"{text}{event['seconds']:.1f} s" + "".join(
            f", {count:,} {name}" for name, count in more.items() if count
        )
    if what == "failed":
        return f"{topic}: {'left out' if event['left_out'] else 'tried again'}: {event['error']}"
    return f"{topic}: {what}"


def lines_to(file: TextIO) -> Callable[[Event], None]:
    """Return a function that prints each event except commits as a line."""

    def say(event: Event) -> None:
        if event["event"] != "commit":
            print(text_of(event), file=file, flush=True)

    return say


class Bars:
    """A progress bar for all topics, and some for the topics with the greatest lag; failures are printed above them."""

    def __init__(self, file: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(show_speed=True),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(file=file))
        self._all = self._progress.add_task("load", total=None, lag=0, text="")
        self._bars: dict[str, TaskID] = {}
        self._done: dict[str, int] = {}

    def __enter__(self) -> Bars:
        """Draw the bars."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bars on the screen."""
        self._progress.stop()

    def joined(self, topic: str) -> None:
        """Do nothing: a bar is drawn after the first commit."""

    def failed(self, topic: str, error: PipelineError, *, is_over: bool) -> None:
        """Print the failure above the bars."""
        event = {"event": "failed", "topic": topic, "left_out": is_over, "error": error}
        self._progress.console.print(text_of(event), markup=False, highlight=False)

    def recovered(self, topic: str) -> None:
        """Print the recovery above the bars."""
        self._progress.console.print(f"{topic}: recovered", markup=False, highlight=False)

    def committed(self, commit: Commit) -> None:
        """Move the topic's bar."""
        topic, done = commit.topic, self._done.get(commit.topic, 0) + commit.count
        self._done[topic] = done
        if topic not in self._bars and commit.behind:
            if len(self._bars) == BARS_MAX:
                self._drop_least()
            self._bars[topic] = self._progress.add_task(topic, total=None, lag=0, text="")
        if topic in self._bars:
            self._move(self._bars[topic], done, commit.behind)

    def ended(self, done: LoadRound) -> None:
        """Move the bar of all topics."""
        self._move(self._all, done.offsets, done.behind)

    def _move(self, bar: TaskID, done: int, behind: int) -> None:
        text = f"{done:,} offsets, {behind:,} behind"
        self._progress.update(bar, completed=done, total=done + behind, lag=behind, text=text)

    def _drop_least(self) -> None:
        lag = {
            topic: self._progress.tasks[self._index(bar)].fields["lag"] for topic, bar in self._bars.items()
        }
        self._progress.remove_task(self._bars.pop(min(lag, key=lambda topic: lag[topic])))

    def _index(self, bar: TaskID) -> int:
        return [task.id for task in self._progress.tasks].index(bar)


# --- the log --------------------------------------------------------------------------------------------------------


class JsonFormatter(logging.Formatter):
    """Formatter of a line of JSON for each record, with the fields of its event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        event: Mapping[str, Json] = getattr(record, "event", {})
        fields: Event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields | {key: value for key, value in event.items() if key != "time"}, default=str)


def begin_log(file: TextIO, *, is_json: bool) -> Callable[[Event], None]:
    """Log to a file: the load from INFO on, other loggers from WARNING on. Returns the function that logs an event."""
    handler = logging.StreamHandler(file)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonFormatter() if is_json else text)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)

    def say(event: Event) -> None:
        level = logging.WARNING if event["event"] == "failed" else logging.INFO
        logger.log(level, "%s", text_of(event), extra={"event": event})

    return say
