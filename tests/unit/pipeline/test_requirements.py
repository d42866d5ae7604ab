"""`barnabas-pipeline` where something that it needs is missing."""

from __future__ import annotations

import pytest

from barnabas_pipeline import requirements
from barnabas_pipeline.cli import DOCTOR, JOBS, WITHOUT_JAVA, main
from barnabas_pipeline.errors import EXIT_USAGE
from barnabas_pipeline.spark import session


@pytest.mark.parametrize("job", sorted(JOBS.keys() - {DOCTOR}))  # doctor itself says what is missing
def test_missing_packages_are_named_with_an_install_command(monkeypatch, capsys, job):
    monkeypatch.setattr(
        requirements, "find_spec", lambda name: None if name in ("pyspark", "numpy") else name
    )
    assert main([job, "--help"]) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("usage: pyspark, numpy not installed; the pipeline needs the extra `spark`: ")
    assert "pip install '.[spark]' in a checkout" in line


@pytest.mark.parametrize("job", sorted(JOBS.keys() - WITHOUT_JAVA - {DOCTOR}))
def test_java_is_looked_for_first(monkeypatch, set_environment, capsys, tmp_path, job):
    monkeypatch.setattr(requirements, "find_spec", lambda name: name)
    set_environment(PATH=str(tmp_path))
    set_environment(JAVA_HOME=None)
    assert main([job]) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "no `java` on the PATH" in line
    assert f"apt-get install openjdk-{session.JAVA_MIN}-jre-headless" in line


def test_the_list_of_jobs_needs_nothing(monkeypatch, capsys):
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "simulate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("master", "is_loopback"),
    [
        ("local", True),
        ("local[*, 4]", True),
        ("local-cluster[2,1,512]", False),
        ("spark://h:7077", False),
        ("yarn", False),
    ],
)
def test_local_spark_listens_on_loopback_alone(master: str, is_loopback: bool) -> None:
    expected = (
        {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if is_loopback else {}
    )
    assert session.addresses(master) == expected
