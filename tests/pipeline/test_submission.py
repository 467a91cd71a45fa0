"""The zip file and the command for `spark-submit`."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wend.console.app import app
from wend.model.errors import ConfigError
from wend.pipeline.spark.submission import check_job, job_dependencies, submit_command, write_archive

IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import rich, typer, wend.console.app, wend.pipeline.match.match_job
print(*(module.__file__ for module in (rich, typer, wend.console.app)), sep="\\n")
"""


def test_what_is_python_alone_is_in_the_zip_and_the_rest_is_named(tmp_path: Path) -> None:
    found = job_dependencies()
    pure = {each.name.lower() for each in found.pure}
    compiled = {each.partition("==")[0].lower() for each in found.compiled}
    assert {"typer", "rich"} <= pure and {"msgspec", "numpy", "pyarrow", "numba"} <= compiled
    assert "pyspark" not in pure | compiled and not pure & compiled
    one, two = tmp_path / "one.zip", tmp_path / "two.zip"
    write_archive(one, found)
    write_archive(two, found)
    assert one.read_bytes() == two.read_bytes(), "Spark would ship the same code twice"
    names = zipfile.ZipFile(one).namelist()
    assert "wend/console/app.py" in names and "typer/__init__.py" in names
    assert not [name for name in names if name.endswith((".so", ".pyc")) or ".." in name]


def test_python_imports_wend_and_its_dependencies_from_the_zip(tmp_path: Path) -> None:
    archive = tmp_path / "wend.zip"
    write_archive(archive, job_dependencies())
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(archive)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(str(archive)) for line in done.stdout.splitlines())


def test_what_the_user_says_about_spark_comes_first_and_nothing_else_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    words = submit_command(
        Path("w.zip"), Path("j.py"), ["match", "--out", "o"], "yarn", ["a=b", "c=d"], ["--deploy-mode", "cluster"]
    )
    assert words == [
        "/opt/spark/bin/spark-submit", "--master", "yarn", "--conf", "a=b", "--conf", "c=d", "--deploy-mode",
        "cluster", "--py-files", "w.zip", "j.py", "data", "match", "--out", "o",
    ]  # fmt: skip
    plain = submit_command(Path("w.zip"), Path("j.py"), ["flows"], None, (), ())
    assert plain[1:] == ["--py-files", "w.zip", "j.py", "data", "flows"]


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ([], "name a job after the options: flows, match"),
        (["nothing"], "there is no job 'nothing': choose from flows, match"),
        (["match", "--master=yarn"], "give --master before the job"),
        (["match", "--conf", "a=b"], "give --conf before the job"),
    ],
)
def test_what_is_no_job_is_refused(job: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_job(job, ["match", "flows"])


def test_the_command_prints_a_line_for_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    said = CliRunner().invoke(app, ["data", "submit", "--master", "yarn", "match", "--out", "a b"])
    assert said.exit_code == 0
    line = "/opt/spark/bin/spark-submit --master yarn --py-files wend.zip wend-job.py data match --out 'a b'"
    assert said.stdout.splitlines()[-1] == line
    assert "Workers need:" in said.stderr and "numpy==" in said.stderr
    found = CliRunner().invoke(app, ["data", "submit", "--option", "deploy-mode=client", "--json", "flows"])
    assert json.loads(found.stdout)["command"][1:3] == ["--deploy-mode", "client"]
    assert (tmp_path / "wend-job.py").read_text().startswith("from wend.console.start import main")
    for words in (["--zip", "w.egg", "flows"], ["--option", "=x", "flows"], ["--conf", "x", "flows"]):
        assert isinstance(CliRunner().invoke(app, ["data", "submit", *words]).exception, ConfigError)
