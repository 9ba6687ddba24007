"""The squads' live channels over real sockets: filters, cursors, gaps, slow clients, refusals before the upgrade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from actors.squad.bus import ALL_FRAMES, SQUAD_FRAMES
from actors.squad.events import SquadEvent
from gateway.routes import squad_channels
from gateway.settings import Settings
from tests.gateway.kit import PATIENCE, Connection
from tests.gateway.squad_kit import BASE, Api, failed, open_api, squad_body
from tests.gateway.test_websocket import upgrade_bytes

NAMES = ("squad:task-completed", "squad:task-started", "squad:budget-warning")
CHANNELS = ("/squads/events", "/squads/ws", "/squads/{id}/events", "/squads/{id}/ws")
RESUMABLE = ("/squads/events", "/squads/ws", "/squads/{id}/ws")


def show(api: Api, squad_id: str, count: int = 1, name: str = "squad:task-completed") -> None:
    """Publish events numbered from 0 in one go."""
    for number in range(count):
        api.runtime.squads.bus.publish(SquadEvent(name, squad_id, {"squadId": squad_id, "n": number}, 1.0))


class Client:
    """A client of a channel of either kind: what it gets is (event, id, data)."""

    def __init__(self, connection: Connection | WebSocketConnection) -> None:
        self._connection = connection
        self._buffer = b""

    async def next(self) -> tuple[str, str, Any]:
        with trio.fail_after(PATIENCE):
            if isinstance(self._connection, WebSocketConnection):
                message = msgspec.json.decode(await self._connection.get_message())
                return message["event"], message.get("id", ""), message["data"]
            while b"\n\n" not in self._buffer:
                piece = await self._connection.chunk()
                if not piece:
                    raise EOFError(self._buffer)
                self._buffer += piece
        block, _, self._buffer = self._buffer.partition(b"\n\n")
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
        return fields["event"], fields.get("id", ""), msgspec.json.decode(fields["data"])

    async def take(self, count: int) -> list[tuple[str, str, Any]]:
        return [await self.next() for _ in range(count)]


class channel:  # noqa: N801 - used like a function
    """Open a channel for a block."""

    def __init__(self, api: Api, path: str, squad_id: str = "", query: str = "", **headers: str) -> None:
        self._path = BASE + path.replace("{id}", squad_id) + query
        self._api, self._headers = api, headers

    async def __aenter__(self) -> Client:
        if self._path.partition("?")[0].endswith("/ws"):
            self._manager: Any = self._api.server.websocket(self._path, **self._headers)
            return Client(await self._manager.__aenter__())
        self._manager = self._api.server.connect()
        connection = await self._manager.__aenter__()
        lines = [f"GET {self._path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in self._headers.items()]
        await connection.send(("\r\n".join(lines) + "\r\n\r\n").encode())
        status, headers = await connection.head()
        assert status == 200
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-cache"
        return Client(connection)

    async def __aexit__(self, *exc: object) -> None:
        await self._manager.__aexit__(*exc)


async def refused(api: Api, path: str, status: int, code: str, **headers: str) -> str:
    """Ask for a channel, as an upgrade where it is a socket, and return the refusal's message."""
    async with api.server.connect() as connection:
        if path.partition("?")[0].endswith("/ws"):
            await connection.send(upgrade_bytes(BASE + path, **headers))
        else:
            lines = [f"GET {BASE + path} HTTP/1.1", "Host: localhost"]
            lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
            await connection.send(("\r\n".join(lines) + "\r\n\r\n").encode())
        return failed(await connection.answer(), status, code)


@pytest.mark.parametrize("path", CHANNELS)
async def test_a_channel_carries_what_happens_after_it_was_opened(
    door: Settings, tmp_path: Path, path: str
) -> None:
    async with open_api(tmp_path, limits=door) as api:
        mine, other = await api.squad("mine"), await api.squad("other")
        async with channel(api, path, mine) as client:
            show(api, mine, 1, "squad:task-started")
            show(api, other, 1)
            show(api, mine, 1)
            found = await client.take(3 if "{id}" not in path else 2)
    squads = [data["squadId"] for _, _, data in found]
    assert squads == ([mine, mine] if "{id}" in path else [mine, other, mine])
    assert found[0][0] == "squad:task-started"
    assert all((id_ != "") == (path in RESUMABLE) for _, id_, _ in found)


