"""`wend data submit`: print or run the `spark-submit` command for a job."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from wend.console.options import Json
from wend.console.spark_options import Conf
from wend.console.terminal import message_console, output_console
from wend.model.errors import ConfigError

SUBMIT_HELP = """Print the spark-submit command for a job, or run it.

For example: `wend data submit --master spark://host:7077 match --events E --subscriptions S --out DIR`.

It writes a zip file with Wend and those of its dependencies that are pure Python. The others must be installed on the
workers; the command names them. Options before the job are for spark-submit, and override Wend's choice.
"""
OPTIONS = {"allow_interspersed_args": False}


def data_submit(
    context: typer.Context,
    job: Annotated[list[str] | None, typer.Argument(metavar="JOB ...", help="A command of `wend data`.")] = None,
    master: Annotated[str | None, typer.Option(help="The cluster, as for spark-submit.")] = None,
    conf: Conf = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Another option of spark-submit: deploy-mode=cluster."),
    ] = None,
    archive: Annotated[Path, typer.Option("--zip", metavar="FILE", help="The zip file to write.")] = Path("wend.zip"),
    run: Annotated[bool, typer.Option("--run", help="Run the command, and return its exit code.")] = False,
    as_json: Json = False,
) -> None:
    from wend.pipeline.spark.spark_settings import parse_conf
    from wend.pipeline.spark.submission import (
        check_job,
        job_dependencies,
        submit_command,
        submit_environment,
        write_archive,
        write_script,
    )

    group = context.parent.command if context.parent is not None else None
    known = set(getattr(group, "commands", ())) - {"submit"}
    words = list(job or ())
    check_job(words, known)
    parse_conf(conf)
    if archive.suffix != ".zip":
        raise ConfigError(f"{archive} must end in .zip, or Python does not import from it")
    dependencies = job_dependencies()
    size = write_archive(archive, dependencies)
    script = archive.with_name(f"{archive.stem}-job.py")
    write_script(script)
    command = submit_command(archive, script, words, master, conf or (), _submit_options(option or []))
    names = ", ".join(each.name for each in dependencies.pure)
    about = f"{archive} has Wend and {names} ({size / 1e6:.1f} MB). Workers need: {' '.join(dependencies.compiled)}"
    if as_json:
        print(json.dumps({"command": command, "zip": str(archive), "compiled": list(dependencies.compiled)}))
    elif not run:
        message_console().print(about, style="bright_black", markup=False, soft_wrap=True)
        output_console().print(shlex.join(command), markup=False, soft_wrap=True)
    if run:
        raise typer.Exit(subprocess.run(command, env=submit_environment(), check=False).returncode)


def _submit_options(given: list[str]) -> list[str]:
    words = []
    for each in given:
        name, equals, value = each.partition("=")
        if not name.strip():
            raise ConfigError(f"--option takes NAME=VALUE, such as deploy-mode=cluster, got {each!r}")
        words += [f"--{name.strip().lstrip('-')}", *([value] if equals else [])]
    return words
