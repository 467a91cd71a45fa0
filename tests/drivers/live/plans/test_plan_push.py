"""Plans that are pushed to eight live peers while events flow: all follow, or none; a worse one is rolled back."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import typer

import wend
from tests.drivers.live.net import known, run, until
from tests.errors import raises
from tests.plans import Flow, plan_of
from tests.ports import free_ports
from wend.console.plan.push_command import push as push_command
from wend.drivers.live.config import load_peer_file
from wend.drivers.live.plans import followed_plan
from wend.drivers.live.plans import push as plan_push
from wend.drivers.live.plans.push import (
    OnTimeCount,
    PushReport,
    PushSettings,
    count_events_between,
    explain_decline,
    push_plan,
)
from wend.drivers.live.process import PeerProcess
from wend.drivers.live.status import PlanStatus, StatusSnapshot
from wend.model.errors import Refused, WendError
from wend.model.plan import Plan
from wend.model.plan_slice import PlanSlice, decode_slice, encode_slice, make_slice

PEERS = 8
# A ring, and two ways across it. The way from 2 to 6 is slow: an event that takes it is late.
LINKS = [*((a, (a + 1) % PEERS) for a in range(PEERS)), (0, 4), (2, 6)]
SLOW = (2, 6)
DEADLINE_S = 1.0
FIRST: tuple[Flow, ...] = (
    (0, (3, 4), 10.0, [(1.0, [(0, 4), (4, 3)])]),
    (2, (5, 6), 10.0, [(1.0, [(2, 3), (3, 4), (4, 5), (5, 6)])]),
)
SECOND_PLAN: tuple[Flow, ...] = (
    (0, (3, 4), 10.0, [(0.5, [(0, 1), (1, 2), (2, 3), (3, 4)]), (0.5, [(0, 4), (4, 3)])]),
    (2, (5, 6), 10.0, [(0.5, [(2, 1), (1, 0), (0, 7), (7, 6), (6, 5)]), (0.5, [(2, 3), (3, 4), (4, 5), (5, 6)])]),
)
WORSE: tuple[Flow, ...] = (FIRST[0], (2, (5, 6), 10.0, [(1.0, [(2, 6), (6, 5)])]))
WANTED = {0: (3, 4), 2: (5, 6)}


def write_config(folder: Path, peer: int, ports: list[int], strategy: str, *more: str) -> Path:
    lines = [
        f"id = {peer}",
        f'listen = "127.0.0.1:{ports[peer]}"',
        'clients = "127.0.0.1:0"',
        f'strategy = "{strategy}"',
        f'store = "{peer}.store"',
        'margin = "300ms"',
        "transmissions = 6",
        'detection = "500ms"',
        *more,
    ]
    for a, b in LINKS:
        if peer in (a, b):
            other, delay = a + b - peer, "1500ms" if (a, b) == SLOW else "2ms"
            lines += ["[[neighbours]]", f"id = {other}", f'address = "127.0.0.1:{ports[other]}"', f'delay = "{delay}"']
            lines += ["[neighbours.shape]", f'delay = "{delay}"']
    path = folder / f"{peer}.toml"
    path.write_text("\n".join(lines))
    return path


class Overlay:
    """Eight peers, with two publishers whose events are counted at four subscribers."""

    def __init__(self, services: list[PeerProcess]) -> None:
        self.services = services
        self.sent = dict.fromkeys(WANTED, 0)
        self.got: Counter[tuple[int, int, bytes]] = Counter()

    @property
    def urls(self) -> list[str]:
        return [f"wend://127.0.0.1:{each.listener.address[1]}" for each in self.services]

    def plans(self) -> list[PlanStatus | None]:
        return [each.broker.status().plan for each in self.services]

    def notices(self, name: str) -> int:
        return sum(each.peer.counters.notices[name] for each in self.services)

    async def push(self, plan: Plan, *, watch_s: float = 0.0, before_s: float = 0.5) -> PushReport:
        settings = PushSettings(before_s=before_s, watch_s=watch_s)
        return await push_plan(plan, self.urls, settings, lambda url: wend.connect(url, timeout=30, patience=0.1))

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Events flow; at the end each must have arrived at each subscriber, once."""
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(wend.connect(url)) for url in self.urls]
            readers = []
            for publisher, receivers in WANTED.items():
                for receiver in receivers:
                    events = clients[receiver].subscribe(f"topic = '{publisher}'", deadline=DEADLINE_S)
                    readers.append(self._read(publisher, receiver, await stack.enter_async_context(events)))
            for publisher, receivers in WANTED.items():
                await known(clients[publisher], str(publisher), len(receivers))
            tasks = [asyncio.create_task(each) for each in readers]
            flowing = [asyncio.create_task(self._publish(each, clients[each])) for each in WANTED]
            await until(lambda: all(self.sent.values()))
            try:
                yield
                for each in flowing:
                    each.cancel()
                await asyncio.gather(*flowing, return_exceptions=True)
                await until(lambda: len(self.got) >= sum(2 * count for count in self.sent.values()))
            finally:
                for each in (*flowing, *tasks):
                    each.cancel()
                await asyncio.gather(*flowing, *tasks, return_exceptions=True)
        expected = {
            (publisher, receiver, f"{n}".encode())
            for publisher, receivers in WANTED.items()
            for receiver in receivers
            for n in range(self.sent[publisher])
        }
        assert set(self.got) == expected, "an event was lost"
        assert set(self.got.values()) == {1}, "an event came twice"
        for each in self.services:
            assert not each.peer.counters.drops and not each.peer.counters.failed

    async def _publish(self, publisher: int, client: wend.Client) -> None:
        while True:
            number, self.sent[publisher] = self.sent[publisher], self.sent[publisher] + 1
            await asyncio.shield(client.publish({"topic": str(publisher)}, f"{number}".encode()))
            await asyncio.sleep(0.005)

    async def _read(self, publisher: int, receiver: int, events: wend.EventStream) -> None:
        async for event in events:
            if event.payload != b"are you there":
                self.got[publisher, receiver, event.payload] += 1