@pytest.mark.parametrize("path", CHANNELS)
async def test_types_leave_only_the_named_events(door: Settings, tmp_path: Path, path: str) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        query = "?types=squad:task-completed,%20squad:budget-exceeded,"
        async with channel(api, path, squad_id, query) as client:
            for name in (*NAMES, *NAMES):
                show(api, squad_id, 1, name)
            assert [name for name, _, _ in await client.take(2)] == ["squad:task-completed"] * 2


@pytest.mark.parametrize("path", CHANNELS)
@pytest.mark.parametrize("types", ["squad:task-completed,foo:bar", "foo:bar", "stream:gap,foo:bar"])
async def test_a_foreign_name_is_refused_before_anything_opens(
    door: Settings, tmp_path: Path, path: str, types: str
) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        message = await refused(api, f"{path.replace('{id}', squad_id)}?types={types}", 400, "BAD_REQUEST")
        assert "foo:bar" in message


@pytest.mark.parametrize("path", ["/squads/nobody/events", "/squads/nobody/ws"])
async def test_an_unknown_squad_has_no_channel(door: Settings, tmp_path: Path, path: str) -> None:
    async with open_api(tmp_path, limits=door) as api:
        await refused(api, path, 404, "NOT_FOUND")


@pytest.mark.parametrize("path", RESUMABLE)
@pytest.mark.parametrize("cursor", ["7", "abc", "-5", "boot-", "boot-x", "boot-1%0A2", "boot-" + "9" * 30])
async def test_a_cursor_that_is_none_is_refused(
    door: Settings, tmp_path: Path, path: str, cursor: str
) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        await refused(api, f"{path.replace('{id}', squad_id)}?cursor={cursor}", 400, "BAD_REQUEST")


def header_values(newest: int) -> list[str]:
    """Return what clients of other streams send as their cursor."""
    numbers = ["0", "-1", "007", "1e3", " 12 ", str(2**63 - 1), str(2**64), "9" * 5000]
    return [*numbers, *map(str, (newest, newest + 1)), "abc", "1,2", "1;2", "3, 7", "%31"]


@pytest.mark.parametrize("path", RESUMABLE)
async def test_no_cursor_a_client_makes_up_replays_everything(
    door: Settings, tmp_path: Path, path: str
) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        show(api, squad_id, 20)
        bus = api.runtime.squads.bus
        for value in header_values(bus.last):
            await refused(api, path.replace("{id}", squad_id), 400, "BAD_REQUEST", Last_Event_ID=value)
        for number in (bus.last + 1, bus.last + 1_000_000, 10**18 - 1):
            async with channel(api, path, squad_id, f"?cursor={bus.boot}-{number}") as client:
                assert (await client.next())[0] == "stream:gap"
        disagreeing = {"Last_Event_ID": f"{bus.boot}-1"}
        async with channel(api, path, squad_id, f"?cursor={bus.boot}-{bus.last}", **disagreeing) as client:
            show(api, squad_id, 1, "squad:task-started")
            assert (await client.next())[0] == "squad:task-started"


@pytest.mark.parametrize("path", CHANNELS)
async def test_line_ends_in_what_happened_forge_nothing(door: Settings, tmp_path: Path, path: str) -> None:
    text = "a\revent: done\rid: 999\r\n\r\ndata: x\u2028\u0085"
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        async with channel(api, path, squad_id) as client:
            payload = {"squadId": squad_id, "text": text}
            api.runtime.squads.bus.publish(SquadEvent("squad:agent-response", squad_id, payload, 1.0))
            show(api, squad_id)
            first, second = await client.take(2)
    assert (first[0], first[2]["text"]) == ("squad:agent-response", text)
    assert second[0] == "squad:task-completed"


