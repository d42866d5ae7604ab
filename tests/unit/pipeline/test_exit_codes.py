"""Exit codes of `barnabas-pipeline`: each row of the reference, by processes of a job that ends so; Spark is not needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing.running import import_path
from barnabas_pipeline.errors import ENDS

ROOT = Path(__file__).resolve().parents[3]
RUN = """
import sys, time
from barnabas_pipeline import cli
from barnabas_pipeline.errors import DataLossError, IncompleteError, MissingOffsets, UsageError

def job(arguments):
    {}

cli._run = job
sys.exit(cli.main())
"""
WAITS = "print('works', flush=True); time.sleep(60)"
STREAM = f"""
    try:
        {WAITS}
    except KeyboardInterrupt:
        return 0
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
WAYS: dict[str, list[tuple[str, str, signal.Signals | None]]] = {
    "the job is done": [("return 0", "", None)],
    "Ctrl-C or SIGTERM, of a stream": [(STREAM, "", number) for number in SIGNALS],
    "Ctrl-C or SIGTERM, of another job": [(WAITS, "", number) for number in SIGNALS],
    "not everything is there, no broker answers, standard output cannot be written": [
        ("raise IncompleteError('no broker')", "", None),
        ("print('rows'); return 0", ">/dev/full", None),
        ("print('rows' * 100_000); return 0", "| true", None),
    ],
    "records that should be there are not": [
        ("raise DataLossError('retention', [MissingOffsets(0, 1, 2)])", "", None)
    ],
    "an option is wrong": [("raise UsageError('no such job')", "", None)],
    "a defect, with its traceback": [("raise RuntimeError('a defect')", "", None)],
}


@pytest.mark.parametrize(
    ("how", "job", "redirection", "number", "expected"),
    [(end.how, *way, end.code) for end in ENDS for way in WAYS[end.how]],
)
def test_a_job_ends_with_the_code_of_the_reference(
    how: str, job: str, redirection: str, number: signal.Signals | None, expected: int
) -> None:
    shell = ("bash", "-c", f'"$@" {redirection}; exit ${{PIPESTATUS[0]}}', "bash") if redirection else ()
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT / "pipeline")}
    with subprocess.Popen(
        [*shell, sys.executable, "-c", RUN.format(job)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        if number is not None:
            assert process.stdout.readline() == "works\n"
            process.send_signal(number)
        output = process.stderr.read()
        assert process.wait(30) == expected, output
    assert ("Traceback" in output) == (how == "a defect, with its traceback"), output
