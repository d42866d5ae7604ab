"""A load with executors that have a bare Python, and get all packages in an archive that spark-submit sends them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from barnabas_pipeline.errors import EXIT_USAGE
from compat.spark.cluster import ROOT, SparkCluster

from .conftest import Stream
from .test_cluster import finish, load_arguments
from .test_lake import check, good_events, options, rows_of

BARE = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
OF_SPARK = {"pyspark", "py4j"}  # executors have them


def needed(name: str, extras: frozenset[str], distributions: dict[str, metadata.Distribution]) -> None:
    """Collect a package and all that it needs, as `pip install --target` does, but for Spark's own."""
    if name in OF_SPARK or name in distributions:
        return
    distributions[name] = metadata.distribution(name)
    for line in distributions[name].requires or ():
        row = Requirement(line)
        if row.marker is None or any(row.marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            needed(row.name.lower().replace("_", "-"), frozenset(row.extras), distributions)


def pack(directory: Path) -> Path:
    """Make the archive of docs/how-to/spark-cluster.md."""
    distributions: dict[str, metadata.Distribution] = {}
    needed("barnabas", frozenset({"spark"}), distributions)
    del distributions["barnabas"]  # here it is a link to its sources
    place = directory / "packed"
    for distribution in distributions.values():
        for file in distribution.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = place / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), target)
    for source in (ROOT / "server" / "barnabas", ROOT / "pipeline" / "barnabas_pipeline"):
        shutil.copytree(source, place / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    with tarfile.open(directory / "packed.tar", "w") as archive:
        for path in place.iterdir():
            archive.add(path, path.name)
    return directory / "packed.tar"


def test_executors_without_our_packages_get_them_in_an_archive(
    spark: Any, stream: Stream, tmp_path: Path
) -> None:
    bare = subprocess.run(
        [BARE, "-c", "import barnabas_pipeline"], cwd="/", env={}, capture_output=True, text=True, timeout=60
    )
    assert "No module named 'barnabas_pipeline'" in bare.stderr
    archive, log = pack(tmp_path), tmp_path / "log"
    packed = ["--archives", f"{archive}#packed"]
    conf = {
        "spark.pyspark.python": BARE,
        "spark.pyspark.driver.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": "packed",
        "spark.task.maxFailures": "1",
    }
    with SparkCluster(tmp_path / "cluster") as cluster:
        arguments = load_arguments(stream.bootstrap, "votes", tmp_path / "lake")
        without = cluster.submit(arguments, tmp_path / "without", conf=conf)
        out, _ = without.communicate(timeout=300)
        assert without.returncode == EXIT_USAGE
        assert "executors lack a package: No module named" in out
        assert "Traceback" not in out.partition("executors lack")[2]
        summary = finish(cluster.submit(arguments, log, conf=conf, more=packed), log)
    assert summary["loaded"] + summary["dead"] == len(stream.of("votes"))
    loading = options(stream, tmp_path / "lake", "votes")
    assert rows_of(spark, loading) == good_events(stream, "votes")
    assert check(spark, loading).problems == []