@pytest.mark.parametrize("path", CHANNELS)
async def test_a_client_that_leaves_is_let_go(door: Settings, tmp_path: Path, path: str) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        metrics = api.server.endpoint.metrics
        for _ in range(5):
            async with channel(api, path, squad_id) as client:
                show(api, squad_id)
                await client.next()
        with trio.fail_after(PATIENCE):
            while open_streams(metrics.render()):  # noqa: ASYNC110 - the door says nothing when it lets go
                await trio.sleep(0.01)


def open_streams(figures: bytes) -> float:
    """Return how many streams and sockets are open."""
    names = ("greenroom_http_streams ", "greenroom_http_sockets ")
    values = [float(line.split()[-1]) for line in figures.decode().splitlines() if line.startswith(names)]
    assert len(values) == 2, figures
    return sum(values)


@pytest.mark.parametrize("path", CHANNELS)
async def test_who_may_not_read_is_refused_before_anything_opens(
    door: Settings, tmp_path: Path, path: str
) -> None:
    limits = msgspec.structs.replace(door, require_auth=True, master_key="m")
    async with open_api(tmp_path, limits=limits) as api:
        writes = await api.runtime.keys.issue("w", ["agent_write"])
        found = path.replace("{id}", "any")
        await refused(api, found, 401, "UNAUTHORIZED")
        await refused(api, found, 403, "FORBIDDEN", X_API_Key=writes.text)


@pytest.mark.parametrize("path", CHANNELS)
async def test_a_client_whose_key_is_revoked_gets_nothing_more(
    door: Settings, tmp_path: Path, path: str
) -> None:
    limits = msgspec.structs.replace(door, require_auth=True, master_key="m")
    async with open_api(tmp_path, limits=limits) as api:
        made = await api.ask("POST", "/squads", squad_body(tmp_path / "ws"), X_API_Key="m")
        squad_id = made.json["id"]
        mine, other = [await api.runtime.keys.issue("r", ["agent_read"]) for _ in range(2)]
        async with (
            channel(api, path, squad_id, X_API_Key=mine.text) as client,
            channel(api, path, squad_id, X_API_Key=other.text) as stays,
        ):
            show(api, squad_id)
            await client.next()
            await api.runtime.keys.revoke(mine.key.id)
            show(api, squad_id)
            with pytest.raises((EOFError, ConnectionClosed)):
                await client.next()
            await stays.take(2)


@pytest.mark.parametrize("path", RESUMABLE)
@pytest.mark.parametrize("how", ["cursor", "lastEventId", "header"])
async def test_a_client_that_comes_back_misses_nothing_and_gets_nothing_twice(
    door: Settings, tmp_path: Path, path: str, how: str
) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        async with channel(api, path, squad_id) as client:
            show(api, squad_id, 3)
            last = (await client.take(3))[-1][1]
        show(api, squad_id, 2)
        query = "" if how == "header" else f"?{how}={last}"
        headers = {"Last_Event_ID": last} if how == "header" else {}
        async with channel(api, path, squad_id, query, **headers) as client:
            show(api, squad_id, 2, "squad:task-started")
            found = await client.take(4)
    assert [(name, data["n"]) for name, _, data in found] == [
        ("squad:task-completed", 0),
        ("squad:task-completed", 1),
        ("squad:task-started", 0),
        ("squad:task-started", 1),
    ]


@pytest.mark.parametrize("path", RESUMABLE)
async def test_a_replay_is_filtered_like_what_is_live(door: Settings, tmp_path: Path, path: str) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        start = f"{api.runtime.squads.bus.boot}-{api.runtime.squads.bus.last}"
        for name in NAMES:
            show(api, squad_id, 1, name)
        query = f"?cursor={start}&types=squad:task-started"
        async with channel(api, path, squad_id, query) as client:
            show(api, squad_id, 1, "squad:task-started")
            assert [name for name, _, _ in await client.take(2)] == ["squad:task-started"] * 2