@asynccontextmanager
async def overlay(folder: Path, strategies: dict[int, str] | None = None) -> AsyncIterator[Overlay]:
    ports = free_ports(PEERS)
    chosen = dict.fromkeys(range(PEERS), "planned") | (strategies or {})
    services = [PeerProcess(load_peer_file(write_config(folder, peer, ports, chosen[peer]))) for peer in range(PEERS)]
    try:
        for service in services:
            await service.start()
        yield Overlay(services)
    finally:
        for service in services:
            await service.abort()


def made(*flows: Flow, links: list[tuple[int, int]] = LINKS) -> Plan:
    return plan_of(PEERS, links, *flows)


# ---------------------------------------------------------------- all follow


def test_a_plan_pushed_under_load_loses_no_event_and_doubles_none(tmp_path: Path) -> None:
    async def scene() -> None:
        async with overlay(tmp_path) as net:
            async with net.load():
                for turn, flows in enumerate((FIRST, SECOND_PLAN, FIRST), 1):
                    plan = made(*flows)
                    report = await net.push(plan)
                    assert report.kept and report.version == turn
                    assert net.plans() == [PlanStatus(plan.id, turn)] * PEERS
                    sent = dict(net.sent)
                    await until(lambda sent=sent: all(net.sent[each] > sent[each] + 5 for each in sent))
            # every peer knew each plan before the first one published by it
            assert net.notices("unknown-plan") == 0
            assert net.notices("plan-adopted") == 3 * PEERS

    run(scene())


def test_a_plan_that_makes_events_late_is_rolled_back_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_push, "POLL_S", 0.1)
    monkeypatch.setattr(plan_push, "MIN_EVENTS", 20)  # a busy machine delivers few in two seconds

    async def scene() -> None:
        async with overlay(tmp_path) as net:
            good, worse = made(*FIRST), made(*WORSE)
            async with net.load():
                await net.push(good)
                report = await net.push(worse, watch_s=60.0, before_s=2.0)
                assert not report.kept and "points less, and 2 are tolerated" in report.why
                assert report.astray == ()
                assert net.plans() == [PlanStatus(good.id, 1)] * PEERS
                # a version that was rolled back can be given again
                assert (await net.push(good)).version == 2

    run(scene())


