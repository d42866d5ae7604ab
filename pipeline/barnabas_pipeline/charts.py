"""Charts as inline SVG, drawn by matplotlib, and a self-contained page around them, which loads no other files.

The rule: the colours of a chart come from the page, which is light or dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --paper: #fcfcfa; --rule: #c9d1d9; --soft: #eef1f4; --bad: #c0392b;
  --c0: #1f6f8b; --c1: #d9822b; --c2: #4f7942; --c3: #8e5ea2; --c4: #a23b4a; --c5: #5b6770;
  --c6: #8a7400; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde3e9; --paper: #14181d; --rule: #3a444e; --soft: #1e242b;
  --bad: #ff7b6b; --c0: #5fb4d0; --c1: #f0a860; --c2: #8fbf7f; --c3: #c39bd3; --c4: #e58b98; --c5: #9aa7b1;
  --c6: #d6c45a; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 84rem; padding: 0 1rem; }
h1 { font-size: 1.8rem; margin: 0 0 .2rem; } h2 { margin: 0 0 .3rem; font-size: 1.15rem; }
p { margin: .4rem 0 .8rem; } p.lead { opacity: .8; } .note { font-size: .9rem; opacity: .8; }
main { columns: 34rem 2; column-gap: 1.2rem; }
section { border: 1px solid var(--rule); border-radius: 10px; padding: 1rem 1.1rem; margin-bottom: 1.2rem;
  break-inside: avoid; }
.tiles { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); margin: 1.2rem 0; }
.tiles div { background: var(--soft); border-radius: 10px; padding: .7rem 1rem; }
.tiles b { display: block; font-size: 1.6rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tiles span { font-size: .85rem; opacity: .8; }
.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; width: 100%; }
th, td { text-align: right; padding: .22rem .5rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; } .text { text-align: left; }
svg { width: 100%; height: auto; border-radius: 6px; display: block; }
figure { margin: .8rem 0; } figcaption { font-size: .9rem; font-weight: 600; margin-bottom: .35rem; }
@media (max-width: 40rem) { body { margin: 1rem auto; } }
@media print { body { margin: 0; } section { break-inside: avoid; } }
.good { color: var(--c2); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
"""


def page(
    title: str,
    lead: str,
    facts: Mapping[str, object],
    sections: Sequence[tuple[str, str]],
    *,
    again_seconds: int = 0,
) -> str:
    """Return an HTML page: facts as tiles, then (heading, HTML) sections, side by side where there is room.

    The browser reloads it every `again_seconds`, unless that is 0.
    """
    again = f'<meta http-equiv="refresh" content="{again_seconds}">' if again_seconds else ""
    tiles = "".join(
        f"<div><b>{_text(value)}</b><span>{escape(name)}</span></div>" for name, value in facts.items()
    )
    body = "".join(f"<section><h2>{escape(heading)}</h2>{html}</section>" for heading, html in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{again}<style>{STYLE}</style></head>'
        f'<body><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p><div class="tiles">{tiles}</div>'
        f"<main>{body}</main></body></html>\n"
    )


def note(text: str) -> str:
    """Return a sentence that explains a section."""
    return f'<p class="note">{escape(text)}</p>'


def table(rows: Sequence[Mapping[str, object]], columns: Sequence[str] | None = None) -> str:
    """Return rows as an HTML table, with text aligned left and numbers right."""
    if not rows:
        return "<p>none</p>"
    names = list(columns or rows[0])
    kinds = [' class="text"' if isinstance(rows[0].get(name), str) else "" for name in names]
    head = "".join(
        f"<th{kind}>{escape(name.replace('_', ' '))}</th>" for name, kind in zip(names, kinds, strict=True)
    )
    lines = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{_text(row.get(name))}</td>" for name, kind in zip(names, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


# --- drawn by matplotlib ----------------------------------------------------------------------------------------------

COLORS = tuple(f"#0000c{n}" for n in range(7))
INK, PAPER, RULE, BAD = "#0000d0", "#0000d1", "#0000d2", "#0000d3"
"""Placeholders for the page's colours, which differ in dark mode: the SVG uses the page's names of them."""
_NAMES = {color: f"var(--c{n})" for n, color in enumerate(COLORS)}
_NAMES |= {INK: "var(--ink)", PAPER: "var(--soft)", RULE: "var(--rule)", BAD: "var(--bad)"}
SIZE = 5.6, 2.6


