"""Tables: columns that fit a terminal, whole cells in pipes, colours where there may be some."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest

from barnabas.commands.tables import BOLD, PLAIN, RED, Look, look_of_stdout, table_text, width_of

TITLES = ["NAME", "N", "ERROR"]
ROWS = [["a" * 30, "1", "-"], ["ä", "1000", "it failed because of a long story"], ["日本", "7", "-"]]
RIGHT = [False, True, False]


def test_pipe_gets_whole_cells_without_colours() -> None:
    assert table_text(TITLES, ROWS, RIGHT, Look(), red="ERROR").splitlines() == [
        f"NAME{' ' * 26}     N  ERROR",
        f"{'a' * 30}     1  -",
        f"ä{' ' * 29}  1000  it failed because of a long story",
        f"日本{' ' * 26}     7  -",
    ]


@pytest.mark.parametrize("width", [1, 20, 25, 30, 40, 60, 69, 70, 71, 200])
def test_lines_fit_the_terminal_as_far_as_titles_allow(width: int) -> None:
    rng = random.Random(width)
    rows = ROWS + [[rng.choice("ab日é") * rng.randrange(40) for _ in TITLES] for _ in range(20)]
    lines = table_text(TITLES, rows, RIGHT, Look(width)).splitlines()
    whole = table_text(TITLES, rows, RIGHT, Look()).splitlines()
    least = sum((8, 8, 8)) + 4
    assert max(map(width_of, lines)) <= max(width, least)
    assert (lines == whole) == (max(map(width_of, whole)) <= width)
    for line, cells in zip(lines[1:], rows, strict=True):
        assert line == "" or "…" in line or all(cell in line for cell in cells)


def test_titles_are_bold_and_errors_red_where_colours_are() -> None:
    head, _, failed, _ = table_text(
        TITLES, ROWS, RIGHT, Look(None, has_colours=True), red="ERROR"
    ).splitlines()
    assert head.startswith(f"{BOLD}NAME")
    assert failed.endswith(f"{RED}it failed because of a long story{PLAIN}")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("output", "variables", "look"),
    [
        (Terminal(), {"TERM": "xterm"}, Look(77, has_colours=True)),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, Look(77)),
        (Terminal(), {"TERM": "dumb"}, Look(77)),
        (io.StringIO(), {"TERM": "xterm"}, Look()),
    ],
)
def test_colours_and_width_are_those_of_the_terminal(
    output: io.StringIO, variables: dict[str, str], look: Look, set_environment: Callable[..., None]
) -> None:
    set_environment(**{"NO_COLOR": None, "COLUMNS": "77", **variables})
    with redirect_stdout(output):
        assert look_of_stdout() == look