def test_what_is_not_worse_stays_and_too_few_events_judge_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with overlay(tmp_path) as net:
            report = await net.push(made(*FIRST), watch_s=0.2)
            assert report.kept and report.why == "too few events to judge the plan: 0 before, 0 after"

    run(scene())


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (OnTimeCount(0, 100, 2, 0), OnTimeCount(0, 100, 4, 0), None),
        (OnTimeCount(0, 100, 2, 0), OnTimeCount(0, 100, 5, 0), "3.0 points less"),
        (OnTimeCount(0, 100, 0, 0), OnTimeCount(0, 95, 0, 5), "95.0 % of the events"),
        (OnTimeCount(0, 100, 50, 0), OnTimeCount(0, 100, 10, 0), None),
        (OnTimeCount(0, 49, 0, 0), OnTimeCount(0, 100, 100, 0), None),
        (OnTimeCount(0, 100, 0, 0), OnTimeCount(0, 49, 49, 0), None),
        (OnTimeCount(100, 100, 0, 0), OnTimeCount(100, 0, 0, 0), "nothing arrived of 100 events"),
    ],
)
def test_the_share_on_time_decides(before: OnTimeCount, after: OnTimeCount, why: str | None) -> None:
    found = explain_decline(before, after, 2.0)
    assert found is None if why is None else found is not None and why in found


def test_a_peer_that_restarted_or_did_not_answer_is_counted_as_it_can_be() -> None:
    def status(incarnation: int, delivered: int) -> StatusSnapshot:
        return StatusSnapshot(peer=0, incarnation=incarnation, software="", delivered=delivered, drops={"expired": 1})

    begin = {0: status(1, 10), 1: status(1, 10), 2: Refused("no"), 3: status(1, 1)}
    end = {0: status(1, 15), 1: status(2, 4), 2: status(1, 50), 3: Refused("no")}
    assert count_events_between(begin, end) == OnTimeCount(0, 5 + 4, 0, 0 + 1)


# ---------------------------------------------------------------- or none


async def unchanged(net: Overlay, plan: Plan, error: type[WendError], sentence: str) -> None:
    before = net.plans()
    with pytest.raises(error, match=sentence):
        await net.push(plan)
    assert net.plans() == before, "a peer follows or holds another plan"


def test_a_plan_that_one_peer_cannot_take_changes_nothing_anywhere(tmp_path: Path) -> None:
    async def scene() -> None:
        async with overlay(tmp_path) as net:
            await net.push(made(*FIRST))
            # another topology
            others = [link for link in LINKS if link != SLOW]
            sentence = "nothing was changed: peer 2: the plan is for another topology: there its links are with 1, 3"
            await unchanged(net, made(*FIRST, links=others), Refused, sentence)
            # a version that is not newer
            stale = PushSettings(version=1, watch_s=0.0)
            with raises("refused", match="follows version 1 already, and 1 is not newer"):
                await push_plan(made(*SECOND_PLAN), net.urls, stale, wend.connect)
            # a peer too few, and a peer twice
            for urls, said in ((net.urls[:-1], "no address leads to peer 7"), ([*net.urls, net.urls[3]], "are both")):
                with raises("invalid-setting", match=said):
                    await push_plan(made(*SECOND_PLAN), urls, PushSettings(watch_s=0.0), wend.connect)
            # a peer that is gone
            gone = net.services.pop()
            await gone.abort()
            with raises("try-again", match=f"nothing was changed: cannot reach a peer at {net.urls[0][:16]}"):
                await push_plan(
                    made(*SECOND_PLAN), [*net.urls, "wend://127.0.0.1:1"], PushSettings(watch_s=0.0), wend.connect
                )
            assert net.plans() == [PlanStatus(made(*FIRST).id, 1)] * (PEERS - 1)

    run(scene())


