"""A TCP proxy that can stop forwarding without closing anything: a network that is cut."""

import contextlib
import selectors
import socket
import threading
from typing import Self


class Proxy:
    """Forwards connections to an address until told to stop; then what is sent is neither passed on nor refused."""

    def __init__(self, address: str, host: str = "127.0.0.1") -> None:
        """Listen on a host of this machine, on any port."""
        target_host, _, port = address.rpartition(":")
        self._target = (target_host, int(port))
        self._listener = socket.create_server((host, 0))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._is_forwarding = True
        self._is_closed = False
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop_forwarding(self) -> None:
        """Pass nothing on from now."""
        self._is_forwarding = False

    def start_forwarding(self) -> None:
        """Pass on again what comes, and what has come meanwhile."""
        self._is_forwarding = True

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        self._thread.join(10)
        for one in (*self._sockets, self._listener):
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._is_closed:
                for key, _ in selector.select(0.02) if self._is_forwarding else self._pause():
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    else:
                        self._forward(selector, key)

    def _pause(self) -> list[tuple[selectors.SelectorKey, int]]:
        threading.Event().wait(0.02)
        return []

    def _accept(self, selector: selectors.BaseSelector) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, 5)
        except OSError:
            client.close()
            return
        self._sockets += [client, server]
        selector.register(client, selectors.EVENT_READ, server)
        selector.register(server, selectors.EVENT_READ, client)

    def _forward(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        source, target = key.fileobj, key.data
        assert isinstance(source, socket.socket)
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(1 << 16)
        if data:
            with contextlib.suppress(OSError):
                target.sendall(data)
            return
        for one in (source, target):
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(one)
            one.close()
