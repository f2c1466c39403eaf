"""Attacks on the page of a server: it goes on for others, clients step on, and memory and descriptors come back.

Bounds of time are for a machine of two cores that others use too.
"""

import contextlib
import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.support.server_process import ServerProcess
from tests.support.raw_web import PING, RawConnection, RawSocket, ask, frame, request_bytes, viewing
from tests.support.served_page import wait_for
from tests.support.stepping_client import SteppingClient
from worldloom.server.web.http_server import MAX_CONNECTIONS

MIB = 1 << 20
LONGEST_STEP_S = 1.5
"""A step of 64 lanes takes 10 ms here; all else is other work of the machine."""
HOSTILE = "<img src=x onerror=alert(1)>"
TRIALS = f"""\
actor_classes: [{{id: "{HOSTILE}"}}]
trial_params:
  environment:
    config:
      world: {{family: maze, size: 5}}
      actor_classes: {{"{HOSTILE}": {{observations: [reward]}}}}
  actors:
    - {{actor_class: "{HOSTILE}", endpoint: human}}
"""
MAZE = {"type": "play", "family": "maze", "settings": {"size": 5}, "seed": 3}
ALL = {"type": "subscribe", "topics": ["worlds", "stats", "trials"]}


@contextlib.contextmanager
def attacked(folder: Path) -> Iterator[ServerProcess]:
    trials = folder / "trials.yaml"
    trials.write_text(TRIALS)
    server = ServerProcess("--web", "127.0.0.1:0", "--web-control", "--cogment", str(trials))
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with attacked(tmp_path_factory.mktemp("attacks")) as made:
        yield made
        check_ends(made, signal.SIGTERM)


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[SteppingClient]:
    with SteppingClient(server.address, 64) as made:
        yield made


@pytest.fixture(scope="module")
def most_descriptors(server: ServerProcess, client: SteppingClient) -> int:
    """Return the most descriptors that the server has when nobody attacks.

    Its libraries may open a few more for themselves at any time. What each attack left would soon be more than these.
    """
    ask(server.page, "/")
    client.pace()
    return descriptors(server) + 3


@pytest.fixture(autouse=True)
def unharmed(server: ServerProcess, client: SteppingClient, most_descriptors: int) -> Iterator[None]:
    """Clients step while a test attacks, and afterwards nothing is left of it."""
    ask(server.page, "/")
    client.pace()
    yield
    pace = client.pace()
    assert pace.longest_s < LONGEST_STEP_S, pace
    assert pace.steps > 5 * pace.seconds, pace
    assert "Traceback" not in server.log
    most = most_descriptors
    wait_for(lambda: descriptors(server) <= most, lambda: f"{descriptors(server)} descriptors, expected {most} at most")


