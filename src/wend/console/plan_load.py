"""`wend plan load`: make a running peer read its plan again and follow it, without losing an event."""

import json

import typer

from wend.console.clients import DEFAULT_PEER, Peer
from wend.console.options import Json


def register(plan: typer.Typer) -> None:
    plan.command("load")(load)


def load(peer: Peer = DEFAULT_PEER, as_json: Json = False) -> None:
    """Make a peer read the plan of its configuration again. SIGHUP does the same."""
    import uvloop

    async def run() -> tuple[int, int]:
        import wend

        async with wend.connect(peer) as client:
            plan = await client.load_plan()
            return client.peer, plan

    who, plan = uvloop.run(run())
    if as_json:
        print(json.dumps({"peer": who, "plan": plan}))
    else:
        print(f"peer {who} follows plan {plan:08x}")
