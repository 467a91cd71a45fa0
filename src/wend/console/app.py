"""The `wend` command: registers all subcommands and prints errors.

A `WendError` ends a command with one sentence on stderr and exit code 2, without a stack trace. Commands import heavy
modules when they run, so that `wend --help` is quick.
"""

import sys
from typing import Annotated

import typer

from wend import __version__
from wend.console import clients, lab, peer, plan, sim, topology, up
from wend.model.errors import WendError

app = typer.Typer(
    name="wend",
    help="Content-based publish/subscribe over failing links, reliable and on time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"wend {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


up.register(app)
peer.register(app)
clients.register(app)
sim.register(app)
topology.register(app)
lab.register(app)
plan.register(app)


def _register_studies() -> None:
    from wend.console import data, study

    study.register(app)
    data.register(app)


_register_studies()


def main() -> None:
    try:
        app()
    except WendError as error:
        print(f"wend: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
