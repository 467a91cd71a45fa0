"""`wend plan load`: make a running peer read its plan again and follow it, without losing an event."""

import json
from typing import TYPE_CHECKING

from wend.console.options import Json
from wend.console.peer_options import LOCAL_PEER, PeerOptions, with_peer_options

if TYPE_CHECKING:
    from wend.drivers.live.client.client import Client


@with_peer_options
def load(at: PeerOptions = LOCAL_PEER, as_json: Json = False) -> None:
    """Make a peer read its plan again. SIGHUP does the same."""

    async def reload(client: "Client") -> tuple[int, int]:
        plan = await client.load_plan()
        return client.peer, plan

    who, plan = at.ask(reload)
    if as_json:
        print(json.dumps({"peer": who, "plan": plan}))
    else:
        print(f"peer {who} follows plan {plan:08x}")
