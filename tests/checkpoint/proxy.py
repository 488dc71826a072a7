"""A TCP proxy on loopback that hangs up on its clients in the middle of an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Proxy:
    """Passes bytes between its clients and `upstream`."""

    upstream: tuple[str, int]
    url: str = ""
    cuts: list[int] = field(default_factory=list)
    """For each connection to come: how many bytes of answers it gets before it is cut. Then none is cut."""
    dropped: int = 0

    def serve(self, client: socket.socket) -> None:
        left = self.cuts.pop(0) if self.cuts else None
        with client, socket.create_connection(self.upstream) as server:
            threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
            with suppress(OSError):
                while data := server.recv(16 << 10):
                    if left is not None and len(data) >= left:
                        client.sendall(data[:left])
                        self.dropped += 1
                        client.shutdown(socket.SHUT_RDWR)  # closing alone would wait for the thread that reads from it
                        return
                    left = left and left - len(data)
                    client.sendall(data)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(16 << 10):
            target.sendall(data)


@contextmanager
def cutting(upstream: str) -> Iterator[Proxy]:
    """A running proxy before the server at `upstream`."""
    address = urlsplit(upstream)
    assert address.hostname and address.port
    proxy = Proxy((address.hostname, address.port))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            with suppress(OSError):  # the listener was closed
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=proxy.serve, args=(client,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
