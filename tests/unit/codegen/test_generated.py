"""The committed code is what the schemas give, and `--check` notices when it is not."""

import shutil
from pathlib import Path

import pytest

import codegen.__main__ as main
from tests.support.schemas import write_schemas

ROOT = Path(__file__).resolve().parents[3]

REQUEST = {
    "apiKey": 1,
    "type": "request",
    "name": "PingRequest",
    "validVersions": "0",
    "flexibleVersions": "0+",
    "fields": [{"name": "Id", "type": "int32", "versions": "0+"}],
}
RESPONSE = {**REQUEST, "type": "response", "name": "PingResponse"}


@pytest.fixture
def project(tmp_path):
    """Arguments for a small project with generated code that is up to date."""
    schemas = write_schemas(tmp_path / "schemas", REQUEST, RESPONSE)
    arguments = ["--schemas", str(schemas), "--out", str(tmp_path / "out")]
    assert main.main([*arguments, "--extend-layouts"]) == 0
    return arguments


def test_the_committed_code_is_what_the_schemas_give(capsys):
    assert main.main(["--check"]) == 0, capsys.readouterr().err


def test_generating_twice_gives_the_same_bytes(project, tmp_path):
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.py")}
    shutil.rmtree(tmp_path / "out")
    assert main.main(project) == 0
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.py")} == before


def test_check_names_what_differs_and_writes_nothing(project, tmp_path, capsys):
    assert main.main([*project, "--check"]) == 0
    changed, gone, added = (tmp_path / "out" / name for name in ("ping.py", "index.py", "stale.py"))
    changed.write_text(changed.read_text() + "\n")
    gone.unlink()
    added.write_text("")
    capsys.readouterr()
    assert main.main([*project, "--check"]) == 1
    complaints = capsys.readouterr().err
    for path in (changed, gone, added):
        assert str(path) in complaints
    assert not gone.exists()
    assert main.main(project) == 0
    assert main.main([*project, "--check"]) == 0
    assert not added.exists()


def test_a_broken_schema_writes_nothing_and_says_why(project, tmp_path, capsys):
    broken = {**REQUEST, "fields": [{"name": "Id", "type": "int64", "versions": "0+"}]}
    write_schemas(tmp_path / "schemas", broken)
    before = (tmp_path / "out" / "ping.py").read_text()
    assert main.main(project) == 1
    assert "PingRequest: version 0 was published and its layout changed" in capsys.readouterr().err
    assert (tmp_path / "out" / "ping.py").read_text() == before


def test_barnabas_never_imports_the_compiler():
    users = [path for path in (ROOT / "server").rglob("*.py") if "import codegen" in path.read_text()]
    users += [path for path in (ROOT / "server").rglob("*.py") if "from codegen" in path.read_text()]
    assert users == []
