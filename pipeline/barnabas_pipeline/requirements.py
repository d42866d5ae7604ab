"""Requirements of jobs beside Python: the packages of an extra, and Java.

The rule: a missing package is named before a job does anything, with the command that installs it.
"""

from __future__ import annotations

from importlib.util import find_spec

from barnabas_pipeline.errors import UsageError

SPARK = ("pyspark", "pyarrow", "numpy", "pandas", "confluent_kafka", "pyiceberg", "pyiceberg_core")
"""The packages of the extra `spark`, by import name."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra from a checkout or a wheel, as no package is published."""
    return (
        f"pip install '.[{extra}]' in a checkout, or pip install 'barnabas-VERSION-py3-none-any.whl[{extra}]'"
    )


def missing() -> list[str]:
    """Return the packages of the extra `spark` that are not installed."""
    return [name for name in SPARK if find_spec(name) is None]


def check(*, needs_java: bool) -> None:
    """Raise UsageError for packages of the extra `spark` that are missing, and for a missing Java."""
    if lacking := missing():
        raise UsageError(
            f"{', '.join(lacking)} not installed; the pipeline needs the extra `spark`: {install_command('spark')}"
        )
    if needs_java:
        from barnabas_pipeline.spark.session import check_java

        check_java()