def test_a_peer_whose_strategy_follows_no_plan_says_so(tmp_path: Path) -> None:
    async def scene() -> None:
        async with overlay(tmp_path, {5: "adaptive"}) as net:
            sentence = "nothing was changed: peer 5: its strategy is adaptive, which follows no plan"
            await unchanged(net, made(*FIRST), Refused, sentence)

    run(scene())


def test_if_one_peer_cannot_commit_the_others_go_back(tmp_path: Path) -> None:
    async def scene() -> None:
        async with overlay(tmp_path) as net:
            await net.push(made(*FIRST))
            (tmp_path / "4.store.plan").unlink()
            (tmp_path / "4.store.plan" / "in the way").mkdir(parents=True)
            sentence = "peer 4 could not follow the plan: cannot write .*; the peers follow their former plans again"
            await unchanged(net, made(*SECOND_PLAN), Refused, sentence)

    run(scene())


def test_a_plan_that_waits_keeps_others_out_until_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with overlay(tmp_path) as net, wend.connect(net.urls[3]) as client:
            plan = made(*FIRST)
            await client.prepare_plan(7, encode_slice(make_slice(plan, 3)))
            assert net.plans()[3] == PlanStatus(None, 0, 7)
            sentence = "nothing was changed: peer 3: version 7 of another plan waits for its commit"
            await unchanged(net, made(*SECOND_PLAN), Refused, sentence)
            with raises("plan-not-prepared"):
                await client.commit_plan(plan.id, 8)
            await client.revert_plan(plan.id, 7)
            assert net.plans()[3] is None
            monkeypatch.setattr(followed_plan, "HOLD_S", 0)
            await client.prepare_plan(7, encode_slice(make_slice(plan, 3)))
            with raises("plan-not-prepared"):
                await client.commit_plan(plan.id, 7)

    run(scene())


# ---------------------------------------------------------------- after a restart


def test_a_pushed_plan_survives_a_restart_until_the_folder_has_another(tmp_path: Path) -> None:
    flow: Flow = (0, (1,), 1.0, [(1.0, [(0, 1)])])
    other: Flow = (0, (1,), 2.0, [(0.5, [(0, 1)])])
    third: Flow = (0, (1,), 2.0, [(0.25, [(0, 1)])])
    path = tmp_path / "0.toml"
    lines = ["id = 0", 'listen = "127.0.0.1:0"', 'clients = "127.0.0.1:0"', 'strategy = "planned"', 'plan = "plan"']
    lines += ['store = "store"', "[[neighbours]]", "id = 1", 'address = "127.0.0.1:9"']
    path.write_text("\n".join(lines))
    first, pushed, replaced = (plan_of(2, [(0, 1)], each) for each in (flow, other, third))

    async def on(do: Callable[[PeerProcess, wend.Client], Awaitable[None]]) -> PlanStatus | None:
        service = PeerProcess(load_peer_file(path))
        await service.start()
        try:
            async with wend.connect(f"wend://127.0.0.1:{service.listener.address[1]}") as client:
                await do(service, client)
                return (await client.status()).plan
        finally:
            await service.abort()

    async def nothing(service: PeerProcess, client: wend.Client) -> None:
        await service.reload()  # as SIGHUP does

    async def push(service: PeerProcess, client: wend.Client) -> None:
        await client.prepare_plan(3, encode_slice(make_slice(pushed, 0)))
        await client.commit_plan(pushed.id, 3)

    async def revert(service: PeerProcess, client: wend.Client) -> None:
        await client.revert_plan(pushed.id, 3)

    async def load_again(service: PeerProcess, client: wend.Client) -> None:
        await client.load_plan()

    async def scene() -> None:
        first.write(tmp_path / "plan")
        assert await on(nothing) == PlanStatus(first.id)
        assert await on(push) == PlanStatus(pushed.id, 3)
        assert await on(nothing) == PlanStatus(pushed.id, 3), "the restarted peer forgot the plan"
        assert await on(revert) == PlanStatus(first.id), "it does not know what it followed before"
        assert await on(nothing) == PlanStatus(first.id)
        assert await on(push) == PlanStatus(pushed.id, 3)
        assert await on(load_again) == PlanStatus(first.id)
        assert await on(push) == PlanStatus(pushed.id, 3)
        replaced.write(tmp_path / "plan")
        assert await on(nothing) == PlanStatus(replaced.id), "the folder's plan came last"
        assert await on(push) == PlanStatus(pushed.id, 3)
        (tmp_path / "store.plan").write_bytes(b"garbage")
        assert await on(nothing) == PlanStatus(replaced.id)

    run(scene())


