"""Plots as SVG, with matplotlib: the same figures give the same file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.tools import BenchError

STYLES = ("-", "--", ":", "-.")
COLORS = ("#1f5fa8", "#c2571a", "#3b8c3b", "#7a4fa0")


def require() -> None:
    """Raise BenchError if plots cannot be drawn, before hours of measurement."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise BenchError("plots need matplotlib: pip install matplotlib") from error


def plot(path: Path, title: str, unit: str, values: Mapping[str, Mapping[str, Mapping[int, float]]]) -> None:
    """Draw microseconds over sizes, a line for each peer (colour) and request (style); call `require` before."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "barnabas", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    peers = list(dict.fromkeys(peer for by_peer in values.values() for peer in by_peer))
    for style, (request, by_peer) in zip(STYLES, values.items(), strict=False):
        for peer, by_size in by_peer.items():
            color = COLORS[peers.index(peer) % len(COLORS)]
            sizes = sorted(by_size)
            axes.plot(
                sizes,
                [by_size[size] for size in sizes],
                style,
                marker="o",
                markersize=3,
                color=color,
                label=f"{peer}: {request}",
            )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(unit)
    axes.set_ylabel("CPU of the broker per request, us")
    axes.set_title(title, fontsize=10)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
