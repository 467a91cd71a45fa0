"""A job on a real cluster: a master and two workers from the pip package of Spark, on this machine.

python -m benchmarks.cluster [EVENTS [SUBSCRIPTIONS]]

The job is `wend data match`, submitted by `wend data submit`. It runs on this process's machine, on the cluster, and on
the cluster while one worker is killed in mid-job. All three must give the same rows. Paths are `file:` addresses, which
Spark reads and writes through Hadoop's file systems: the pip package of Spark has no class for `s3a:`.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import IO

import pyarrow as pa
import pyarrow.dataset as ds

DEPLOY = "org.apache.spark.deploy"
HOME = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
RUNNING = re.compile(r"Running task \d+\.\d+ in stage")
"""In the log of an executor."""
WAIT_S = 120.0
MAX_ROWS = 20_000_000


class Service:
    """A process of Spark: the master, or a worker."""

    def __init__(self, words: list[str], ready: str, environment: dict[str, str], folder: Path) -> None:
        import pyspark

        program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        self.process = subprocess.Popen(
            [program, *words], stderr=subprocess.PIPE, env=environment, text=True, cwd=folder, start_new_session=True
        )
        assert self.process.stderr is not None
        self.said = self._await(self.process.stderr, ready)
        Thread(target=self._read_on, args=(self.process.stderr,), daemon=True).start()

    def _await(self, lines: IO[str], ready: str) -> str:
        for line in lines:
            if found := re.search(ready, line):
                return found[found.lastindex or 0]
        raise SystemExit(f"a service of Spark ended before it said {ready!r}")

    def _read_on(self, lines: IO[str]) -> None:
        """Without a reader, the service would block when the pipe is full."""
        for _ in lines:
            pass

    def kill(self) -> None:
        """End the service and the executors that it started, as a machine that fails does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def cluster(folder: Path, environment: dict[str, str]) -> Iterator[tuple[str, list[Service]]]:
    """A master and two workers; the master's address, and the workers."""
    with ExitStack() as stack:

        def start(name: str, words: list[str], ready: str) -> Service:
            (folder / name).mkdir(parents=True, exist_ok=True)
            kind = name.rstrip("12")
            made = Service([f"{DEPLOY}.{kind}.{kind.capitalize()}", *words], ready, environment, folder / name)
            stack.callback(made.kill)
            return made

        master = start("master", HOME, r"Starting Spark master at (spark://\S+)").said
        workers = []
        for name in ("worker1", "worker2"):
            words = [*HOME, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / name / "work"), master]
            workers.append(start(name, words, "Successfully registered with master"))
        yield master, workers


def wend(environment: dict[str, str], folder: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "wend.console.start", "data", *words]
    return subprocess.Popen(
        command, env=environment, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(process: "subprocess.Popen[str]", what: str) -> float:
    """Wait for a command that must succeed; return its seconds."""
    began = time.monotonic()
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{what} ended with {process.returncode}:\n{said}")
    return time.monotonic() - began


def rows(folder: Path) -> pa.Table:
    """Read the rows of a result, in an order that does not depend on tasks."""
    found = ds.dataset([str(path) for path in sorted(folder.rglob("*.parquet"))], format="parquet")
    if (count := found.count_rows()) > MAX_ROWS:
        raise SystemExit(f"{count} matches are more than this benchmark compares: ask for fewer events")
    return found.to_table(columns=["event", "subscription"]).sort_by(
        [("event", "ascending"), ("subscription", "ascending")]
    )


def is_running(worker: Path) -> bool:
    """Whether an executor of this worker runs tasks of the newest application."""
    return any(RUNNING.search(log.read_text(errors="replace")) for log in worker.glob("work/app-*/*/stderr"))


def main(events: int = 200_000, subscriptions: int = 5_000) -> None:
    with TemporaryDirectory(prefix="wend-cluster-") as name:
        folder = Path(name)
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK", "PYSPARK"))}
        scratch = folder / "scratch"
        scratch.mkdir()
        environment = {
            **plain,
            "TMPDIR": str(scratch),
            "SPARK_LOCAL_DIRS": str(scratch),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch} {JAVA}",
            "PYSPARK_PYTHON": sys.executable,
        }
        sizes = ["--kind", "narrow", "--events", str(events), "--subscriptions", str(subscriptions)]
        finish(wend(environment, folder, "generate", *sizes, "--out", "input", "--master", "local[2]"), "generate")
        inputs = [f"--{each}=file:{folder}/input/{each}" for each in ("events", "subscriptions")]

        def job(out: str) -> list[str]:
            return ["match", *inputs, f"--out=file:{folder}/{out}"]

        local_s = finish(wend(environment, folder, *job("local"), "--master", "local[2]"), "the job on this machine")
        expected = rows(folder / "local")
        print(f"on this machine: {expected.num_rows} matches in {local_s:.0f} s", flush=True)
        logs = ["--conf", "spark.log.level=INFO"]
        with cluster(folder / "cluster", environment) as (master, workers):
            submit = ["submit", "--run", "--master", master, *logs]
            took = finish(wend(environment, folder, *submit, *job("result")), "the job on the cluster")
            same = rows(folder / "result").equals(expected)
            print(f"on a master and two workers: the same rows: {same}; {took:.0f} s", flush=True)
            for log in (folder / "cluster").glob("worker*/work/app-*/*/stderr"):
                log.unlink()
            process = wend(environment, folder, *submit, *job("killed"))
            until = time.monotonic() + WAIT_S
            while not is_running(folder / "cluster" / "worker1") and process.poll() is None:
                if time.monotonic() > until:
                    raise SystemExit("no executor of the first worker began a task")
                time.sleep(0.05)
            in_time = process.poll() is None
            workers[0].kill()
            took = finish(process, "the job whose worker was killed")
            same = rows(folder / "killed").equals(expected)
            print(f"one worker killed in mid-job ({in_time}): the same rows: {same}; {took:.0f} s", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
