"""The `wend` command: finds the subcommand, runs it and prints errors.

A `WendError` ends a command with one sentence on stderr and the exit code of its class, 2 for most, without a stack
trace. With `--json` the sentence is in a JSON object with the code of the error:

    {"error": {"code": "unreachable", "sentence": "cannot reach a peer at wend://127.0.0.1:7700: ..."}}

Only the module of the command that is called is imported, and that imports heavy modules when it runs: a peer
starts quickly, and so does `wend --help`.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from wend.model.errors import ErrorCode, WendError
from wend.model.extras import needed_by
from wend.model.version import __version__

UsageError: Any = typer.BadParameter.__base__
"""Typer brings its own copy of click, under a name that depends on its version."""


class Subcommand(NamedTuple):
    """A subcommand that is not imported yet."""

    module: str
    """The module of `wend.console` that registers it."""
    about: str
    """Its line in `wend --help`: the first sentence of its own help."""
    extra: str | None = None
    """The extra that brings what it needs."""


SUBCOMMANDS = {
    "up": Subcommand(
        "up_command", "Run overlays with failing links on this machine, and compare strategies live.", "sim"
    ),
    "peer": Subcommand("peer_command", "Run one peer from its configuration file."),
    "pub": Subcommand("pub_sub_commands", "Publish an event."),
    "sub": Subcommand("pub_sub_commands", "Print events as they arrive, until Ctrl-C, --count, --timeout or --until."),
    "status": Subcommand("status_command", "Print the state of a running peer: its links and its counters."),
    "subscriptions": Subcommand(
        "subscriptions_command", "List the durable subscriptions of a running peer, or remove one."
    ),
    "forget": Subcommand(
        "forget_command",
        "Drop what all peers store for a peer that is gone for good.",
    ),
    "log": Subcommand("log_commands", "Show the logs of a running peer."),
    "link": Subcommand("link_commands", "List, add and remove the links of a running peer."),
    "key": Subcommand("key_commands", "Make, sign, show and revoke the keys of peers and clients."),
    "sim": Subcommand("sim_command", "Run one scenario in the simulator.", "sim"),
    "study": Subcommand("study_command", "Run the evaluation of a paper on Spark, and write the report.", "spark"),
    "topology": Subcommand("topology_commands", "Make, list, convert and draw underlay networks.", "maps"),
    "lab": Subcommand(
        "lab.lab_commands",
        "Emulate a wide-area network (Linux, root): hosts are network namespaces, links delay and fail.",
        "lab",
    ),
    "plan": Subcommand("plan.plan_commands", "Plan the routes of flows so that no message is dropped.", "plan"),
    "data": Subcommand("data.data_commands", "Run Spark jobs on files.", "spark"),
    "telemetry": Subcommand("telemetry_commands", "Copy the telemetry of peers to where jobs read it."),
    "version": Subcommand("version_command", "Print the version, and which parts are installed."),
}


class LazyCommands(Mapping[str, Any]):
    """The subcommands by name. Each is imported when it is asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            registered = typer.Typer(callback=lambda: None)
            import_module(f"wend.console.{SUBCOMMANDS[name].module}").register(registered)
            self._loaded |= typer.main.get_group(registered).commands
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(SUBCOMMANDS)

    def __len__(self) -> int:
        return len(SUBCOMMANDS)


class LazyGroup(TyperGroup):
    """A group that lists its subcommands without importing them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = LazyCommands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        commands = self.commands
        self.commands = {name: TyperCommand(name, help=each.about) for name, each in SUBCOMMANDS.items()}
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = commands


app = typer.Typer(
    name="wend",
    help="Content-based publish/subscribe over failing links, reliable and on time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    cls=LazyGroup,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"wend {__version__}")
        raise typer.Exit


@app.callback()
def _root_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    words = sys.argv[1:]
    name = next((word for word in words if not word.startswith("-")), "")
    called = SUBCOMMANDS.get(name)
    as_json = "--json" in words
    try:
        with nullcontext() if called is None else needed_by(f"wend {name}", called.extra):
            if as_json:
                sys.exit(app(standalone_mode=False))  # which raises errors of usage
            app()
    except WendError as error:
        _exit_with_error(as_json, error.code, str(error), error.exit_code)
    except UsageError as error:
        _exit_with_error(as_json, "usage", error.format_message(), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)


def _exit_with_error(as_json: bool, code: ErrorCode, sentence: str, exit_code: int) -> NoReturn:
    import json

    error = {"error": {"code": code, "sentence": sentence}}
    print(json.dumps(error, ensure_ascii=False) if as_json else f"wend: {sentence}", file=sys.stderr)
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
