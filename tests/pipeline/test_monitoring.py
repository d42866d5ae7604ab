"""The board and the alerts ask for metrics and labels that jobs show."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from barnabas_pipeline.commands import metrics
from barnabas_pipeline.jobs.load import LoadSummary
from barnabas_pipeline.lake.ledger import DataFile
from barnabas_pipeline.lake.task import TaskResult
from barnabas_pipeline.log.model import OffsetRange

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
OF_PROMETHEUS = {"up": {"job", "instance"}}
_NAME = re.compile(r"\b((?:barnabas|process)_[a-z_]+|up(?=\{))(?:\{([^}]*)\})?")
_BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")


class Stream:
    """A topic as the collector of a load sees it, with something in each of its figures."""

    def __init__(self) -> None:
        self.summary = LoadSummary()
        dead = DataFile("path", 1, 1, "", "id", reasons={"json": 1})
        self.summary.add([TaskResult(OffsetRange(0, 0, 1), loaded=1, dead_files=[dead])])
        self.behind, self.committed_at, self.error, self.is_over = {0: 1}, 1.0, ValueError(), True


class Rounds:
    """A load of a topic."""

    def __init__(self) -> None:
        self.streams = {"logins": Stream()}


class Mirror:
    """A mirror that has done nothing."""

    def __init__(self) -> None:
        names = (*metrics.MirrorCollector.COUNTERS, *metrics.MirrorCollector.GAUGES)
        self.summary, self.failures = type("Summary", (), dict.fromkeys(names, 0)), {}


@pytest.fixture(scope="module")
def shown() -> dict[str, set[str]]:
    """The labels of each series, as a scrape has them."""
    collectors = metrics.LoadCollector(Rounds()), metrics.MirrorCollector(Mirror())  # type: ignore[arg-type]
    with ExitStack() as stack, redirect_stderr(StringIO()) as told:
        registry = metrics.serve("127.0.0.1:0", stack, *collectors)
        metrics.seconds_of_rounds(registry, "load").observe(1)
        [url] = re.findall(r"http://\S+", told.getvalue())
        text = urlopen(url, timeout=10).read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.name: {*sample.labels, "job", "instance"} for sample in samples} | OF_PROMETHEUS


def check(expression: str, shown: dict[str, set[str]], texts: str = "") -> None:
    """Check names, labels of selectors, and those that remain for the text."""
    labels: set[str] = set()
    names = _NAME.findall(expression)
    assert names, expression
    for name, selector in names:
        assert name in shown, f"{name} is shown by no job: {expression}"
        labels |= shown[name]
        assert {*re.findall(r"(\w+)=", selector)} <= shown[name], expression
    asked = {label.strip() for part in _BY.findall(expression) for label in part.split(",")}
    assert asked <= labels, expression
    used = {*re.findall(r"\$labels\.(\w+)", texts), *re.findall(r"\{\{(\w+)\}\}", texts)}
    assert used <= (asked or labels), (texts, expression)
    assert expression.count("(") == expression.count(")")


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((MONITORING / "pipeline-alerts.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_alert_asks_for_series_that_a_job_shows(alert: dict[str, Any], shown: dict[str, set[str]]) -> None:
    check(alert["expr"], shown, alert["annotations"]["summary"])
    assert alert["labels"]["severity"] in ("warning", "critical")


def test_board_asks_for_series_that_a_job_shows(shown: dict[str, set[str]]) -> None:
    board = json.loads((MONITORING / "pipeline-board.json").read_text())
    variables = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert {*re.findall(r"\$(\w+)", target["expr"])} <= variables
            check(target["expr"], shown, target["legendFormat"])


def test_each_series_of_a_load_is_on_the_board(shown: dict[str, set[str]]) -> None:
    text = (MONITORING / "pipeline-board.json").read_text()
    missing = {
        name
        for name in shown
        if name.startswith("barnabas_load") and not name.endswith(("_created", "_sum", "_count"))
    }
    assert {name for name in missing if name not in text} == set()
