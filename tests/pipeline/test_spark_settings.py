"""What the user has set for Spark wins over what Wend sets."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import needs_java
from wend.model.errors import ConfigError
from wend.pipeline.spark import spark_settings
from wend.pipeline.spark.spark_settings import choose_python, default_settings, parse_conf, user_settings

pytest.importorskip("pyspark")


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


def test_settings_come_from_files_and_submit_and_the_command_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a remark\nspark.master   spark://theirs:7077\nspark.a = 1\nspark.b:2\n\nspark.c  several words\n"
    )
    assert user_settings({}) == {
        "spark.master": "spark://theirs:7077", "spark.a": "1", "spark.b": "2", "spark.c": "several words",
    }  # fmt: skip
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn --conf spark.a=7 -c spark.b=8 pyspark-shell")
    found = user_settings(parse_conf(["spark.b=9"]))
    assert (found["spark.master"], found["spark.a"], found["spark.b"]) == ("yarn", "7", "9")


def test_own_settings_replace_none_of_the_user(tmp_path: Path) -> None:
    given = {
        "spark.log.level": "INFO",
        "spark.local.dir": "/fast",
        "spark.master": "yarn",
        "spark.driver.extraJavaOptions": "-Xss4m -Dlog4j2.configurationFile=theirs",
    }
    found = default_settings(given, tmp_path)
    assert "spark.sql.shuffle.partitions" not in found and "spark.driver.host" not in found
    java = found.pop("spark.driver.extraJavaOptions")
    assert java.startswith("-Xss4m -Dlog4j2.configurationFile=theirs ") and java.count("log4j2") == 1
    assert not found.keys() & given.keys()
    assert default_settings({}, tmp_path)["spark.driver.host"] == "127.0.0.1"


def test_the_users_interpreter_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    choose_python({})
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/theirs/python")
    choose_python({})
    assert os.environ["PYSPARK_PYTHON"] == "/theirs/python"
    monkeypatch.delenv("PYSPARK_PYTHON")
    choose_python({"spark.pyspark.python": "/conf/python"})
    assert os.environ["PYSPARK_PYTHON"] == "/conf/python"


@pytest.mark.parametrize("word", ["", "spark.a", "=1", " =1"])
def test_conf_takes_a_name_and_a_value(word: str) -> None:
    with pytest.raises(ConfigError, match="--conf takes NAME=VALUE"):
        parse_conf([word])
    assert parse_conf(["a=b=c", "d="]) == {"a": "b=c", "d": ""}


PROGRAM = """
import json, sys
from wend.pipeline.spark.session import spark_session
with spark_session(conf=["spark.b=2"]) as spark:
    context = spark.sparkContext
    found = dict(context.getConf().getAll())
    found |= {"master": context.master, "name": context.appName, "python": context.pythonExec}
    print("FOUND", json.dumps(found))
"""


@needs_java
@pytest.mark.spark
@pytest.mark.slow
def test_a_submitted_program_keeps_the_options_of_spark_submit(tmp_path: Path) -> None:
    import pyspark

    (tmp_path / "job.py").write_text(PROGRAM)
    (tmp_path / "spark-defaults.conf").write_text("spark.c 3\n")
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    options = ["--master", "local[1]", "--name", "theirs", "--conf", "spark.a=1"]
    options += ["--conf", "spark.sql.shuffle.partitions=7"]
    root = str(Path(spark_settings.__file__).parents[3])
    done = subprocess.run(
        [submit, *options, str(tmp_path / "job.py")],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": root},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found = json.loads(line.removeprefix("FOUND "))
    assert (found["master"], found["name"], found["python"]) == ("local[1]", "theirs", sys.executable)
    names = ("spark.a", "spark.b", "spark.c", "spark.sql.shuffle.partitions")
    assert [found[name] for name in names] == ["1", "2", "3", "7"]
