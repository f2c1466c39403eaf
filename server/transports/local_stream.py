"""One connection of a local socket: frames in, frames out, and never a wait for its client.

A stream hands the engine one request at a time, and reads on only when the reply has been written. What a client sends
meanwhile waits in the buffers of the socket, and then its writes wait. What it does not read keeps its own stream
waiting, and costs one reply. All of it runs on the engine's thread.
"""

import array
import contextlib
import functools
import os
import socket
from typing import TYPE_CHECKING

from google.rpc import status_pb2

from worldloom.protos.errors import InvalidArgument, RequestError, ResourceExhausted, Unavailable
from worldloom.protos.local_frames import END, HEADER, HELLO, MAX_HELLO_BYTES, MESSAGE, WELCOME, pack_frame
from worldloom.server.dm_env_rpc.session import error_reply
from worldloom.server.engine.engine import SHUTTING_DOWN
from worldloom.server.engine.inbox import HUNG_UP, INPUT_ENDED, ONLY_CHANGES, READABLE, URGENT, WRITABLE
from worldloom.server.logs import Log
from worldloom.server.transports.frame_reader import Frame, FrameReader
from worldloom.server.transports.grpc_streams import Session
from worldloom.server.transports.local_peers import Peer
from worldloom.server.transports.open_streams import is_too_large, receive_limit_bytes, too_large

if TYPE_CHECKING:
    from worldloom.server.transports.local_socket import LocalSocket

log = Log("local-socket")

_READ_BYTES = 1 << 16
_MAX_READ_BYTES = 1 << 20


