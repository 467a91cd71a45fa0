"""Live peers whose traced paths have holes, and the topology that fills them."""

import shutil
from collections import Counter
from pathlib import Path as File

import wend
from tests.drivers.live.net import run, until
from tests.errors import raises
from tests.oracles.topology_inference import Traceroute
from tests.topology.inferred_links import infer_links, write_links
from wend.drivers.live.addressing.addresses import format_address
from wend.drivers.live.config import PeerFile, load_peer_file
from wend.drivers.live.paths.inferred_paths import InferredPaths, TopologyFolder
from wend.drivers.live.paths.table import PathTable
from wend.drivers.live.process import PeerProcess
from wend.model.paths import Path

PEERS = (1, 2, 3, 4, 5)
"""Peer n is at router `rn`. The routers are in a row, and between every two of them is one that never answers."""
NOWHERE = ("127.0.0.1", 1)


def path_between(a: int, b: int) -> Path:
    step = 1 if a < b else -1
    homes = [f"r{peer}" for peer in range(a, b + step, step)]
    return (homes[0], *(hop for home in homes[1:] for hop in (None, home)))


def write_book(folder: File) -> File:
    """The file of paths: those that a traceroute finds."""
    lines = [f"{a} {b}  {' '.join(hop or '*' for hop in path_between(a, b))}" for a in PEERS for b in PEERS if a < b]
    (folder / "book.txt").write_text("\n".join(lines))
    return folder / "book.txt"


def infer_row(folder: File) -> File:
    """What the job infers from traces of neighbours in the row."""
    traces = [Traceroute(a, b, path_between(a, b)) for a in PEERS for b in (a - 1, a + 1) if b in PEERS]  # type: ignore[arg-type]
    return write_links(folder, infer_links(traces))


def test_peers_behind_silent_routers_form_the_overlay_of_their_true_paths(tmp_path: File) -> None:
    """With every peer a landmark, the overlay has the links between neighbours in the row, and no others. Without the
    topology no path is a prefix of another, and each landmark is linked to all."""
    book, network = write_book(tmp_path), infer_row(tmp_path / "network")

    async def scene() -> None:
        services: list[PeerProcess] = []
        try:
            for peer in PEERS:
                join = [format_address(services[0].peer.address)] if services else []
                file = PeerFile(
                    id=peer,
                    listen="127.0.0.1:0",
                    clients="127.0.0.1:0",
                    membership="tdo-landmark",
                    membership_k=9,
                    membership_period="50ms",
                    join=join,
                    paths=str(book),
                    inferred_topology=str(network),
                )
                file.check()
                services.append(PeerProcess(file))
                await services[-1].start()
            row = {peer: {peer - 1, peer + 1} & {*PEERS} for peer in PEERS}
            await until(lambda: all({*each.peer.peer.links} == row[each.peer.id] for each in services))
            async with wend.connect(f"wend://{format_address(services[0].listener.address)}") as client:
                paths = (await client.status()).paths
            assert paths["inferred"] > 0 and "incomplete" not in paths
        finally:
            for service in services:
                await service.abort()

    run(scene())


def test_an_output_that_was_replaced_is_read_again(tmp_path: File) -> None:
    """While the new one cannot be read, the source goes on with the former one, and counts that."""
    counts: Counter[str] = Counter()
    folder = infer_row(tmp_path / "network")
    table = PathTable({(1, 2): ("r1", None, "r2"), (1, 9): ("r1", None, "r9"), (1, 3): ("r1", "r3")})

    async def scene() -> None:
        source = InferredPaths(table, TopologyFolder(folder), counts)

        async def find(there: int) -> Path | None:
            return await source.find(1, there, NOWHERE)

        completed = await find(2)
        assert completed is not None and None not in completed
        assert await find(9) == ("r1", None, "r9")
        assert await find(3) == ("r1", "r3") and await find(7) is None
        assert counts == {"inferred": 1, "incomplete": 1}
        shutil.rmtree(folder)
        assert await find(2) == completed
        assert counts["unreadable"] == 1
        write_links(folder, infer_links([Traceroute(1, 9, ("r1", None, "r9"))]))
        found = await find(9)
        assert found is not None and None not in found
        assert counts == {"inferred": 3, "incomplete": 1, "unreadable": 1}
        source.close()

    run(scene())


def test_a_peer_s_file_names_the_output_relative_to_itself(tmp_path: File) -> None:
    write_book(tmp_path)
    place = tmp_path / "peer.toml"
    place.write_text('id = 1\npaths = "book.txt"\ninferred_topology = "network"\n')
    assert load_peer_file(place).inferred_topology == str(tmp_path / "network")
    with raises("unreadable", match=r"network is not an output of `wend data topology`: it has no folder links$"):
        PeerProcess(load_peer_file(place))
    for line in ("", 'paths = "none"\n'):
        place.write_text(f'id = 1\n{line}inferred_topology = "network"\n')
        with raises("invalid-setting", match='inferred_topology needs a source of paths: say paths = "trace"'):
            load_peer_file(place)
