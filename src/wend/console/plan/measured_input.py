"""The links and flows of telemetry's tables, for `wend plan --from` and `wend plan watch`.

`wend data links` and `wend data workload` have a folder each. A user who puts them side by side, as `links` and
`workload`, names the folder around both.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wend.model.errors import ConfigError
from wend.model.rates import parse_rate

if TYPE_CHECKING:
    from wend.planning.flow_workload import FlowWorkload
    from wend.topology.graph import Overlay


def read_measured_links(tables: str, capacity: str | None, since_ns: int = 0) -> "Overlay":
    """The links that telemetry has measured; `capacity` is that of links for which none was measured."""
    from wend.pipeline.storage.versioned_tables import read_table
    from wend.pipeline.telemetry.measured_network import measured_overlay

    folder = _find_folder(tables, "links", "links")
    each = None if capacity is None else parse_rate(capacity, "--link-capacity")
    if each is not None and not each.value > 0:
        raise ConfigError(f"--link-capacity must be above 0, got {capacity}")
    return measured_overlay(read_table(None, folder, "links"), each, since_ns)


def read_measured_workload(tables: str, names: Sequence[str]) -> "FlowWorkload":
    """The flows that telemetry has measured."""
    from wend.pipeline.telemetry.measured_network import measured_flows
    from wend.pipeline.telemetry.recordings import read_workload
    from wend.planning.flow_workload import make_workload

    folder = _find_folder(tables, "workload", "flows")
    return make_workload(measured_flows(read_workload(None, folder)), names, tables)


def parse_k(text: str) -> int | None:
    """The number of `--k`; None for `auto`."""
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"--k must be a number or auto, got {text!r}") from None


def _find_folder(tables: str, job: str, table: str) -> str:
    """The folder that has a table: this one, or that of the job in it."""
    from wend.pipeline.storage.job_folders import local_path
    from wend.pipeline.storage.versioned_tables import TableFolder

    local = local_path(tables)
    if local is None:
        raise ConfigError(f"{tables} is no local folder, and `wend plan` reads tables without Spark: copy them")
    for folder in (local, local / job):
        version = TableFolder(None, folder).newest_version()
        if version is not None and table in version.tables:
            return str(folder)
    raise ConfigError(
        f"{tables} has no table {table}, and neither has {local / job}: name the folder in which the folders links and "
        "workload are"
    )
