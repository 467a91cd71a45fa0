"""`wend version`: prints the version and the installed parts."""

import json
import platform
from importlib.util import find_spec

import typer

from wend.console.options import Json
from wend.model.extras import EXTRAS, extra_modules
from wend.model.version import __version__, core_build


def register(app: typer.Typer) -> None:
    app.command("version")(version)


def version(as_json: Json = False) -> None:
    """Print the version, and which parts are installed."""
    lacking = {extra: [each for each in extra_modules(extra) if find_spec(each) is None] for extra in EXTRAS}
    installed = [extra for extra, modules in lacking.items() if not modules]
    missing = [extra for extra, modules in lacking.items() if modules]
    if as_json:
        about = {"version": __version__, "python": platform.python_version(), "core": core_build()}
        print(json.dumps({**about, "installed": installed, "missing": {each: lacking[each] for each in missing}}))
        return
    print(f"wend {__version__}, Python {platform.python_version()}, {core_build()} core")
    print(f"extras: {', '.join(installed) or 'none'}")
    if missing:
        print(f"missing: {', '.join(missing)} (pip install 'wend[{','.join(missing)}]')")
