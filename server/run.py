"""Running a server: start, serve until a signal, answer the requests under way, stop."""

import asyncio
import contextlib
import functools
import gc
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from dm_env_rpc.v1 import dm_env_rpc_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from worldloom.render.choose import choose, explain, make_renderer
from worldloom.render.renderer import Renderer
from worldloom.server.config import Limits, ServeConfig
from worldloom.server.dm_env_rpc.session import Session
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.memory import use_one_heap
from worldloom.server.launch import LISTENING, LIVE_VIEW
from worldloom.server.logs import Log, set_up_logs
from worldloom.server.transports.grpc_streams import Streams, channel_options
from worldloom.server.transports.listening import ListenError, check_free, listen, listen_locally
from worldloom.server.transports.local_peers import AllowedUsers
from worldloom.server.transports.local_socket import LocalSocket
from worldloom.server.transports.open_streams import OpenStreams
from worldloom.server.transports.security import TokenCheck, read_credentials, read_token
from worldloom.worlds.uploads import UploadRules, set_upload_rules

if TYPE_CHECKING:
    from worldloom.server.cogment.orchestrator.trials import Trials
    from worldloom.server.cogment.settings import TrialSettings
    from worldloom.server.web.app import ServerPage

log = Log("running")

GRACE_S = 10.0
"""Time that a stopping server waits for clients to receive their replies, and then for its engine to end."""
_TRIAL_GRACE_S = 0.5
"""Time that it waits after that for replies of Cogment services, whose sending it cannot observe."""
_SWITCH_INTERVAL_S = 0.001
"""Time that a thread may hold the GIL while others wait. The engine and the event loop alternate all the time, and
Python's default of 5 ms is several times what a step takes."""
_STOPPING = (signal.SIGTERM, signal.SIGINT)
"""Signals that stop a server."""
_MAX_ASSET_BYTES = 1 << 30
"""Bytes of meshes and textures from which on a server takes no more uploads: they stay until it ends."""
SERVICE: str = dm_env_rpc_pb2.DESCRIPTOR.services_by_name["Environment"].full_name


def serve(config: ServeConfig) -> None:
    """Serve until SIGTERM or SIGINT. Errors at the start are raised, and leave nothing behind."""
    set_up_logs(config.log_level, config.log_format)
    set_upload_rules(_upload_rules(config.limits))
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    use_one_heap()
    credentials = read_credentials(config.tls_cert, config.tls_key, config.tls_client_ca)
    token = read_token(config.token_file)
    settings = _read_trials(config)
    for address in config.addresses:
        check_free(address)  # before kernels are compiled, which takes a while
    page_address = config.page.web_address
    if page_address is not None:
        check_free(page_address, "--web")
    engine = Engine(functools.partial(_make_renderer, config), config.limits, config.timers)
    open_streams = OpenStreams(config.limits)
    streams = Streams(engine, functools.partial(Session, engine), config.limits, open_streams)
    with contextlib.ExitStack() as at_the_end:
        local = _open_local_socket(config, engine, open_streams, token, at_the_end)
        page = _make_page(config, token, engine, open_streams, streams, local)
        _run(config, credentials, token, engine, open_streams, streams, local, settings, page)


def _upload_rules(limits: Limits) -> UploadRules:
    return UploadRules(
        is_allowed=limits.allow_uploads,
        is_isolated=True,
        max_bytes=limits.max_upload_bytes,
        timeout_s=limits.upload_timeout_s,
        max_asset_bytes=_MAX_ASSET_BYTES,
    )