# ---------------------------------------------------------------- parts, and the command


def test_a_part_is_what_its_peer_needs_and_garbage_is_refused() -> None:
    plan = made(*SECOND_PLAN)
    for peer in range(PEERS):
        part = make_slice(plan, peer)
        assert decode_slice(encode_slice(part)) == part
        assert set(part.neighbours) == {a + b - peer for a, b in LINKS if peer in (a, b)}
    good = make_slice(plan, 0)
    assert [flow.receivers for flow in good.flows] == [(3, 4)]
    bad: list[PlanSlice | bytes] = [b"", b"garbage", encode_slice(good)[:-5]]
    fields = {name: getattr(good, name) for name in PlanSlice.__struct_fields__}
    shorter, beyond, unsorted = good.tail[:-4], b"\xff\xff\x00\x00" + good.head[4:], good.graph[::-1]
    for changed in (
        {"tail": shorter}, {"head": beyond}, {"graph": unsorted}, {"neighbours": (7,)}, {"peer": 8}, {"id": -1},
        {"flows": (good.flows[0].__class__(0, (3,), ((99, 1.0),)),)},
        {"flows": (good.flows[0].__class__(0, (3,), ((0, 0.7), (1, 0.7))),)},
    ):  # fmt: skip
        bad.append(PlanSlice(**(fields | changed)))
    for each in bad:
        with raises("malformed"):
            decode_slice(each if isinstance(each, bytes) else encode_slice(each))


def test_the_command_tells_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def scene() -> None:
        plan = made(*FIRST)
        async with overlay(tmp_path) as net:
            plan.write(tmp_path / "plan")
            (tmp_path / "peers").write_text("# all of them\n" + "\n".join(net.urls).replace("wend://", ""))

            def call(folder: str, **options: object) -> None:
                push_command(tmp_path / folder, peers=tmp_path / "peers", watch="0s", **options)  # type: ignore[arg-type]

            with raises("invalid-setting", match="plan is not sound"):
                await asyncio.to_thread(call, "plan")  # its header was made by hand
            honest = plan_of(PEERS, LINKS, *FIRST, honest=True)
            honest.write(tmp_path / "plan")
            await asyncio.to_thread(call, "plan")
            said = capsys.readouterr().out
            assert said.count(f"{honest.id:08x} version 1") == PEERS
            assert f"8 peers follow plan {honest.id:08x}, version 1." in said
            await asyncio.to_thread(lambda: call("plan", as_json=True))
            found = json.loads(capsys.readouterr().out)
            assert (found["version"], found["kept"], len(found["peers"])) == (2, True, PEERS)
            assert {each["former_version"] for each in found["peers"]} == {1}

    run(scene())


def test_the_command_ends_with_1_if_it_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = PushReport(plan=1, version=2, peers=(), kept=False, why="because", astray=(3,))
    monkeypatch.setattr("wend.console.plan.push_command.run_push", lambda *_, **__: report)
    plan_of(PEERS, LINKS, *FIRST, honest=True).write(tmp_path / "plan")
    with pytest.raises(typer.Exit) as ended:
        push_command(tmp_path / "plan", peer=["127.0.0.1:1"])
    assert ended.value.exit_code == 1
    with raises("invalid-setting", match="name the peers of the plan"):
        push_command(tmp_path / "plan")
    with raises("invalid-setting", match="names several peers"):
        push_command(tmp_path / "plan", peer=["a:1,b:2"])
