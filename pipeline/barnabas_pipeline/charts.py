"""Charts as inline SVG, and the page around them: nothing is loaded from anywhere.

The rule: a chart says its numbers in text, too (titles of its marks), and its colours come from the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10
from typing import Any

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 28, 30
GRID_LINES = 4

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --paper: #fcfcfa; --rule: #c9d1d9; --soft: #eef1f4; --bad: #c0392b;
  --c0: #1f6f8b; --c1: #d9822b; --c2: #4f7942; --c3: #8e5ea2; --c4: #a23b4a; --c5: #5b6770; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde3e9; --paper: #14181d; --rule: #3a444e; --soft: #1e242b;
  --bad: #ff7b6b; --c0: #5fb4d0; --c1: #f0a860; --c2: #8fbf7f; --c3: #c39bd3; --c4: #e58b98; --c5: #9aa7b1; } }
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
svg { width: 100%; height: auto; background: var(--soft); border-radius: 6px; display: block; }
svg text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--ink); }
figure { margin: .8rem 0; } figcaption { font-size: .9rem; font-weight: 600; margin-bottom: .35rem; }
.legend { margin: .2rem 0 .6rem; } .legend span { margin-right: 1rem; font-size: .85rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em; }
@media (max-width: 40rem) { svg text { font-size: 16px; } body { margin: 1rem auto; } }
@media print { body { margin: 0; } section { break-inside: avoid; } }
.good { color: var(--c2); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
"""


def page(title: str, lead: str, facts: Mapping[str, Any], sections: Sequence[tuple[str, str]]) -> str:
    """A whole HTML page: facts as tiles, then (heading, HTML) sections, side by side where there is room."""
    tiles = "".join(
        f"<div><b>{_text(value)}</b><span>{escape(name)}</span></div>" for name, value in facts.items()
    )
    body = "".join(f"<section><h2>{escape(heading)}</h2>{html}</section>" for heading, html in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f'<body><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p><div class="tiles">{tiles}</div>'
        f"<main>{body}</main></body></html>\n"
    )


def note(text: str) -> str:
    """A sentence that says what a section shows."""
    return f'<p class="note">{escape(text)}</p>'


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Rows as an HTML table; text to the left, numbers to the right."""
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


def bars(values: Mapping[str, float], caption: str, *, unit: str) -> str:
    """One bar for each name, with its value on it."""
    top = _round_up(max(values.values(), default=0))
    step = (WIDTH - LEFT - RIGHT) / max(len(values), 1)
    marks = []
    for n, (name, value) in enumerate(values.items()):
        height = (HEIGHT - TOP - BOTTOM) * value / top
        x, y = LEFT + n * step + step * 0.12, HEIGHT - BOTTOM - height
        marks.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{step * 0.76:.1f}" height="{height:.1f}" fill="var(--c0)">'
            f"<title>{escape(name)}: {_text(value)}</title></rect>"
        )
        if n % max(1, len(values) // 10) == 0:
            middle = x + step * 0.38
            marks.append(
                f'<text x="{middle:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(name)}</text>'
            )
            marks.append(f'<text x="{middle:.1f}" y="{y - 4:.1f}" text-anchor="middle">{_text(value)}</text>')
    return _figure(_axis(top, unit) + "".join(marks), caption)


def across(values: Mapping[str, float], caption: str) -> str:
    """One bar for each name, from left to right: for names that are long."""
    top = max(values.values(), default=0) or 1
    row = (HEIGHT - 16) / max(len(values), 1)
    left, room = 130, WIDTH - 130 - 48
    marks = []
    for n, (name, value) in enumerate(values.items()):
        y = 8 + n * row
        marks.append(
            f'<text x="{left - 8}" y="{y + row / 2 + 4:.1f}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{left}" y="{y + row * 0.14:.1f}" width="{room * value / top:.1f}" height="{row * 0.72:.1f}" '
            f'fill="var(--c0)"/><text x="{left + room * value / top + 6:.1f}" y="{y + row / 2 + 4:.1f}">'
            f"{_text(value)}</text>"
        )
    return _figure("".join(marks), caption)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    caption: str,
    *,
    unit: str,
    x_label: Mapping[float, str] | None = None,
    bands: Sequence[tuple[float, float]] = (),
) -> str:
    """One line for each series of (x, y); `bands` are spans of x to mark."""
    points = [point for one in series.values() for point in one]
    if not points:
        return "<p>none</p>"
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    top = _round_up(max(y for _, y in points))

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
        at = place(x, 0)[0]
        if at > WIDTH:
            continue
        anchor = "end" if at > WIDTH - LEFT else "middle"  # else it would be cut off at the edge
        marks.append(
            f'<text x="{min(at, WIDTH - 4):.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{escape(text)}</text>'
        )
    return _figure(_axis(top, unit) + "".join(marks), caption) + _legend(list(series))


def scatter(points: Sequence[tuple[float, float, str]], caption: str, *, x_name: str, y_name: str) -> str:
    """One dot for each (x, y, name)."""
    right = _round_up(max((x for x, _, _ in points), default=0))
    top = _round_up(max((y for _, y, _ in points), default=0))
    marks = [
        f'<circle cx="{LEFT + (WIDTH - LEFT - RIGHT) * x / right:.1f}" '
        f'cy="{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top:.1f}" r="3" fill="var(--c0)" opacity=".65">'
        f"<title>{escape(name)}: {x:.3f}, {y:.3f}</title></circle>"
        for x, y, name in points
    ]
    for n in range(GRID_LINES + 1):
        x = LEFT + (WIDTH - LEFT - RIGHT) * n / GRID_LINES
        text = _text(right * n / GRID_LINES) + (f" {escape(x_name)}" if n == GRID_LINES else "")
        anchor = "end" if n == GRID_LINES else "middle"
        marks.append(f'<text x="{x:.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{text}</text>')
    return _figure(_axis(top, y_name) + "".join(marks), caption)


def _round_up(value: float) -> float:
    """The end of an axis whose grid lines have round numbers."""
    if value <= 0:
        return 1
    step = value / GRID_LINES
    power = 10 ** floor(log10(step))
    return (
        GRID_LINES * power * next(one for one in (1, 1.5, 2, 2.5, 3, 4, 5, 10) if one * power >= step * 0.999)
    )


def _axis(top: float, unit: str) -> str:
    out = [f'<text x="{LEFT - 6}" y="16" text-anchor="start" dx="-40">{escape(unit)}</text>']
    for n in range(GRID_LINES + 1):
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * n / GRID_LINES
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--rule)"/>')
        out.append(
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_text(top * n / GRID_LINES)}</text>'
        )
    return "".join(out)


def _legend(names: Sequence[str]) -> str:
    rows = "".join(
        f'<span><i style="background: var(--c{n % 6})"></i>{escape(name)}</span>'
        for n, name in enumerate(names)
    )
    return f'<p class="legend">{rows}</p>'


def _figure(marks: str, caption: str) -> str:
    return (
        f"<figure><figcaption>{escape(caption)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(caption)}">{marks}</svg></figure>'
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.3g}"
    return escape(str(value))
