"""Pages of a load: whole at any time, in the colours of the page, and what others wrote is text there."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_pipeline import charts
from barnabas_pipeline.commands import pages
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.load import LoadSummary

NOW_MS = 1_764_200_000_000
AGAIN = 'http-equiv="refresh"'
PLOTS = {
    "bars": charts.bars({NOW_MS: 3.0, NOW_MS + 1000: 4.0}, "<b>", unit="u", width_ms=1000),
    "across": charts.across({"one": 1.0, "another": 2_000.0}, "<b>"),
    "lines": charts.lines(
        {"x": [(NOW_MS, 1.0), (NOW_MS + 9, 2.0)]}, "<b>", unit="u", bands=[(NOW_MS, NOW_MS + 5)]
    ),
    "no lines": charts.lines({}, "<b>", unit="u"),
    "scatter": charts.scatter([(0.5, 1.0)], "<b>", x_name="x", y_name="y"),
}


@pytest.mark.parametrize("name", PLOTS)
def test_plot_has_colours_of_the_page_and_an_escaped_caption(name: str) -> None:
    plot = PLOTS[name]
    assert set(re.findall(r"#[0-9a-f]{6}", plot)) == set()
    colors = set(re.findall(r"var\((--\w+)\)", plot))
    assert {"--ink", "--soft", "--rule"} <= colors
    for color in colors:
        assert charts.STYLE.count(f"{color}: ") == 2, "light and dark"
    assert "<b>" not in plot
    assert 'aria-label="&lt;b&gt;"' in plot


def test_the_axis_of_time_has_dates_in_utc() -> None:
    hours = {NOW_MS // 3_600_000 * 3_600_000 + n * 3_600_000: 1.0 for n in range(6)}
    plot = charts.bars(hours, "hours", unit="u", width_ms=3_600_000)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", plot)
    assert "2025-Nov-27" in texts
    assert "02:00" in texts


class Streams:
    """A load of two topics, one of which fails."""

    def __init__(self) -> None:
        self.summary = LoadSummary(commits=1, loaded=3, dead=1)
        good = SimpleNamespace(behind={0: 2, 1: 5}, summary=self.summary, error=None, is_over=False)
        bad = SimpleNamespace(
            behind={}, summary=LoadSummary(), error=UsageError("<script>alert(1)</script>"), is_over=True
        )
        self.streams: dict[str, Any] = {"good": good, "bad": bad}
        self.failures = {"bad": bad.error}


def test_a_page_asks_for_itself_again_while_the_load_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(pages.time, "monotonic", lambda: now[0])
    load, path = Streams(), tmp_path / "load.html"
    page = pages.Page(path, load, "s3://lake")
    page.committed(SimpleNamespace(summary=load.summary))
    page.failed("bad", load.failures["bad"], is_over=True)
    page.ended(None)
    assert not path.exists(), "it is not time yet"
    now[0] += pages.EVERY_SECONDS
    page.ended(None)
    first = path.read_text()
    assert AGAIN in first
    assert [first.count(text) for text in ("<script", "&lt;script&gt;alert(1)", "s3://lake")] == [0, 2, 1]
    assert dict(page.sections())["Topics"].count("<td>7</td>") == 1, "what the topic is behind"
    load.streams["good"].behind = {0: 0, 1: 0}
    now[0] += 1
    page.end()
    assert AGAIN not in path.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["load.html"]


def test_a_page_of_a_long_load_of_many_topics_stays_small(tmp_path: Path) -> None:
    load = Streams()
    load.streams = {
        f"t{n:03}": SimpleNamespace(behind={0: n}, summary=LoadSummary(), error=None, is_over=False)
        for n in range(40)
    }
    page = pages.Page(tmp_path / "load.html", load, "lake")
    for _ in range(pages.POINTS_MAX + 10):
        page._take(pages.time.monotonic())
    assert {len(points) for points in page._behind.values()} == {pages.POINTS_MAX}
    behind = dict(page.sections())["Behind"]
    shown = set(re.findall(r">(t\d{3})<", behind))
    assert shown == {f"t{n:03}" for n in range(40 - pages.TOPICS_MAX, 40)}
