"""One viewer: a page's WebSocket. docs/watching.md describes the messages of both sides.

Several tasks send, each one message at a time: one the pictures, one each topic, others the answers. A page that does
not read holds up its own messages and nothing else: there are two pictures under way at most, and what changes
meanwhile is sent as one change. A topic that waits for the engine keeps no other one waiting.
"""

import asyncio
import contextlib
import time
import traceback
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from aiohttp import WSMsgType, web

from worldloom.protos.errors import InvalidArgument, RequestError, Unavailable
from worldloom.server.engine.engine import SHUTTING_DOWN
from worldloom.server.engine.followed import FollowedLane
from worldloom.server.engine.picture_requests import PictureRequest, RecentViews, ViewState
from worldloom.server.engine.router import ReplyRoute
from worldloom.server.engine.timing import STAGES
from worldloom.server.logs import Log
from worldloom.server.web.history import History
from worldloom.server.web.messages import (
    MAX_PICTURE_PIXELS,
    MAX_SIZE,
    Act,
    MessageError,
    Play,
    Watch,
    parse_act,
    parse_message,
    parse_play,
    parse_topics,
    parse_watch,
    whole,
)
from worldloom.server.web.pictures import KEPT_BYTES, PICTURE_COPIES, Allowance, PictureMemory, encode_picture, to_json
from worldloom.server.web.playing import Game, OwnWorld, TrialGame, playable_families
from worldloom.server.web.trial_list import TRIALS_S, TrialList
from worldloom.server.web.watched_server import VERSION, WatchedServer
from worldloom.server.web.world_list import Row, WorldList

log = Log("web")

_WORLDS_S, _STATS_S = 0.5, 0.25
"""Time between two looks at what may have changed, by topic."""
_TOPICS_S = 0.1
_SIGN_OF_LIFE_S = 5.0
"""Time after which statistics are sent without a sample, as when the engine is busy: a page takes silence for the
end of the connection."""
_WORLDS_IN_MESSAGE = 256
_SEND_TIMEOUT_S = 30.0
_MESSAGES_A_SECOND = 200
"""Messages of one page a second; it is read no faster."""


class Shared(NamedTuple):
    """All that the viewers of a server share."""

    server: WatchedServer
    worlds: WorldList
    trials: TrialList
    history: History
    route: ReplyRoute
    """Route of the replies to those who play."""
    asked_pixels: Allowance
    """Pixels that the engine is asked for: it draws them in one tick, and clients' steps wait for that."""
    picture_memory: PictureMemory


