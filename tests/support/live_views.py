"""A viewer of live views, over the WebSocket of a page."""

import asyncio
import json
import struct
from typing import Any, TypeAlias

import aiohttp
import numpy as np

TIMEOUT_S = 30.0
TLS_END_S = 0.25
Socket: TypeAlias = aiohttp.ClientWebSocketResponse


def session(token: str | None = None) -> aiohttp.ClientSession:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))


async def get(url: str, token: str | None = None, **options: Any) -> tuple[int, str]:
    async with session(token) as one, one.get(url, **options) as reply:
        found = reply.status, await reply.text()
    await end_of_tls(options)
    return found


async def end_of_tls(options: dict[str, Any]) -> None:
    """Let connections with TLS end: closing a session of aiohttp does not wait for them."""
    if "ssl" in options:
        await asyncio.sleep(TLS_END_S)


async def receive(socket: "Socket[bool]", kind: str) -> dict[str, Any]:
    """The next text of this type."""
    while True:
        message = await socket.receive(TIMEOUT_S)
        assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), message
        if message.type is aiohttp.WSMsgType.TEXT and (found := json.loads(message.data))["type"] == kind:
            assert isinstance(found, dict)
            return found


async def receive_frames(socket: "Socket[bool]", views: int) -> np.ndarray:
    """The frames of the next picture in which all views are drawn."""
    while True:
        message = await socket.receive(TIMEOUT_S)
        if message.type is not aiohttp.WSMsgType.BINARY:
            continue
        (length,) = struct.unpack_from("<I", message.data)
        header = json.loads(message.data[4 : 4 + length])
        await socket.send_json({"type": "shown", "picture": header["picture"]})
        offsets = [frame[4] for frame in header["frames"]]
        if len(offsets) == views and min(offsets) >= 0:
            count = header["size"] ** 2 * 3
            payload = np.frombuffer(message.data, np.uint8, offset=4 + length)
            return np.stack(
                [payload[offset : offset + count].reshape(header["size"], header["size"], 3) for offset in offsets]
            )


async def watch_all(
    hub: str, path: str, size: int, token: str | None = None, **options: Any
) -> tuple[dict[str, Any], np.ndarray]:
    """A server's description of itself, and the frames of all lanes of its first world."""
    async with session(token) as one, one.ws_connect(f"{hub}{path[1:]}/live", **options) as socket:
        hello = await receive(socket, "hello")
        await socket.send_json({"type": "subscribe", "topics": ["worlds"]})
        world = (await receive(socket, "worlds"))["changed"][0]
        views = [[world["id"], lane, 0, "", "rgb"] for lane in range(world["lanes"])]
        request = {"type": "watch", "number": 1, "views": views, "size": size, "rate": 30, "format": "raw"}
        await socket.send_json({**request, "follow": None})
        frames = await receive_frames(socket, len(views))
    await end_of_tls(options)
    return hello, frames
