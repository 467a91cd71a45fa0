"""The options that commands on Spark share."""

from typing import Annotated

import typer

from wend.model.errors import ConfigError
from wend.model.units import SECOND, parse_duration

Master = Annotated[
    str | None,
    typer.Option(
        help="local[*], local[N], spark://HOST:PORT, or sc://HOST:PORT for Spark Connect. Default: what spark-submit "
        "or spark-defaults.conf say, else local[*]."
    ),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
]
Ship = Annotated[bool, typer.Option(help="Send Wend's code to workers that have another version or none.")]
MaxBad = Annotated[
    float,
    typer.Option(
        help="Largest share of rows of a table that may be bad; they go to the table _quarantine of the result."
    ),
]
TimeLimit = Annotated[str, typer.Option(help="The longest that a run may take; the rest goes on without it.")]

FAILED_RUNS = 1
"""The exit code of a command some of whose runs have failed."""
RESUMES = "finished runs are stored; the same command goes on from here"


def limit_s(text: str) -> float:
    """Parse `--time-limit`."""
    limit = parse_duration(text)
    if not limit:
        raise ConfigError(f"--time-limit must be longer than 0, got {text}")
    return limit / SECOND
