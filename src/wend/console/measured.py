"""The links and flows of telemetry's tables, for `wend plan --from` and `wend plan watch`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wend.model.errors import ConfigError
from wend.model.rates import parse_rate

if TYPE_CHECKING:
    from wend.planning.workload import FlowWorkload
    from wend.topology.graph import Overlay


def measured_links(tables: str, capacity: str | None, since_ns: int = 0) -> "Overlay":
    """The links that telemetry has measured; `capacity` is that of links of which it is not known."""
    from wend.pipeline.telemetry.measured import measured_overlay
    from wend.pipeline.telemetry.recordings import read_table

    _check_local(tables)
    each = None if capacity is None else parse_rate(capacity, "--link-capacity")
    if each is not None and not each.value > 0:
        raise ConfigError(f"--link-capacity must be above 0, got {capacity}")
    return measured_overlay(read_table(None, tables, "links"), each, since_ns)


def measured_workload(tables: str, names: Sequence[str]) -> "FlowWorkload":
    """The flows that telemetry has measured."""
    from wend.pipeline.telemetry.measured import measured_flows
    from wend.pipeline.telemetry.recordings import read_workload
    from wend.planning.workload import workload_of

    _check_local(tables)
    return workload_of(measured_flows(read_workload(None, tables)), names, tables)


def _check_local(tables: str) -> None:
    from wend.pipeline.storage import local_path

    if local_path(tables) is None:
        raise ConfigError(f"{tables} is no local folder, and `wend plan` reads tables without Spark: copy them")