def descriptors(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def check_ends(server: ServerProcess, signal_number: signal.Signals) -> None:
    """End it while people watch and play, and some of them do not read."""
    playing, trial, silent = (RawSocket(server.page, receive_buffer=4096) for _ in range(3))
    for viewer in (playing, trial, silent):
        assert viewer.upgrade().status == 101
        viewer.send_json(ALL)
    playing.send_json(MAZE)
    world = playing.next("playing")["world"]
    trial.send_json({"type": "play", "trial": ""})
    assert trial.next("playing")["trial"]
    views = [[world, 0, 0, "", "rgb"]] * 256
    silent.send_json({"type": "watch", "views": views, "size": 128, "rate": 30, "follow": [world, 0, 0]})
    time.sleep(0.3)
    began_s = time.monotonic()
    server.process.send_signal(signal_number)
    assert server.wait(15.0) == 0
    assert time.monotonic() - began_s < 12.0
    for viewer in (playing, trial, silent):
        viewer.close()
    assert " ERROR " not in server.log, server.log[-4000:]
    assert "Traceback" not in server.log, server.log[-4000:]


def test_ctrl_c(tmp_path: Path) -> None:
    with attacked(tmp_path) as other:
        check_ends(other, signal.SIGINT)


def test_names_of_clients_come_as_texts_only(server: ServerProcess) -> None:
    with viewing(server.page) as viewer:
        viewer.send_json(ALL)
        viewer.send_json({"type": "play", "trial": ""})
        trial = viewer.next("playing")["trial"]
        running = viewer.next("trials")["running"]
        while not running:
            running = viewer.next("trials")["running"]
        (actor,) = running[0]["actors"]
        assert (running[0]["id"], actor["class"]) == (trial, HOSTILE)
        for target in ("/", "/login", "/metrics", "/api/servers", f"/{HOSTILE}", f"/static/{HOSTILE}"):
            assert HOSTILE not in ask(server.page, target.replace(" ", "%20")).text
            refused = ask(server.page, target.replace(" ", "%20"), {"Host": HOSTILE})
            assert refused.header("content-type") == "text/plain; charset=utf-8"
        viewer.send_json({"type": "stop"})
        assert viewer.next("play_ended")["reason"] == "stopped"
    assert HOSTILE not in "".join(re.findall(r"path=\S+", server.log))


@pytest.mark.parametrize(
    "line",
    [
        b"GET /static/../app.py HTTP/1.1",
        b"GET /static/../../config.py HTTP/1.1",
        b"GET /static/..%2f..%2fconfig.py HTTP/1.1",
        b"GET /static/%2e%2e/app.py HTTP/1.1",
        b"GET /static/%252e%252e/app.py HTTP/1.1",
        b"GET /static/..\\app.py HTTP/1.1",
        b"GET /static/%5c..%5capp.py HTTP/1.1",
        b"GET /static//etc/passwd HTTP/1.1",
        b"GET /static/%2fetc%2fpasswd HTTP/1.1",
        b"GET //static/main.js HTTP/1.1",
        b"GET /static/main.js%00.txt HTTP/1.1",
        b"GET /static/main.js\x00 HTTP/1.1",
        b"GET /static/main.js/ HTTP/1.1",
        b"GET /static/ HTTP/1.1",
        b"GET /static/__init__.py HTTP/1.1",
        b"GET /static/" + b"a" * 8000 + b" HTTP/1.1",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1",
        b"GET ../app.py HTTP/1.1",
        b"GET file:///etc/passwd HTTP/1.1",
        b"GET /\xff\xfe HTTP/1.1",
        b"GET / HTTP/9.9",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0",
        b"x" * 100_000,
    ],
    ids=lambda line: ascii(line[:40]),
)
def test_request_lines(line: bytes, server: ServerProcess) -> None:
    with RawConnection(server.page) as connection:
        with contextlib.suppress(ConnectionError):
            connection.send(line + b"\r\nHost: localhost\r\n\r\n")
        response = connection.read_response()
    assert response.status in (400, 404, 405, 421)
    assert response.header("content-security-policy") is not None
    assert response.header("content-type") == "text/plain; charset=utf-8"
    assert len(response.body) < 300


@pytest.mark.parametrize("headers", [b"X: " + b"a" * 100_000, b"X: a\r\n" * 1000, b"Cookie: " + b"a=b;" * 30_000])
def test_giant_headers(headers: bytes, server: ServerProcess) -> None:
    with RawConnection(server.page) as connection:
        with contextlib.suppress(ConnectionError):
            connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n\r\n")
        assert connection.read_response().status == 400


def test_silent_connections(server: ServerProcess) -> None:
    """A thousand that say nothing take the place of each other, and of nobody who watches."""
    with viewing(server.page) as viewer:
        silent = [RawConnection(server.page) for _ in range(1000)]
        wait_for(lambda: descriptors(server) < MAX_CONNECTIONS + 100, lambda: f"{descriptors(server)} descriptors")
        for _ in range(20):
            asked_s = time.monotonic()
            assert ask(server.page, "/").status == 200
            assert viewer.refused("x")[0] == "message"
            assert time.monotonic() - asked_s < LONGEST_STEP_S
        for connection in silent:
            connection.close()


def test_requests_whose_answers_nobody_reads(server: ServerProcess) -> None:
    before = server.resident_bytes
    greedy = [RawConnection(server.page, receive_buffer=4096) for _ in range(50)]
    for connection in greedy:
        push(connection, request_bytes(connection.host, "/static/views.css"), 0.02)
    assert server.resident_bytes - before < 64 * MIB
    assert ask(server.page, "/healthz").status == 200
    for connection in greedy:
        connection.close()


def push(connection: RawConnection, data: bytes, seconds: float) -> int:
    """Send this again and again for so long, without waiting; return the number of bytes that were taken."""
    connection.socket.setblocking(False)
    sent, until_s = 0, time.monotonic() + seconds
    block = data * (1 + MIB // len(data))
    rest = block
    while time.monotonic() < until_s:
        try:
            count = connection.socket.send(rest)
        except BlockingIOError:
            time.sleep(0.005)
        else:
            sent, rest = sent + count, rest[count:] or block
    connection.socket.setblocking(True)
    return sent


@pytest.mark.parametrize(
    "data",
    [
        frame(1, b'{"type":"shown","picture":1}'),
        frame(1, b""),
        frame(2, b"x"),
        frame(PING),
        frame(PING, b"x" * 125),
        frame(10, b"x"),
        frame(1, b'{"type":"subscribe","topics":["worlds","stats","trials"]}'),
        frame(1, b'{"type":"watch","views":[["no",0,0,"","rgb"]],"rate":30}'),
        frame(1, b"[" * 60_000),
        frame(1, b"x" * 60_000, fin=False),
    ],
    ids=["shown", "empty", "binary", "ping", "long ping", "pong", "subscribe", "watch", "brackets", "fragments"],
)
def test_floods(data: bytes, server: ServerProcess) -> None:
    """Whoever sends as fast as can be is read slowly: 200 messages a second, and a few buffers beside."""
    before = server.resident_bytes
    with viewing(server.page) as flood, viewing(server.page) as other:
        seconds = 0.4
        with contextlib.suppress(ConnectionError):  # fragments without an end are too large together
            sent = push(flood, data, seconds)
            assert sent < max(8 * MIB, 2 * 200 * (seconds + 1) * len(data) + 4 * MIB)
        assert other.refused("x")[0] == "message"
        assert server.resident_bytes - before < 48 * MIB


def test_a_page_that_never_reads(server: ServerProcess, client: SteppingClient) -> None:
    before = server.resident_bytes
    with viewing(server.page) as other:
        other.send_json(ALL)
        (world,) = [row["id"] for row in other.next("worlds")["changed"] if row["lanes"] == 64]
        views = [[world, number % 64, 0, "", "rgb"] for number in range(256)]
        greedy = [RawSocket(server.page, receive_buffer=4096) for _ in range(3)]
        for viewer in greedy:
            assert viewer.upgrade().status == 101
            viewer.send_json(ALL)
            viewer.send_json({"type": "watch", "views": views, "size": 64, "rate": 30, "follow": [world, 0, 0]})
            for picture in range(1, 9):
                viewer.send_json({"type": "shown", "picture": picture})
        other.send_json({"type": "watch", "views": views[:16], "size": 32, "rate": 10})
        pictures, until_s = 0, time.monotonic() + 2.0
        while time.monotonic() < until_s:
            pictures += other.next_picture()[0]["watch"] == 0
        assert pictures >= 3
        # Each: its memory and two copies in the encoder, one in the socket's buffer, of 3 MiB.
        assert server.resident_bytes - before < 3 * 6 * 3 * MIB + 32 * MIB
        for viewer in greedy:
            viewer.close()


def test_memory_of_large_pictures_comes_back(server: ServerProcess, client: SteppingClient) -> None:
    before = server.resident_bytes
    with viewing(server.page) as other:
        other.send_json(ALL)
        (world,) = [row["id"] for row in other.next("worlds")["changed"] if row["lanes"] == 64]
    views = [[world, number, 0, "", "rgb"] for number in range(16)]
    most = 0
    for _ in range(2):
        greedy = [RawSocket(server.page, receive_buffer=4096) for _ in range(6)]
        for viewer in greedy:
            assert viewer.upgrade().status == 101
            viewer.send_json({"type": "watch", "views": views, "size": 512, "rate": 30})
        until_s = time.monotonic() + 1.5
        while time.monotonic() < until_s:
            most = max(most, server.resident_bytes)
            time.sleep(0.05)
        for viewer in greedy:
            viewer.close()
    assert most - before > 24 * MIB  # at least two of them have pictures of 12 MiB
    # Each: its memory and two copies in the encoder, one in the socket's buffer.
    assert most - before < 6 * 4 * 12 * MIB + 64 * MIB
    wait_for(lambda: server.resident_bytes - before < 48 * MIB, lambda: f"{(server.resident_bytes - before) >> 20} MiB")


def test_players_that_are_killed(server: ServerProcess) -> None:
    with viewing(server.page) as other:
        other.send_json(ALL)
        known = {row["id"] for row in other.next("worlds")["changed"]}
        for number in range(12):
            viewer = RawSocket(server.page)
            assert viewer.upgrade().status == 101
            viewer.send_json(MAZE if number % 2 else {"type": "play", "trial": ""})
            if number % 3:
                viewer.next("playing")
            viewer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            viewer.close()
        worlds = set(known)

        def is_as_before() -> bool:
            other.send_json(ALL)
            message = other.next("worlds")
            worlds.clear()
            worlds.update(row["id"] for row in message["changed"])
            return worlds == known and other.next("trials")["running"] == []

        wait_for(is_as_before, lambda: f"{worlds}: expected {known}")
        (count,) = re.findall(r"^worldloom_streams (\S+)$", ask(server.page, "/metrics").text, re.MULTILINE)
        wait_for(lambda: streams(server) <= float(count), lambda: "streams are left")


def streams(server: ServerProcess) -> float:
    return float(re.findall(r"^worldloom_streams (\S+)$", ask(server.page, "/metrics").text, re.MULTILINE)[0])


def test_viewers_that_come_and_go(server: ServerProcess) -> None:
    def visit(count: int) -> None:
        for _ in range(count):
            with viewing(server.page) as viewer:
                viewer.send_json(ALL)
                viewer.send_json({"type": "watch", "views": [["no", 0, 0, "", "rgb"]], "follow": ["no", 0, 0]})

    visit(50)
    before = server.resident_bytes
    together: list[Callable[[], None]] = [lambda: visit(50)] * 4
    threads = [threading.Thread(target=one) for one in together]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.resident_bytes - before < 16 * MIB