@pytest.mark.parametrize("path", RESUMABLE)
async def test_a_cursor_of_another_boot_gets_a_gap_first_and_then_the_oldest(
    door: Settings, tmp_path: Path, path: str
) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        async with channel(api, path, squad_id, "?cursor=0123456789ab-7&types=squad:created") as client:
            (gap, gap_id, data), (name, id_, _) = await client.take(2)
    assert (gap, gap_id, name) == ("stream:gap", "", "squad:created")
    assert data == {"requested": "0123456789ab-7", "oldestAvailable": id_, "reason": "restarted"}


@pytest.mark.parametrize("path", RESUMABLE)
async def test_a_cursor_too_old_for_the_ring_gets_a_gap_first(
    door: Settings, tmp_path: Path, path: str
) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        cursor = f"{api.runtime.squads.bus.boot}-1"
        show(api, squad_id, 2 * ALL_FRAMES + SQUAD_FRAMES)
        async with channel(api, path, squad_id, f"?cursor={cursor}") as client:
            (gap, _, data), (_, id_, _) = await client.take(2)
    assert (gap, data["reason"], data["oldestAvailable"]) == ("stream:gap", "evicted", id_)


@pytest.mark.parametrize("path", CHANNELS)
async def test_a_client_that_lags_is_told_how_much_it_missed_and_goes_on(
    door: Settings, tmp_path: Path, path: str
) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        async with channel(api, path, squad_id) as client:
            show(api, squad_id, 1)
            await client.next()
            count = 2 * ALL_FRAMES + SQUAD_FRAMES
            # In one go: no reader gets a turn in between, just as when its socket is full.
            show(api, squad_id, count)
            name, id_, data = await client.next()
            assert (name, id_) == ("stream:lagged", "")
            _, _, oldest = await client.next()
            assert oldest["n"] == data["dropped"]


@pytest.mark.parametrize("path", CHANNELS)
async def test_a_stalled_client_costs_no_memory_and_delays_nobody(
    door: Settings, tmp_path: Path, path: str
) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        async with channel(api, path, squad_id), channel(api, path, squad_id) as reader:
            for _ in range(20):
                show(api, squad_id, 200)
                found = await reader.take(200)
                assert found[-1][2]["n"] == 199


@pytest.mark.parametrize("path", CHANNELS)
async def test_a_quiet_sse_channel_is_kept_alive_and_a_socket_is_pinged(
    door: Settings, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(squad_channels, "HEARTBEAT", 0.05)
    async with open_api(tmp_path, limits=msgspec.structs.replace(door, ping_seconds=0.05)) as api:
        squad_id = await api.squad()
        target = BASE + path.replace("{id}", squad_id)
        async with api.server.connect() as connection:
            if path.endswith("/ws"):
                await connection.send(upgrade_bytes(target))
                assert (await connection.head())[0] == 101
                assert await connection.exactly(1) == b"\x89"
            else:
                await connection.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                await connection.head()
                assert await connection.chunk() == b": ping\n\n"


@pytest.mark.parametrize("path", ["/squads/{id}/events", "/squads/{id}/ws"])
async def test_a_deleted_squad_s_channel_ends_after_saying_so(
    door: Settings, tmp_path: Path, path: str
) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        async with channel(api, path, squad_id) as client:
            assert (await api.ask("DELETE", f"/squads/{squad_id}")).status == 200
            assert (await client.next())[0] == "squad:deleted"
            with pytest.raises((EOFError, ConnectionClosed)):
                await client.next()


async def test_what_a_socket_s_client_says_is_ignored(door: Settings, tmp_path: Path) -> None:
    async with open_api(tmp_path, limits=door) as api:
        squad_id = await api.squad()
        async with api.server.websocket(f"{BASE}/squads/ws") as websocket:
            for _ in range(100):
                await websocket.send_message("hello")
            show(api, squad_id)
            assert msgspec.json.decode(await websocket.get_message())["event"] == "squad:task-completed"


async def test_a_plain_get_of_a_socket_is_told_to_upgrade(door: Settings, tmp_path: Path) -> None:
    async with open_api(tmp_path, limits=door) as api:
        answer = await api.ask("GET", "/squads/ws")
        failed(answer, 426)
        assert answer.headers["upgrade"] == "websocket"
