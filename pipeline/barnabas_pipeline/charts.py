"""Charts as inline SVG, and the page around them: nothing is loaded from anywhere.

The rule: a chart says its numbers in text, too (titles of its marks), and its colours come from the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 34

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --paper: #fcfcfa; --rule: #c9d1d9; --soft: #eef1f4; --bad: #c0392b;
  --c0: #1f6f8b; --c1: #d9822b; --c2: #4f7942; --c3: #8e5ea2; --c4: #a23b4a; --c5: #5b6770; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde3e9; --paper: #14181d; --rule: #3a444e; --soft: #1e242b;
  --bad: #ff7b6b; --c0: #5fb4d0; --c1: #f0a860; --c2: #8fbf7f; --c3: #c39bd3; --c4: #e58b98; --c5: #9aa7b1; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { margin-top: 2.4rem; font-size: 1.2rem; }
p.lead { margin-top: 0; opacity: .8; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: right; padding: .25rem .7rem; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }
svg { width: 100%; height: auto; background: var(--soft); border-radius: 6px; }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
figure { margin: 1rem 0; } figcaption { font-size: .85rem; opacity: .8; }
.legend span { margin-right: 1rem; font-size: .85rem; } .legend i { display: inline-block; width: .8em; height: .8em;
  border-radius: 2px; margin-right: .35em; }
.good { color: var(--c2); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
"""


def page(title: str, lead: str, sections: Sequence[tuple[str, str]]) -> str:
    """A whole HTML page of (heading, HTML) sections."""
    body = "".join(f"<section><h2>{escape(heading)}</h2>{html}</section>" for heading, html in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f'<body><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>{body}</body></html>\n'
    )


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Rows as an HTML table."""
    if not rows:
        return "<p>none</p>"
    names = list(columns or rows[0])
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    lines = "".join(
        "<tr>" + "".join(f"<td>{_text(row.get(name))}</td>" for name in names) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def bars(values: Mapping[str, float], caption: str) -> str:
    """One bar for each name."""
    top = max(values.values(), default=0) or 1
    step = (WIDTH - LEFT - RIGHT) / max(len(values), 1)
    marks = []
    for n, (name, value) in enumerate(values.items()):
        height = (HEIGHT - TOP - BOTTOM) * value / top
        x, y = LEFT + n * step + step * 0.12, HEIGHT - BOTTOM - height
        marks.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{step * 0.76:.1f}" height="{height:.1f}" fill="var(--c0)">'
            f"<title>{escape(name)}: {_text(value)}</title></rect>"
        )
        if n % max(1, len(values) // 12) == 0:
            marks.append(
                f'<text x="{x + step * 0.38:.1f}" y="{HEIGHT - 14}" text-anchor="middle">{escape(name)}</text>'
            )
    return _figure(_axis(0, top) + "".join(marks), caption)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    caption: str,
    *,
    x_label: Mapping[float, str] | None = None,
    bands: Sequence[tuple[float, float]] = (),
) -> str:
    """One line for each series of (x, y); `bands` are spans of x to mark."""
    points = [point for one in series.values() for point in one]
    if not points:
        return "<p>none</p>"
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    top = max(y for _, y in points) or 1

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (WIDTH - LEFT - RIGHT) * (x - low) / ((high - low) or 1),
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top,
        )

    marks = []
    for start, end in bands:
        x0, x1 = place(max(start, low), 0)[0], place(min(end, high), 0)[0]
        marks.append(
            f'<rect x="{x0:.1f}" y="{TOP}" width="{max(x1 - x0, 1):.1f}" height="{HEIGHT - TOP - BOTTOM}" '
            'fill="var(--bad)" opacity=".18"/>'
        )
    for n, one in enumerate(series.values()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in one))
        marks.append(f'<polyline points="{path}" fill="none" stroke="var(--c{n % 6})" stroke-width="1.6"/>')
    for x, text in (x_label or {}).items():
        marks.append(
            f'<text x="{place(x, 0)[0]:.1f}" y="{HEIGHT - 14}" text-anchor="middle">{escape(text)}</text>'
        )
    return _figure(_axis(0, top) + "".join(marks), caption) + _legend(list(series))


def scatter(points: Sequence[tuple[float, float, str]], caption: str, *, x_name: str, y_name: str) -> str:
    """One dot for each (x, y, name)."""
    right = max((x for x, _, _ in points), default=1) or 1
    top = max((y for _, y, _ in points), default=1) or 1
    marks = [
        f'<circle cx="{LEFT + (WIDTH - LEFT - RIGHT) * x / right:.1f}" '
        f'cy="{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top:.1f}" r="3" fill="var(--c0)" opacity=".65">'
        f"<title>{escape(name)}: {x:.3f}, {y:.3f}</title></circle>"
        for x, y, name in points
    ]
    marks.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 14}" text-anchor="end">{escape(x_name)}</text>')
    marks.append(f'<text x="{LEFT + 4}" y="{TOP + 10}">{escape(y_name)}</text>')
    return _figure(_axis(0, top) + "".join(marks), caption)


def _axis(low: float, high: float) -> str:
    out = []
    for n in range(5):
        value = low + (high - low) * n / 4
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * n / 4
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--rule)"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_text(value)}</text>')
    return "".join(out)


def _legend(names: Sequence[str]) -> str:
    rows = "".join(
        f'<span><i style="background: var(--c{n % 6})"></i>{escape(name)}</span>'
        for n, name in enumerate(names)
    )
    return f'<p class="legend">{rows}</p>'


def _figure(marks: str, caption: str) -> str:
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(caption)}">{marks}</svg>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) and abs(value) >= 1 else f"{value:,.3g}"
    return escape(str(value))