class LocalStream:
    """One connection, on the engine's thread: first without a session, then a stream with one."""

    def __init__(self, server: "LocalSocket", connection: socket.socket, peer: Peer) -> None:
        self.peer = peer
        self._server = server
        self._connection = connection
        self._reader = FrameReader(MAX_HELLO_BYTES, MAX_HELLO_BYTES)
        self._session: Session | None = None
        self.name = ""
        self._is_busy = False
        """The engine has a request of this stream."""
        self._has_input = False
        """There may be something to read, the end included."""
        self._is_ending = False
        """The client has said that it will send nothing more."""
        self._has_ended = False
        """All that it sent has been read."""
        self._unsent: list[memoryview] = []
        """The rest of a frame that the client has no room for."""
        self._file: int | None = None
        """Descriptor to send with the next frame: a copy, which belongs to this object."""
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """The engine has a request of this stream, or its last reply is not written yet."""
        return self._is_busy or bool(self._unsent)

    def watch(self) -> None:
        """Wait for events of the socket."""
        events = READABLE | URGENT | INPUT_ENDED | ONLY_CHANGES | (WRITABLE if self._unsent else 0)
        self._server.engine.inbox.watch(self._connection.fileno(), events, self._handle)

    def advance(self) -> None:
        """Read and handle the next request, if there is one and the last has been answered."""
        while not (self._is_busy or self._unsent or self._is_closed):
            frame = self._reader.take()
            if frame is not None:
                self._take(frame)
            elif self._server.is_draining:
                self.end(Unavailable(SHUTTING_DOWN))
            elif self._has_ended:
                self.close()
            elif self._has_input:
                self._read()
            else:
                return

    def deliver(self, reply: bytes) -> None:
        """Write the engine's reply to the current request."""
        self._is_busy = False
        if self._is_closed:
            return
        self._write(MESSAGE, reply)
        if self._has_input or self._reader.has_bytes or self._has_ended or self._server.is_draining:
            self._server.engine.post(self.advance)  # with the requests of others that have come meanwhile

    def share_file(self, file: int) -> None:
        """Send a copy of a descriptor with the next reply."""
        self._drop_file()
        with contextlib.suppress(OSError):  # too many open files: the client does without
            self._file = os.dup(file)

    def reject(self, error: RequestError) -> None:
        """End a connection that gets no session."""
        self._server.note_refusal(self.peer, error)
        self.end(error)

    def end(self, error: RequestError) -> None:
        """Tell the client why the connection ends, if it has room for that, and close it."""
        if self._is_closed:
            return
        if not self._unsent:  # it would be taken for the rest of that frame
            send_end(self._connection, error)
        self.close()

    def close(self) -> None:
        """Close the connection, and leave the world."""
        if self._is_closed:
            return
        self._is_closed = True
        server = self._server
        server.engine.inbox.unwatch(self._connection.fileno())
        self._connection.close()
        self._unsent = []
        self._drop_file()
        if self._session is not None:
            server.open_streams.close()
            server.engine.post(self._session.close)
            log.info("stream closed", stream=self.name)
        server.forget(self)

    def _handle(self, events: int) -> None:
        if self._is_closed:
            return
        if events & HUNG_UP:
            self.close()
            return
        if events & URGENT:  # reads end there, too, and nothing tells it from the end of what has come
            self.end(InvalidArgument("a byte out of band (MSG_OOB): expected frames alone"))
            return
        if events & WRITABLE and self._unsent:
            self._flush()
            if not self._unsent:
                self.watch()  # without waking up whenever the client has read something
        if events & INPUT_ENDED:
            self._is_ending = True
        if events & READABLE:
            self._has_input = True
        self.advance()

    def _read(self) -> None:
        size_bytes = min(max(self._reader.missing_bytes, _READ_BYTES), _MAX_READ_BYTES)
        try:
            # Without room for descriptors: the system closes those that a client sends.
            data, _, flags, _ = self._connection.recvmsg(size_bytes)
        except BlockingIOError:
            self._has_input = False
        except OSError:
            self.close()
        else:
            self._has_ended = not data
            # Less than was asked for is all there is, and more would be another event. Exceptions: an end that came
            # with it, and descriptors, behind which the system ends a read. It tells so by a flag (MSG_CTRUNC).
            self._has_input = len(data) == size_bytes or self._is_ending or bool(flags)
            self._reader.add(data)

    def _take(self, frame: Frame) -> None:
        try:
            if self._session is None:
                self._greet(frame)
            elif frame.kind != MESSAGE:
                raise InvalidArgument(f"a frame of kind {frame.kind}: expected requests after the first frame")
            elif frame.content is not None and not is_too_large(frame.content, self._server.limits):
                self._is_busy = True
                self._session.receive(frame.content)
            elif frame.size_bytes > self._reader.max_dropped_bytes:
                raise too_large(frame.size_bytes, self._server.limits)
            else:
                self._session.reject()
                self._write(MESSAGE, error_reply(too_large(frame.size_bytes, self._server.limits)))
        except (InvalidArgument, ResourceExhausted) as error:
            self.end(error)

    def _greet(self, frame: Frame) -> None:
        server = self._server
        try:
            if frame.kind != HELLO or frame.content is None:
                raise InvalidArgument(
                    f"a frame of kind {frame.kind} and {frame.size_bytes} bytes: expected a hello, which has kind "
                    f"{HELLO} and {MAX_HELLO_BYTES} bytes at most"
                )
            self.name, welcome = server.greet(self, frame.content)
        except RequestError as error:
            self.reject(error)
            return
        limits = server.limits
        self._reader.max_bytes, self._reader.max_dropped_bytes = limits.max_request_bytes, receive_limit_bytes(limits)
        self._session = server.make_session(self.name, functools.partial(server.route.send, self), self.share_file)
        log.info("stream opened", stream=self.name, peer=self.peer)
        self._session.open()
        self._write(WELCOME, welcome)

    def _write(self, kind: int, content: bytes) -> None:
        """Write a frame, as far as the client has room for it; the rest follows when there is more."""
        self._unsent = [memoryview(HEADER.pack(len(content), kind)), memoryview(content)]
        self._flush()
        if self._unsent:
            self.watch()

    def _flush(self) -> None:
        try:
            sent = self._send(self._unsent)
        except BlockingIOError:
            return
        except OSError:  # the client is gone
            self.close()
            return
        while self._unsent and sent >= len(self._unsent[0]):
            sent -= len(self._unsent.pop(0))
        if self._unsent:
            self._unsent[0] = self._unsent[0][sent:]

    def _send(self, parts: list[memoryview]) -> int:
        if self._file is None:
            return self._connection.sendmsg(parts)
        shared = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._file]))]
        try:
            sent = self._connection.sendmsg(parts, shared)
        except BlockingIOError:
            raise
        except OSError:  # too many descriptors are on their way: the client does without
            sent = self._connection.sendmsg(parts)
        self._drop_file()
        return sent

    def _drop_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def send_end(connection: socket.socket, error: RequestError) -> None:
    """Tell a client why its connection ends, if it has room for that."""
    status = status_pb2.Status(code=error.code, message=str(error)).SerializeToString()
    with contextlib.suppress(OSError):
        connection.send(pack_frame(END, status))
