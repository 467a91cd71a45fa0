"""`wend data`: the group of commands that run Spark jobs on files.

Each command imports Spark when it runs, so that `wend --help` stays fast.
"""

import typer

from wend.console.data import (
    flows_command,
    generate_command,
    match_command,
    paths_command,
    replay_commands,
    submit_command,
    sweep_command,
    telemetry_jobs,
    topology_command,
)
from wend.console.terminal import EXIT_CODES


def register(app: typer.Typer) -> None:
    """Add the commands on data to the `wend` command."""
    data = typer.Typer(help="Run Spark jobs on files.", epilog=EXIT_CODES, no_args_is_help=True)
    data.command("match", help=match_command.MATCH_HELP, epilog=EXIT_CODES)(match_command.data_match)
    data.command("generate", epilog=EXIT_CODES)(generate_command.data_generate)
    data.command("flows", help=flows_command.FLOWS_HELP, epilog=EXIT_CODES)(flows_command.data_flows)
    data.command("topology", help=topology_command.TOPOLOGY_HELP, epilog=EXIT_CODES)(topology_command.data_topology)
    data.command("paths", epilog=EXIT_CODES)(paths_command.data_paths)
    data.command("sweep", epilog=EXIT_CODES)(sweep_command.data_sweep)
    data.command("replay", epilog=EXIT_CODES)(replay_commands.data_replay)
    data.command("recommend", epilog=EXIT_CODES)(replay_commands.data_recommend)
    data.command("submit", help=submit_command.SUBMIT_HELP, context_settings=submit_command.OPTIONS)(
        submit_command.data_submit
    )
    data.command("links", help=telemetry_jobs.LINKS_HELP, epilog=EXIT_CODES)(telemetry_jobs.data_links)
    data.command("late", help=telemetry_jobs.LATE_HELP, epilog=EXIT_CODES)(telemetry_jobs.data_late)
    data.command("workload", help=telemetry_jobs.WORKLOAD_HELP, epilog=EXIT_CODES)(telemetry_jobs.data_workload)
    data.command("compact", epilog=EXIT_CODES)(telemetry_jobs.data_compact)
    app.add_typer(data, name="data")
