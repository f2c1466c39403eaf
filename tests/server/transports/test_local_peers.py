"""Clients of a local socket that vanish, stop or fork."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.support.local_echo import RawClient, ask, connect, local_echo, wait_until
from worldloom.client.errors import ClientError
from worldloom.protos.local_frames import MESSAGE, LocalAddress
from worldloom.server.transports import local_peers
from worldloom.server.transports.local_peers import MAX_STOPPED_BEATS, Peer, PeerState


class Sleeper:
    """A process with a connection, which another process has too."""

    def __init__(self, local: LocalAddress) -> None:
        program = (
            "import sys, time, os; from pathlib import Path; from worldloom.client.socket_connection import *;"
            "from worldloom.protos.addresses import UnixAddress;"
            "c = SocketConnection(UnixAddress(Path('/x')), LocalAddress(*sys.argv[1:]), None, 10.0);"
            "child = os.fork();"
            "print(child, flush=True) if child else None;"
            "time.sleep(600)"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, local.address, local.key], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.child = int(self.process.stdout.readline())

    def end(self) -> None:
        """End both."""
        os.kill(self.child, signal.SIGKILL)
        self.process.kill()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_the_heartbeat_notices_who_is_gone_or_stopped() -> None:
    with local_echo() as (local, engine):
        dying, stopped, continued = (Sleeper(local.address) for _ in range(3))
        try:
            local.beat()
            dying.process.kill()
            dying.process.wait(60)
            assert ("s1", "close") not in engine.events, "the other process has the socket"
            local.beat()
            engine.wait_for(("s1", "close"))
            for sleeper in (stopped, continued):
                os.kill(sleeper.process.pid, signal.SIGSTOP)
            wait_until(lambda: all(stream.peer.state is PeerState.STOPPED for stream in local._streams))
            for _ in range(MAX_STOPPED_BEATS - 1):
                local.beat()
            os.kill(continued.process.pid, signal.SIGCONT)
            wait_until(lambda: any(stream.peer.state is PeerState.ALIVE for stream in local._streams))
            local.beat()
            engine.wait_for(("s2", "close"))
            for _ in range(MAX_STOPPED_BEATS):
                local.beat()
            time.sleep(0.05)
            assert ("s3", "close") not in engine.events
        finally:
            for sleeper in (dying, stopped, continued):
                sleeper.end()


def test_the_heartbeat_tells_why(caplog: pytest.LogCaptureFixture) -> None:
    with local_echo() as (local, engine), RawClient(local.address) as client, RawClient(local.address) as stalled:
        stalled.send(MESSAGE, b"long")
        engine.wait_for(("s2", b"long"))
        wait_until(lambda: any(stream._unsent for stream in local._streams))
        for stream in local._streams:
            stream.peer = Peer(os.getpid(), 7, "0")
        local.beat()
        assert client.read_end().message.startswith(
            f"process {os.getpid()} of user 7, which opened the stream, is gone"
        )
        engine.wait_for(("s2", "close"))
        with pytest.raises(AssertionError, match="the server closed the connection"):
            stalled.read()
        assert caplog.text.count("ended by the heartbeat") == 2


def test_a_process_whose_main_thread_has_ended_is_alive() -> None:
    program = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start();"
        "print(flush=True); ctypes.CDLL(None).syscall(60 if __import__('os').uname().machine == 'x86_64' else 93, 0)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        peer = Peer(process.pid, os.geteuid()).with_start()
        wait_until(lambda: local_peers._read_process(process.pid)[0] == "Z")
        assert peer.state is PeerState.ALIVE
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: peer.state is PeerState.STOPPED)
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: peer.state is PeerState.GONE)
    finally:
        process.kill()
        process.communicate()


def test_peers_that_are_not_visible_count_as_alive() -> None:
    ours, theirs = socket.socketpair()
    peer = Peer.of(ours).with_start()
    assert (peer.pid, peer.user) == (os.getpid(), os.geteuid())
    assert peer.state is PeerState.ALIVE
    assert Peer(0, 7, "").state is PeerState.ALIVE
    assert Peer(peer.pid, peer.user, "0").state is PeerState.GONE, "another process of the same id"
    ours.close()
    theirs.close()


def test_peers_are_alive_while_no_files_can_be_opened() -> None:
    """A server that has too many files open cannot look at processes, and ends no stream for that."""
    with local_echo() as (local, engine):
        connection = connect(local.address)
        peer = next(iter(local._streams)).peer
        assert peer.started
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                local_peers._read_process(peer.pid)
            assert peer.state is PeerState.ALIVE
            assert Peer(peer.pid, peer.user).with_start() == Peer(peer.pid, peer.user, "")
            local.beat()
            assert ask(connection, b"y") == b"y"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert ("s1", "close") not in engine.events
        connection.close()


def test_a_forked_copy_sends_nothing() -> None:
    with local_echo() as (local, _):
        connection = connect(local.address)
        child = os.fork()
        if child == 0:
            try:
                connection.send(b"x")
            except ClientError:
                del connection
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert ask(connection, b"y") == b"y"
        connection.close()
