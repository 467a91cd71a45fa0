"""The options that commands on Spark share."""

from typing import Annotated

import typer

from wend.model.errors import ConfigError
from wend.model.units import SECOND, parse_duration

Master = Annotated[
    str | None,
    typer.Option(
        help="local[*], local[N], spark://HOST:PORT, or sc://HOST:PORT for Spark Connect. By default, what "
        "spark-submit or spark-defaults.conf say, or local[*]."
    ),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
]
Ship = Annotated[bool, typer.Option(help="Send Wend's code to workers that lack it or have another version.")]
MaxBad = Annotated[
    float,
    typer.Option(help="The largest share of bad rows in a table. They go to the table _quarantine of the result."),
]
TimeLimit = Annotated[
    str, typer.Option(help="The longest time for a run. A run that takes longer fails; the others go on.")
]

FAILED_RUNS = 1
"""The exit code of a command some of whose runs have failed."""
RESUMES = "finished runs are stored; the same command goes on from here"


def parse_time_limit(text: str) -> float:
    """Parse `--time-limit`."""
    limit = parse_duration(text)
    if not limit:
        raise ConfigError(f"--time-limit must be longer than 0, got {text}")
    return limit / SECOND