@contextmanager
def _drawn(caption: str, into: list[str]) -> Iterator[Axes]:
    """Yield axes to draw on; afterwards the drawing is appended to a list, as a figure of the page."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style = {
        "svg.hashsalt": "barnabas", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
        "text.color": INK, "axes.labelcolor": INK, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
        "xtick.color": RULE, "ytick.color": RULE, "axes.edgecolor": RULE, "grid.color": RULE, "axes.facecolor": PAPER,
        "figure.facecolor": PAPER, "savefig.facecolor": PAPER, "legend.frameon": False, "legend.fontsize": 8,
        "axes.prop_cycle": matplotlib.cycler(color=COLORS), "axes.spines.top": False, "axes.spines.right": False,
        "axes.axisbelow": True, "timezone": "UTC",
    }  # fmt: skip
    with matplotlib.rc_context(style):
        figure, axes = pyplot.subplots(figsize=SIZE, layout="constrained")
        try:
            yield axes
            buffer = StringIO()
            figure.savefig(buffer, metadata={"Date": None, "Creator": None})
        finally:
            pyplot.close(figure)
    svg = buffer.getvalue()
    svg = re.sub("|".join(_NAMES), lambda match: _NAMES[match[0]], svg[svg.index("<svg") :])
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(caption)}" ', 1)
    into.append(f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>")


def _over_time(axes: Axes) -> None:
    """Show dates, in UTC, on the x axis."""
    from matplotlib import dates

    locator = dates.AutoDateLocator(minticks=4, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, show_offset=True))


def _moments(timestamps_ms: Iterable[float]) -> list[datetime]:
    return [datetime.fromtimestamp(timestamp_ms / 1000, UTC) for timestamp_ms in timestamps_ms]


def _in_thousands(axis: Axis) -> None:
    axis.set_major_formatter(lambda value, _: _text(value))


def bars(values: Mapping[int, float], caption: str, *, unit: str, width_ms: int) -> str:
    """Return a chart with a bar of `width_ms` for each time, in ms since 1970."""
    out: list[str] = []
    with _drawn(caption, out) as axes:
        width = timedelta(milliseconds=width_ms)
        axes.bar(_moments(values), list(values.values()), width=width * 0.8, align="edge")
        axes.grid(axis="y")
        axes.set_ylabel(unit)
        _in_thousands(axes.yaxis)
        _over_time(axes)
    return out[0]


def across(values: Mapping[str, float], caption: str) -> str:
    """Return a chart with a horizontal bar for each name, which suits long names."""
    out: list[str] = []
    with _drawn(caption, out) as axes:
        marks = axes.barh(list(values), list(values.values()))
        axes.bar_label(marks, [_text(value) for value in values.values()], padding=3, color=INK)
        axes.margins(x=0.12)
        axes.invert_yaxis()
        _in_thousands(axes.xaxis)
    return out[0]


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    caption: str,
    *,
    unit: str,
    bands: Sequence[tuple[float, float]] = (),
) -> str:
    """Return a chart with a line for each series of (ms since 1970, y); `bands` are spans of time to mark."""
    out: list[str] = []
    with _drawn(caption, out) as axes:
        for name, points in series.items():
            axes.plot(_moments(x for x, _ in points), [y for _, y in points], linewidth=1.4, label=name)
        for start, end in bands:
            axes.axvspan(*_moments((start, end)), color=BAD, alpha=0.18, linewidth=0)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")
        axes.set_ylabel(unit)
        _in_thousands(axes.yaxis)
        _over_time(axes)
        if series:
            axes.legend(ncols=3)
    return out[0]


def scatter(points: Sequence[tuple[float, float]], caption: str, *, x_name: str, y_name: str) -> str:
    """Return a chart with a dot for each (x, y)."""
    out: list[str] = []
    with _drawn(caption, out) as axes:
        axes.scatter([x for x, _ in points], [y for _, y in points], s=12, alpha=0.65)
        axes.grid(visible=True)
        axes.set_xlabel(x_name)
        axes.set_ylabel(y_name)
    return out[0]


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.3g}"
    return escape(str(value))
