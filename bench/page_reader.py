"""A page that shows tiles, without a browser: reads pictures from a server's WebSocket as the page does.

    python -m worldloom.bench.page_reader URL TILES

Commands come on stdin. `watch` connects, asks for tiles of all lanes that there are, and prints the seconds until the
first picture came; `pause` ends that, and prints how many came. Each is one line.
"""

import asyncio
import json
import struct
import sys
import time

import aiohttp

SIZE = 64
RATE = 4
"""Pictures a second that the page asks for."""


class Reader:
    """A connection that counts its pictures."""

    def __init__(self, url: str, tiles: int) -> None:
        self._url = f"{url}live"
        self._tiles = tiles
        self.pictures = 0
        self.has_first = asyncio.Event()

    async def run(self) -> None:
        """Show tiles until cancelled."""
        async with aiohttp.ClientSession() as session, session.ws_connect(self._url, max_msg_size=1 << 26) as socket:
            await socket.send_json({"type": "subscribe", "topics": ["worlds", "stats"]})
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    (header_bytes,) = struct.unpack_from("<I", message.data)
                    header = json.loads(message.data[4 : 4 + header_bytes])
                    self.pictures += 1
                    self.has_first.set()
                    await socket.send_json({"type": "shown", "picture": header["picture"]})
                elif (told := json.loads(message.data))["type"] == "worlds":
                    views = [[row["id"], lane, 0, "", "rgb"] for row in told["changed"] for lane in range(row["lanes"])]
                    await socket.send_json(
                        {"type": "watch", "number": 1, "views": views[: self._tiles], "size": SIZE, "rate": RATE}
                    )


async def main(url: str, tiles: str) -> None:
    """Obey the commands on stdin."""
    loop = asyncio.get_running_loop()
    work: asyncio.Task[None] | None = None
    reader = Reader(url, int(tiles))
    while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if word == "watch":
            reader, began_s = Reader(url, int(tiles)), time.perf_counter()
            work = asyncio.create_task(reader.run())
            first = asyncio.create_task(reader.has_first.wait())
            await asyncio.wait({work, first}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            print(time.perf_counter() - began_s, flush=True)
        elif work is not None:
            work.cancel()
            await asyncio.wait({work})
            print(reader.pictures, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
