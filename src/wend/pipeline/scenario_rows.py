"""A run as a row: every setting of the scenario and every metric of the summary is a typed column.

The columns follow from the declarations of the settings and from the class `Summary`, so a new setting or metric is a
column without a second list. A duration is a number, with its unit at the end of the column's name. Settings of
plug-ins from outside the tree share one column, as JSON. Structs within a summary are laid flat; open-ended counters
(control, drops, notices, missing) are maps.
"""

from hashlib import blake2b, sha256
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa

from wend.drivers.scenarios import Scenario
from wend.drivers.settings import load_chosen, outside_plugins, peer_settings, read_values
from wend.model.scenario import DRAWN
from wend.model.settings import Setting, declared_settings
from wend.model.summary import Summary
from wend.pipeline.code_hash import outside_sources, strip_prose
from wend.pipeline.sweeps.run_kind import finite_or_null
from wend.topology.inferred_topology import LINKS

_SCALARS = {
    "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "duration": pa.float64(),
    "text": pa.string(), "choice": pa.string(),
}  # fmt: skip
_PLAIN = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def scenario_key(scenario: Scenario) -> str:
    """The key of a scenario: equal for equal scenarios, in every process and on every machine."""
    text = msgspec.json.encode(scenario.flat(), order="deterministic")
    files = _map_digest(scenario.topology) + _map_digest(scenario.underlay or "")
    for path in (scenario.failures, scenario.flows, scenario.plan):
        files += _file_digest(path)
    if scenario.inferred_topology is not None:
        files += _file_digest(str(Path(scenario.inferred_topology, LINKS)))
    for plugin in outside_plugins(scenario.chosen):
        for name, source in outside_sources(plugin):
            files += sha256(name.encode() + b"\0" + strip_prose(source)).digest()
    return blake2b(text + files, digest_size=10).hexdigest()


def setting_key(scenario: Scenario) -> str:
    """The key of a scenario without its seed. Metrics are averaged over the runs of one setting."""
    return scenario_key(msgspec.structs.replace(scenario, seed=0))


def _map_digest(topology: str) -> bytes:
    """The content of a map file, which is part of the scenario: with other content it is another run."""
    if topology in DRAWN or topology.startswith("topohub:") or not Path(topology).is_file():
        return b""
    return sha256(Path(topology).read_bytes()).digest()


def _file_digest(path: str | None) -> bytes:
    """The content of recorded failures, of flows, or of a folder: a plan, or a table of inferred links."""
    if path is None:
        return b""
    files = sorted(Path(path).iterdir()) if Path(path).is_dir() else [Path(path)]
    return b"".join(sha256(file.read_bytes()).digest() for file in files if file.is_file())


def setting_type(setting: Setting) -> pa.DataType:
    """The Arrow type of a setting's column."""
    if setting.kind == "table":
        return arrow_type(setting.type)
    kind = _SCALARS[setting.kind]
    return pa.list_(kind) if setting.pair else kind


def arrow_type(hint: Any) -> pa.DataType:
    """The Arrow type of a field."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Literal:
        return _PLAIN[type(args[0])]
    if origin in (Union, UnionType):
        inner = {arg for arg in args if arg is not NoneType}
        if len(inner) == 1 or inner == {int, float}:
            return pa.float64() if len(inner) > 1 else arrow_type(*inner)
    if origin in (tuple, list):
        return pa.list_(arrow_type(args[0]))
    if origin is dict:
        return pa.map_(arrow_type(args[0]), arrow_type(args[1]))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in get_type_hints(hint).items()])
    raise TypeError(f"no column type is known for {hint}")


def struct_columns(struct: type[msgspec.Struct]) -> dict[str, pa.DataType]:
    """The fields of a struct, and those of structs within it in place of them."""
    types: dict[str, pa.DataType] = {}
    for name, hint in get_type_hints(struct).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            types |= {column_name(name, part): kind for part, kind in struct_columns(hint).items()}
        else:
            types[name] = arrow_type(hint)
    return types


def column_name(name: str, part: str) -> str:
    """Units end the name: the p50 of `delay_ms` is `delay_p50_ms`; a share has no unit."""
    if name.endswith("_ms") and not part.endswith("_share"):
        return f"{name.removesuffix('_ms')}_{part}_ms"
    return f"{name.removesuffix('_ms')}_{part}"


METRICS: dict[str, pa.DataType] = {**struct_columns(Summary), "control_packets": pa.int64()}
RATIOS = tuple(name for name, kind in METRICS.items() if kind == pa.float64())

COLUMNS: dict[str, Setting] = {each.column: each for each in (*declared_settings(Scenario), *peer_settings().values())}
"""The columns of a scenario, with their settings."""
_MAPS = {column for column, each in COLUMNS.items() if get_origin(each.type) is dict}
"""The columns that are maps. Arrow has them as pairs."""
FROM_OUTSIDE = "plugin_settings"
"""The column of all other settings: a JSON object by name."""

_KEYS = [pa.field("run", pa.string()), pa.field("setting", pa.string())]
_SCENARIO = [
    *(pa.field(column, setting_type(each)) for column, each in COLUMNS.items()),
    pa.field(FROM_OUTSIDE, pa.string()),
]
RUN_SCHEMA = pa.schema([*_KEYS, pa.field("place", pa.int32()), *_SCENARIO])
"""`place` is a run's position in the queue; it becomes the number of its partition."""

RESULT_SCHEMA = pa.schema(
    [
        *_KEYS,
        *_SCENARIO,
        *(pa.field(name, kind) for name, kind in METRICS.items()),
        pa.field("error", pa.string()),
        pa.field("traceback", pa.string()),
    ]
)


def run_row(scenario: Scenario, place: int = 0) -> dict[str, Any]:
    keys = {"run": scenario_key(scenario), "setting": setting_key(scenario), "place": place}
    values = {**scenario.own_values(), **scenario.settings}
    cells = {column: each.in_unit(values[each.name]) for column, each in COLUMNS.items()}
    row = {name: list(cell.items()) if name in _MAPS else cell for name, cell in cells.items()}
    shipped = {each.name for each in COLUMNS.values()}
    outside = {name: value for name, value in scenario.flat_settings().items() if name not in shipped}
    return {**keys, **row, FROM_OUTSIDE: msgspec.json.encode(outside, order="sorted").decode()}


def scenario_from_row(row: dict[str, Any]) -> Scenario:
    """The scenario that a row holds, checked like any other."""
    cells = {name: dict(row[name] or {}) if name in _MAPS else row[name] for name in COLUMNS}
    values = {each.name: each.from_unit(cells[column]) for column, each in COLUMNS.items()}
    load_chosen(values)
    outside = read_values(Scenario, msgspec.json.decode(row[FROM_OUTSIDE] or "{}"))
    return Scenario.from_values({**values, **outside})


def summary_metrics(summary: Summary) -> dict[str, Any]:
    """The metrics of a summary as columns."""
    return {**_values(summary), "control_packets": summary.control_packets}


def _values(struct: msgspec.Struct) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name in struct.__struct_fields__:
        match getattr(struct, name):
            case msgspec.Struct() as inner:
                cells |= {column_name(name, part): value for part, value in _values(inner).items()}
            case dict() as counts:
                cells[name] = list(counts.items())
            case value:
                cells[name] = finite_or_null(value)
    return cells
