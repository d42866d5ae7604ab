"""The Spark session that all jobs use, with settings that fit one machine unless others are given.

The rule: a setting of the user (spark-submit, `--conf`) overrides ours.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
PACKAGE = f"(Debian: apt-get install openjdk-{JAVA_MIN}-jre-headless, or default-jre-headless)"

DEFAULT_MASTER = "local[*, 4]"  # all cores, and up to four tries for a task, as on a cluster

DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.python.filterPushdown.enabled": "true",  # used only with the option pushFilters: see `source`
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.ansi.enabled": "true",
}

LOOPBACK = "127.0.0.1"


def addresses(master: str) -> dict[str, str]:
    """Return the listen addresses of the driver and its block manager: loopback if Spark runs in one process."""
    is_local = master == "local" or master.startswith("local[")
    return {f"spark.driver.{name}": LOOPBACK for name in ("host", "bindAddress")} if is_local else {}


def source_roots() -> list[str]:
    """Return the directories from which executors on this machine import this package and the broker's."""
    import barnabas

    roots = {Path(__file__).resolve().parents[2], Path(next(iter(barnabas.__path__))).resolve().parent}
    return sorted(str(root) for root in roots)


def create(
    app_name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Create or get the session, with the data source `barnabas` registered. Raises UsageError without Java."""
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers use `python3` of the PATH
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # only then SparkConf has the options of spark-submit

    from_caller = dict(conf or {})
    outside = SparkConf()
    defaults = DEFAULTS | addresses(master or outside.get("spark.master", DEFAULT_MASTER) or "")
    settings = {key: value for key, value in defaults.items() if not outside.contains(key)}
    roots = os.pathsep.join(source_roots())
    if not outside.contains("spark.executorEnv.PYTHONPATH"):
        inherited = os.environ.get("PYTHONPATH")
        settings["spark.executorEnv.PYTHONPATH"] = f"{roots}{os.pathsep}{inherited}" if inherited else roots
    builder = SparkSession.builder.appName(app_name)
    if master:
        builder = builder.master(master)
    elif not outside.contains("spark.master"):
        builder = builder.master(DEFAULT_MASTER)
    for key, value in (settings | from_caller).items():
        builder = builder.config(key, value)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys(
            [*roots.split(os.pathsep), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        )
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get("BARNABAS_SPARK_LOG", "ERROR"))
    from barnabas_pipeline.spark.source import BarnabasSource

    session.dataSource.register(BarnabasSource)
    return session


def check_java() -> None:
    """Check that Spark will find a Java of a version that it supports. Raises UsageError."""
    java_version()


def java_version() -> str:
    """Return the version and the path of the Java that Spark will find. Raises UsageError if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if not java:
        raise UsageError(
            f"Spark needs Java {JAVA_MIN} or newer: no `java` on the PATH, and JAVA_HOME is not set {PACKAGE}"
        )
    try:
        text = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"cannot run {java}: {error}") from None
    version = text.split('"')[1].split(".")[0].split("-")[0] if '"' in text else ""
    if version.isdigit() and int(version) < JAVA_MIN:
        raise UsageError(f"Spark needs Java {JAVA_MIN} or newer, {java} is {version} {PACKAGE}")
    return f"{version or 'of unknown version'} at {java}"