class Viewer:
    """A page that is connected."""

    def __init__(self, shared: Shared, socket: web.WebSocketResponse) -> None:
        self._shared = shared
        self._server = shared.server
        self._socket = socket
        self._topics: frozenset[str] = frozenset()
        self._watch = Watch()
        self._has_news = asyncio.Event()
        """Set when other views are to be watched, or a picture was shown."""
        self._sent_pictures = self._shown_pictures = 0
        self._largest_picture_bytes = 0
        self._sent_rows: dict[str, Row] = {}
        self._sent_stats = 0
        self._sent_stats_s = time.monotonic()
        self._followed: FollowedLane | None = None
        self._recent = RecentViews()
        self._game: Game | None = None
        self._playing: asyncio.Task[None] | None = None
        """The last part of a game that was begun."""
        self._plays = asyncio.Lock()
        """Held by the part of a game that runs: the next begins when it has ended, or has cleaned up."""

    async def serve(self) -> None:
        """Serve the page until it ends the connection, or does not read any more."""
        topics = (
            self._send_topic("worlds", self._send_worlds, _WORLDS_S),
            self._send_topic("stats", self._send_stats, _STATS_S),
            self._send_topic("trials", self._send_trials, TRIALS_S),
        )
        tasks = [asyncio.create_task(work) for work in (self._read(), self._send_pictures(), *topics)]
        try:
            await self._send({"type": "hello", **self._hello()})
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is not None and not isinstance(error, ConnectionError | TimeoutError):
                    raise error
        finally:
            for task in tasks:
                task.cancel()
            if self._playing is not None:
                self._playing.cancel()
            self._follow(None)
            if self._game is not None:
                with contextlib.suppress(RequestError):
                    await self._game.stop()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, BaseException):
                    # Errors of aiohttp refer to themselves, and to frames that hold a picture which could not be sent.
                    traceback.clear_frames(ended.__traceback__)
            memory, freed_bytes = self._server.engine.directory.memory, PICTURE_COPIES * self._largest_picture_bytes
            self._server.engine.post(lambda: memory.note_release(freed_bytes))

    def _hello(self) -> dict[str, object]:
        server, options = self._server, self._server.options
        renderer = server.engine.renderer
        return {
            "version": VERSION,
            "server": server.address,
            "renderer": renderer.name,
            "device": renderer.device,
            "can_control": options.web_control,
            "has_trials": server.trials is not None,
            "max_tiles": options.web_tiles,
            "max_rate": options.web_rate,
            "max_size": MAX_SIZE,
            "max_pixels": MAX_PICTURE_PIXELS,
            "states": [state.name.lower() for state in ViewState],
            "stages": STAGES,
            "playable": playable_families() if options.web_control else [],
        }

    async def _send(self, message: object) -> None:
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            await self._socket.send_str(to_json(message))

    async def _read(self) -> None:
        """Handle the messages of the page."""
        began_s, count = time.monotonic(), 0
        async for message in self._socket:
            count += 1
            if count >= _MESSAGES_A_SECOND:
                await asyncio.sleep(max(0.0, began_s + 1.0 - time.monotonic()))
                began_s, count = time.monotonic(), 0
            match message.type:
                case WSMsgType.TEXT:
                    await self._handle(message.data)
                case WSMsgType.BINARY:
                    await self._refuse("message", "a binary message: expected a text in JSON")
                case WSMsgType.PING:
                    async with asyncio.timeout(_SEND_TIMEOUT_S):
                        await self._socket.pong(message.data)
                case WSMsgType.ERROR:
                    return

    async def _handle(self, data: str) -> None:
        kind = "message"
        try:
            given = parse_message(data)
            match given["type"]:
                case "shown":
                    shown = min(whole(given, "picture", 0), self._sent_pictures)
                    self._shown_pictures = max(self._shown_pictures, shown)
                case "subscribe":
                    self._topics = parse_topics(given)
                    self._sent_rows, self._sent_stats = {}, 0
                case "watch":
                    kind = "watch"
                    self._set_watch(parse_watch(given, self._server.options.web_tiles, self._server.options.web_rate))
                case "play":
                    kind = "play"
                    play = parse_play(given)
                    self._check_control()
                    self._begin_work(kind, partial(self._play, play))
                case "act":
                    kind = "act"
                    act = parse_act(given)
                    self._check_control()
                    if self._playing is not None and not self._playing.done():
                        raise MessageError("the last step is not answered yet: expected to wait for it")
                    self._begin_work(kind, partial(self._act, act))
                case "stop":
                    kind = "play"
                    self._check_control()
                    self.end_game("stopped")
                case other:
                    raise MessageError(f"type {other[:100]!r}: expected subscribe, watch, shown, play, act or stop")
        except MessageError as error:
            await self._refuse(kind, str(error))
        self._has_news.set()

    async def _refuse(self, about: str, text: str) -> None:
        await self._send({"type": "error", "about": about, "text": text})

    def _set_watch(self, watch: Watch) -> None:
        if watch.follow != self._watch.follow:
            self._follow(watch.follow)
        self._watch = watch

    def _follow(self, lane: tuple[str, int, int] | None) -> None:
        """Have the engine record the steps of a lane, and no longer those of another."""
        engine, before = self._server.engine, self._followed
        if before is not None:
            engine.post(lambda: engine.watching.unfollow(before))
        self._followed = followed = None if lane is None else FollowedLane(*lane)
        if followed is not None:
            engine.post(lambda: engine.watching.follow(followed))

    async def _send_pictures(self) -> None:
        """Ask the engine for pictures and send them, as long as the page shows them."""
        memory = None
        while True:
            watch = self._watch
            if not watch.shows_something or self._sent_pictures - self._shown_pictures >= watch.max_unshown:
                self._has_news.clear()
                await self._has_news.wait()
                continue
            async with self._shared.picture_memory.room(watch.frame_bytes):
                if self._watch is not watch:
                    continue  # other views are on the screen since
                asked_s = time.monotonic()
                memory = await self._send_picture(watch, memory)
            await self._pause(watch, asked_s)

    async def _send_picture(self, watch: Watch, memory: Any) -> Any:
        """Send a picture; return memory for the next, None if it would be too much to keep."""
        picture = await self._ask(watch, memory)
        memory = picture.memory if picture.memory.nbytes <= KEPT_BYTES else None
        self._sent_pictures += 1
        work = asyncio.get_running_loop().run_in_executor(
            None, encode_picture, picture, self._sent_pictures, watch.number, watch.format
        )
        data = await work
        del picture, work
        self._largest_picture_bytes = max(self._largest_picture_bytes, len(data))
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            await self._socket.send_bytes(data)
        return memory

    async def _pause(self, watch: Watch, asked_s: float) -> None:
        """Wait until it is time for the next picture, or something else is watched, though not above the rate."""
        await asyncio.sleep(asked_s + 1 / self._server.options.web_rate - time.monotonic())
        while self._watch is watch and (left_s := asked_s + 1 / watch.rate - time.monotonic()) > 0:
            self._has_news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._has_news.wait()

    async def _ask(self, watch: Watch, memory: Any) -> PictureRequest:
        """Return a picture of these views, when the engine has drawn it."""
        loop, budget = asyncio.get_running_loop(), self._shared.asked_pixels
        # Not a future of the picture, which would refer to itself by its function `deliver`.
        is_drawn: asyncio.Future[None] = loop.create_future()
        taken = await budget.take(len(watch.views) * watch.size**2)

        def receive() -> None:
            budget.give_back(taken)  # not before: the engine draws it also for a viewer that has gone
            if not is_drawn.done():
                is_drawn.set_result(None)

        def deliver(_: PictureRequest) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: there is no viewer left
                loop.call_soon_threadsafe(receive)

        request = PictureRequest(watch.views, watch.size, deliver, memory, self._followed, self._recent)
        engine = self._server.engine
        engine.post(lambda: engine.watching.requests.append(request))
        await is_drawn
        return request

    async def _send_topic(self, topic: str, send: Callable[[], Coroutine[Any, Any, None]], every_s: float) -> None:
        """Send what has changed of a topic, while the page has subscribed to it."""
        while True:
            if topic in self._topics:
                await send()
                await asyncio.sleep(every_s)
            else:
                await asyncio.sleep(_TOPICS_S)

    async def _send_worlds(self) -> None:
        await self._shared.worlds.update()
        before, rows = self._sent_rows, self._shared.worlds.rows
        if before is rows:
            return
        is_first = not before
        changed = [row for name, row in rows.items() if before.get(name) is not row]
        removed = [name for name in before if name not in rows]
        self._sent_rows = rows
        parts = [changed[first : first + _WORLDS_IN_MESSAGE] for first in range(0, len(changed), _WORLDS_IN_MESSAGE)]
        if not parts and (removed or is_first):
            parts = [[]]
        for number, part in enumerate(parts):
            await self._send(
                {
                    "type": "worlds",
                    "changed": part,
                    "removed": [] if number else removed,
                    "is_complete": number == len(parts) - 1,
                }
            )

    async def _send_stats(self) -> None:
        self._sent_stats, rows = self._shared.history.since(self._sent_stats)
        if rows or time.monotonic() - self._sent_stats_s > _SIGN_OF_LIFE_S:
            self._sent_stats_s = time.monotonic()
            await self._send({"type": "stats", "samples": rows})

    async def _send_trials(self) -> None:
        try:
            message = await self._shared.trials.message()
        except Unavailable:
            return
        if message is not None:
            await self._send(message)

    def end_game(self, reason: str) -> None:
        """End the game, if there is one, and tell the page why."""
        self._begin_work("play", partial(self._end_game, reason))

    def _check_control(self) -> None:
        if not self._server.options.web_control:
            raise MessageError("this page only shows: expected a server that was started with --web-control")

    def _begin_work(self, kind: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin a part of a game instead of the one that runs. It has a task of its own: a step may wait for others."""
        if self._playing is not None:
            self._playing.cancel()
        self._playing = asyncio.create_task(self._reported(kind, work))

    async def _reported(self, kind: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do some work, and tell the page if it fails."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            try:
                async with self._plays:
                    await work()
            except (RequestError, MessageError) as error:
                await self._refuse(kind, str(error))
            except (ConnectionError, TimeoutError):
                raise
            except Exception:
                log.error("a step of a viewer failed")
                await self._refuse(kind, "the server failed: its log says where")

    async def _play(self, play: Play) -> None:
        if self._game is not None:
            await self._end_game("another was begun")
        if not self._server.is_ready:
            raise Unavailable(SHUTTING_DOWN)
        if play.trial is not None:
            self._game = await TrialGame.begin(self._server, play.trial)
        else:
            route = self._shared.route
            self._game = await OwnWorld.begin(self._server, route, play.family, play.seed, play.settings)
        log.info("playing", world=self._game.world, trial=self._game.trial)
        await self._send({"type": "playing", **self._game.describe()})

    async def _act(self, act: Act) -> None:
        game = self._game
        if game is None:
            raise MessageError("act without a game: expected play before it")
        try:
            outcome = await game.act(act.actions)
        except InvalidArgument:
            raise  # nothing has changed: the game goes on
        except RequestError as error:
            self._game = None
            await game.stop()
            await self._send({"type": "play_ended", "reason": str(error)})
            return
        await self._send({"type": "acted", "number": act.number, **outcome})
        if game.trial and outcome["state"] == "ended":
            self._game = None
            await self._send({"type": "play_ended", "reason": "the trial is over"})

    async def _end_game(self, reason: str) -> None:
        if self._game is not None:
            await self._game.stop()  # if this is cancelled, whoever comes next ends it
            self._game = None
            await self._send({"type": "play_ended", "reason": reason})