def _run(
    config: ServeConfig,
    credentials: grpc.ServerCredentials | None,
    token: str | None,
    engine: Engine,
    open_streams: OpenStreams,
    streams: Streams,
    local: LocalSocket | None,
    settings: "TrialSettings | None",
    page: "ServerPage | None",
) -> None:
    engine.start(failed=functools.partial(signal.raise_signal, signal.SIGTERM))
    gc.collect()
    gc.freeze()  # objects that exist now stay: the garbage collector need not traverse them
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, credentials, token, engine, open_streams, streams, local, settings, page))
    finally:
        if page is not None:
            page.stop()
        _stop(engine)
    if engine.has_failed:
        raise RuntimeError("the engine failed: the log above says where; please report it")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop if the extra `fast` is installed; None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(
    config: ServeConfig,
    credentials: grpc.ServerCredentials | None,
    token: str | None,
    engine: Engine,
    open_streams: OpenStreams,
    streams: Streams,
    local: LocalSocket | None,
    settings: "TrialSettings | None",
    page: "ServerPage | None",
) -> None:
    server = grpc.aio.server(
        interceptors=[] if token is None else [TokenCheck(token, lambda: engine.post(engine.reject_stream))],
        options=channel_options(config.limits),
    )
    server.add_generic_rpc_handlers([streams.handler(SERVICE)])
    services, trials = [SERVICE], None
    if settings is not None:
        more, trials = _add_trials(server, engine, settings)
        services += more
    health_service = await _add_health(server, services)
    reflection.enable_server_reflection([*services, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    with contextlib.ExitStack() as at_the_end:
        addresses = [listen(server, address, credentials, at_the_end) for address in config.addresses]
        signals = _catch_signals()
        await server.start()
        heartbeats = None if local is None else asyncio.create_task(_serve_locally(local))
        if page is not None:
            engine.page_url = url = page.open(str(addresses[0]), trials, asyncio.get_running_loop())
            log.info("serving a page", url=url)
            print(f"{LIVE_VIEW}{url}", flush=True)
        for address in addresses:
            log.info("listening", address=address)
            print(f"{LISTENING}{address}", flush=True)

        signal_name = (await signals.get()).name
        if page is not None:
            page.is_ready = False
        await health_service.enter_graceful_shutdown()
        if config.drain_s:
            log.info("draining", signal=signal_name, drain_s=config.drain_s)
            open_streams.refuse()
            await _first_of(open_streams.have_ended(), signals.get(), timeout_s=config.drain_s)
        log.info("stopping", signal=signal_name)
        streams.drain()
        if local is not None and heartbeats is not None:
            heartbeats.cancel()
            local.drain()
        if trials is not None:
            trials.drain()
        engine.drain()
        await _first_of(_all_ended(streams, local, trials), signals.get(), timeout_s=GRACE_S)
        await server.stop(grace=None if trials is None else _TRIAL_GRACE_S)
        await _wait_for_other_tasks()
    _ignore_signals()
    log.info("stopped")


def _open_local_socket(
    config: ServeConfig,
    engine: Engine,
    open_streams: OpenStreams,
    token: str | None,
    at_the_end: contextlib.ExitStack,
) -> LocalSocket | None:
    """Open the socket for clients on this machine. Where none can be made, and none was asked for, do without."""
    if not config.has_local_socket:
        return None
    users = AllowedUsers.parse(config.local_socket_user)
    try:
        listener, address = listen_locally(config.local_socket_path, users.has_others, at_the_end)
    except ListenError as error:
        if config.local_socket != "auto":
            raise
        log.warning("no local socket: clients on this machine use gRPC", reason=error)
        return None
    local = LocalSocket(
        listener, address, engine, functools.partial(Session, engine), config.limits, open_streams, users, token
    )
    engine.local_socket = local.address
    return local


def _make_page(
    config: ServeConfig,
    token: str | None,
    engine: Engine,
    open_streams: OpenStreams,
    streams: Streams,
    local: LocalSocket | None,
) -> "ServerPage | None":
    """Make the page of --web. Without it nothing of its libraries is imported."""
    address = config.page.web_address
    if address is None:
        return None
    from worldloom.server.web.app import ServerPage
    from worldloom.server.web.http_server import WebAddress
    from worldloom.server.web.watched_server import WatchedServer

    def count_waiting() -> int:
        return streams.waiting_requests + (0 if local is None else local.waiting_requests)

    where = WebAddress(address, config.page.web_host, token, config.tls_cert, config.tls_key, config.tls_client_ca)
    return ServerPage(where, WatchedServer(engine, config.page, open_streams, count_waiting))


def _read_trials(config: ServeConfig) -> "TrialSettings | None":
    """Read the file of --cogment. Without it nothing of the Cogment API is imported."""
    if config.cogment is None:
        return None
    from worldloom.server.cogment.files.trial_file import read_trial_file

    return read_trial_file(config.cogment, config.limits)


def _add_trials(server: grpc.aio.Server, engine: Engine, settings: "TrialSettings") -> "tuple[tuple[str, ...], Trials]":
    from worldloom.server.cogment.services import SERVICES, add_services

    return SERVICES, add_services(server, engine, settings)


async def _serve_locally(local: LocalSocket) -> None:
    local.start()
    log.info("listening locally", socket=local.address.address)
    await local.send_heartbeats()


async def _all_ended(streams: Streams, local: LocalSocket | None, trials: "Trials | None") -> None:
    """Wait until all streams and trials have ended. If this is cancelled, no trial waits for its agents any more."""
    waits: list[Awaitable[object]] = [streams.have_ended()]
    if local is not None:
        local_ended: asyncio.Future[None] = asyncio.wrap_future(local.has_ended)
        waits.append(asyncio.shield(local_ended))  # which the engine's thread completes
    if trials is not None:
        waits.append(trials.close())
    await asyncio.gather(*waits)


async def _add_health(server: grpc.aio.Server, services: Sequence[str]) -> health.aio.HealthServicer:
    servicer = health.aio.HealthServicer()
    for service in services:
        await servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    return servicer


def _ignore_signals() -> None:
    """Ignore further signals: the server has stopped, and the process is about to end with code 0.

    The event loop would restore their default when it closes, and a signal would then change the exit code.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    for one in _STOPPING:
        asyncio.get_running_loop().remove_signal_handler(one)
        signal.signal(one, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)


def _catch_signals() -> "asyncio.Queue[signal.Signals]":
    """Return a queue of the signals to stop."""
    caught: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for one in _STOPPING:
        asyncio.get_running_loop().add_signal_handler(one, caught.put_nowait, one)
    return caught


async def _first_of(*waits: Coroutine[Any, Any, object], timeout_s: float) -> None:
    """Wait until one of these is done, and cancel the others."""
    tasks = [asyncio.ensure_future(one) for one in waits]
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def _wait_for_other_tasks() -> None:
    """Wait for the handlers of calls that were cut off. gRPC does not, and warns if the loop ends before them."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=GRACE_S)


def _make_renderer(config: ServeConfig) -> Renderer:
    choice = choose(config.renderer, config.device)
    renderer = make_renderer(choice.name, choice.device, config.threads)
    log.info("drawing", renderer=renderer.name, device=renderer.device, reason=explain(choice, config.renderer))
    return renderer


def _stop(engine: Engine) -> None:
    """Stop the engine, or give up if it hangs: its thread does not keep the process alive."""
    stopping = threading.Thread(target=engine.stop, daemon=True)
    stopping.start()
    stopping.join(GRACE_S)
    if stopping.is_alive():
        raise RuntimeError(f"the engine did not end within {GRACE_S:g} s: a family's step or a driver hangs")
