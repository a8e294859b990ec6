"""A link to a server that can be cut at any moment, or let through what is asked and not what is
answered."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Link:
    """Forwards a port of its own to another; `cut` ends all connections."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self.silent = False
        """What the server answers is kept back."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections; new ones go through whole."""
        self.silent = False
        for each in list(self._open):
            self._open.discard(each)
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                return
            self._open |= {client, server}
            for one, other, back in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(one, other, back), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket, back: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if not (back and self.silent):
                    other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)
