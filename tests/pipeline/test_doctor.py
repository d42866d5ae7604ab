"""Each thing between a machine and a load is told in one line, whatever of it is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from barnabas_pipeline import cli
from compat.kafka.broker import free_port

from .cells import Cell
from .conftest import ROOT, Broker, Stream
from .stores import BUCKET, FailingS3
from .test_other_engines import rename_column, upgrade
from .using import run_here


def doctor(capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> dict[str, tuple[str, str]]:
    assert cli.main(["doctor", "--json", *more]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == code
    assert all(len(check["detail"].splitlines()) == 1 for check in told["checks"])
    return {check["name"]: (check["status"], check["detail"]) for check in told["checks"]}


def test_doctor_finds_nothing_between_a_machine_and_a_load(
    stream: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "doctor",
        "--topic",
        "views",
        "--bootstrap",
        stream.bootstrap,
        "--lake",
        str(tmp_path / "lake"),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/server{os.pathsep}{ROOT}/pipeline"}
    done = subprocess.run(
        [sys.executable, "-m", "barnabas_pipeline.cli", *command, "--master", "local[1]"],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    statuses = {line[9:33].strip(): line.split()[0] for line in done.stdout.splitlines()}
    names = [
        "python",
        "packages",
        "java",
        "disk",
        "spark",
        "broker",
        "topic views",
        "store",
        "catalog",
        "table of views",
    ]
    assert statuses == dict.fromkeys(names, "ok")
    assert "tasks run in Python" in done.stdout
    assert not (tmp_path / "lake").exists(), "nothing is written"


def test_doctor_names_each_thing_that_is_wrong(tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    command = ["--no-spark", "--topic", "logins", "--bootstrap", nowhere, "--lake", "s3://none/lake"]
    command += ["--client", "retries=0", "--conf", f"spark.jars={tmp_path}/none.jar"]
    command += ["--registry", f"http://{nowhere}", "--json"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/server{os.pathsep}{ROOT}/pipeline"}
    done = subprocess.run(
        [sys.executable, "-m", "barnabas_pipeline.cli", "doctor", *command],
        env={**environment, "JAVA_HOME": str(tmp_path / "none")}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    told = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    wrong = {name for name, check in told.items() if check["status"] == "PROBLEM"}
    assert wrong == {"java", "jars", "broker", "registry", "store", "catalog", "table of logins"}
    assert (done.returncode, done.stderr) == (4, "")
    assert told["topic logins"]["detail"] == "no broker answers"
    assert "needs a catalog" in told["catalog"]["detail"]
    assert str(tmp_path / "none") in told["java"]["detail"]


@pytest.mark.parametrize(
    ("jar", "told"),
    [
        ("iceberg-spark-runtime-4.1_2.13-1.12.0.jar", "for another Spark"),
        ("mine_2.12-1.jar", "for Scala 2.12"),
        ("mine_2.13-1.jar", "1 files"),
    ],
)
def test_jar_for_another_spark_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], jar: str, told: str
) -> None:
    (tmp_path / jar).touch()
    code = 0 if told == "1 files" else 4
    assert (
        told in doctor(capsys, "--no-spark", "--conf", f"spark.jars={tmp_path / jar}", code=code)["jars"][1]
    )


def test_topic_that_may_not_be_read_is_told(
    new_broker: Callable[..., Broker], capsys: pytest.CaptureFixture[str]
) -> None:
    broker = new_broker(
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("open", 1), NewTopic("shut", 1)])["shut"].result()
    denied = AclBinding(
        ResourceType.TOPIC, "shut", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*",
        AclOperation.DESCRIBE, AclPermissionType.DENY,
    )  # fmt: skip
    admin.create_acls([denied])[denied].result()
    command = [
        "--no-spark",
        "--bootstrap",
        broker.bootstrap,
        "--topic",
        "open,shut,absent",
        "--client",
        "retries=0",
    ]
    told = doctor(capsys, *command, code=4)
    assert [told[f"topic {name}"][0] for name in ("open", "shut", "absent")] == ["ok", "PROBLEM", "PROBLEM"]
    assert "TOPIC_AUTHORIZATION_FAILED" in told["topic shut"][1]


def test_store_and_catalog_in_s3_are_tried(
    s3: FailingS3, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = f"s3://{BUCKET}/{tmp_path.name}"
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", **s3.properties}
    command = ["--no-spark", "--lake", lake]
    for name, value in properties.items():
        command += ["--catalog-property", f"{name}={value}"]
    told = doctor(capsys, *command)
    assert (told["store"][0], told["catalog"][0]) == ("ok", "ok")
    remaining = [name for name in s3.objects() if name.startswith(tmp_path.name)]
    assert remaining in ([], [f"{tmp_path.name}/"]), "Arrow leaves the name of the directory"
    with s3.failing(lambda method, _: "error" if method == "PUT" else ""):
        told = doctor(capsys, *command, code=2)
    assert told["store"][0] == "PROBLEM"


@pytest.mark.parametrize(("operation", "told"), [(rename_column, "member"), (upgrade, "format version 3")])
def test_table_that_a_load_would_refuse_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], operation: Callable[[Cell], None], told: str
) -> None:
    cell = Cell.made(tmp_path)
    command = ["--no-spark", "--topic", "logins", "--log-dir", str(cell.topic.directory)]
    command += ["--lake", str(tmp_path / "lake")]
    cell.topic.append(b"{}")
    before: Any = doctor(capsys, *command)["table of logins"]
    assert "at version 3, 12 offsets loaded" in before[1]
    assert before[1].endswith("1 to load")
    operation(cell)
    after = doctor(capsys, *command, code=4)["table of logins"]
    assert after[0] == "PROBLEM"
    assert told in after[1]


def test_packages_that_are_missing_are_a_line() -> None:
    code = (
        "import sys;"
        "sys.modules |= {'numpy': None, 'pyarrow': None, 'pyspark': None, 'pyiceberg': None};"
        "from barnabas_pipeline.cli import main; sys.exit(main(['doctor', '--topic', 'a', '--lake', 'b']))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/server{os.pathsep}{ROOT}/pipeline"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4, done.stderr
    assert "PROBLEM  packages                 pyspark, pyarrow, numpy, pyiceberg not installed" in done.stdout
    assert done.stderr == ""


def test_small_loads_and_mirrors_need_no_java(
    stream: Stream, new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    jobs = {"load": ["--lake", str(tmp_path)], "mirror": ["--to-bootstrap", new_broker().bootstrap]}
    for job, more in jobs.items():
        words = [job, "--topic", "logins", "--bootstrap", stream.bootstrap, *more]
        code = "import sys; from barnabas_pipeline.cli import main; sys.exit(main({}))"
        large = run_here(code.format([*words, "--worker-offsets-max", "0"]), JAVA_HOME=f"{tmp_path}/none")
        assert (large.returncode, "usage: " in large.stderr) == (4, True), large.stderr
        assert f"cannot run {tmp_path}/none/bin/java" in large.stderr
        assert run_here(code.format(words), JAVA_HOME=f"{tmp_path}/none").returncode == 0
