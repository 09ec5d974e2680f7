"""Who may open the page: a gate between the network and the page's own server, which knows no passwords.

The page's server takes one request a connection, so what a connection's first lines say decides about all of
it. Let through are requests that name this machine as their host (no page elsewhere can rebind a name to it),
whose origin, where a browser names one, is this page (no page elsewhere can open its web socket), and which
carry the token, where one is asked for: once in the address, from then on in a cookie.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http.client
import inspect
import threading
from collections.abc import Coroutine, Iterator
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import websockets.asyncio.server

from grasp_sim.errors import UserError

T = TypeVar("T")

COOKIE = "grasp_token_{port}"
"""Cookies belong to a host, whatever the port: every page of a machine has one of its own."""
KEY = "X-Grasp-Gate"
"""Field in which the gate tells the page's server a secret: nothing else on this machine may use that."""
PING_S, SILENCE_S = 0.5, 2.0
"""s between the pings to a page, and until one that answers none counts as gone: nobody is there then."""
HEAD_LIMIT = 32_768
"""Bytes that a request's first lines may have."""
HEAD_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 64

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Refusal(Exception):
    """A request that is not let through: its status, and one line for who asked."""

    def __init__(self, status: HTTPStatus, text: str, headers: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers

    def response(self) -> bytes:
        """What is sent back."""
        body = f"{self.text}\n".encode()
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: close",
            *self.headers,
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def require_admission(head: bytes, token: str, port: int) -> None:
    """Raise Refusal unless a request's first lines may pass. Without a token only loopback names may."""
    try:
        first, *rest = head.decode("latin-1").split("\r\n")
        _, target, version = first.split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(version)
        fields: dict[str, list[str]] = {}
        for line in rest:
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name.strip().lower(), []).append(value.strip())
        hosts = fields.get("host", [])
        if len(hosts) != 1:
            raise ValueError("one Host")
        asked = parse_qs(urlsplit(target).query).get("token", [""])[-1]
        origins = [urlsplit(origin).netloc for origin in fields.get("origin", [])]
    except ValueError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, "This is no request of a browser.") from error
    host = hosts[0]
    if not token and host.rpartition(":")[0] not in _LOOPBACK and host not in _LOOPBACK:
        raise Refusal(HTTPStatus.FORBIDDEN, "Open the page as localhost or 127.0.0.1.")
    if any(origin != host for origin in origins):
        raise Refusal(HTTPStatus.FORBIDDEN, "Another page may not use this one.")
    if not token:
        return
    name = COOKIE.format(port=port)
    if _same(asked, token):
        cookie = f"Set-Cookie: {name}={token}; HttpOnly; SameSite=Strict; Path=/"
        raise Refusal(HTTPStatus.SEE_OTHER, "Welcome.", (cookie, "Location: /"))
    # By hand: the standard library's reader stops at the first odd cookie, which other pages may have set.
    cookies = [part.strip().partition("=") for text in fields.get("cookie", []) for part in text.split(";")]
    if not any(_same(value, token) for held, _, value in cookies if held == name):
        raise Refusal(HTTPStatus.FORBIDDEN, "Open the page with its token, as in http://host:port/?token=...")


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


class Gate:
    """Serves `host:port` and passes what it admits on to a server on this machine."""

    def __init__(self, host: str, port: int, token: str, inner_port: int, secret: str) -> None:
        """Raises UserError where the address cannot be taken. `port` 0 takes a free one.

        `secret` is what the server at `inner_port` wants to hear, see `locked_server`.
        """
        self._token, self._inner, self._secret = token, inner_port, secret
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="page gate", daemon=True)
        self._connections: set[asyncio.Task[None]] = set()
        self._thread.start()
        try:
            self._server = self._run(asyncio.start_server(self._serve, host, port, limit=HEAD_LIMIT))
        except OSError as error:
            self._end()
            raise UserError(
                f"the page cannot be served on {host}:{port} ({error.strerror or error}): choose another"
                " page.port, or 0 for a free one."
            ) from error
        self.port: int = self._server.sockets[0].getsockname()[1]
        """The port that was taken."""

    def close(self) -> None:
        """Let nobody in any more, and end what is open."""
        self._run(self._shut())
        self._end()

    async def _shut(self) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections.")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_TIMEOUT_S)
            require_admission(head, self._token, self.port)
            first, rest = head.split(b"\r\n", 1)
            head = first + f"\r\n{KEY}: {self._secret}\r\n".encode() + rest
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._inner)
            try:
                inner_writer.write(head)
                await self._splice(reader, inner_writer, inner_reader, writer)
            finally:
                inner_writer.close()
        except Refusal as refusal:
            writer.write(refusal.response())
            with contextlib.suppress(OSError):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # Who asked has left, or sent no request at all.
        except asyncio.CancelledError:
            pass  # The gate is closing; a task that ends so would be reported as a fault.
        finally:
            writer.close()
            self._connections.discard(task)

    @staticmethod
    async def _splice(
        reader: asyncio.StreamReader,
        inner_writer: asyncio.StreamWriter,
        inner_reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Both ways until either side ends."""
        ways = [
            asyncio.ensure_future(_pump(reader, inner_writer)),
            asyncio.ensure_future(_pump(inner_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


@contextlib.contextmanager
def locked_server(secret: str) -> Iterator[None]:
    """A page's server that is started inside of the block answers only who tells `secret` in the field `KEY`.

    The server takes no such thing as a setting, so the function that it serves with is replaced meanwhile;
    `require_locked` makes sure that it was. A page that answers no ping counts as gone soon, too.
    """
    serve = websockets.asyncio.server.serve

    def locked(handler: Any, *where: Any, **settings: Any) -> Any:
        answer = settings.pop("process_request")

        async def check(connection: Any, request: Any) -> Any:
            told = request.headers.get_all(KEY)
            if len(told) != 1 or not _same(told[0], secret):
                return connection.respond(HTTPStatus.FORBIDDEN, "This is not the page's address.\n")
            answered = answer(connection, request) if answer else None
            return await answered if inspect.isawaitable(answered) else answered

        alive = {"ping_interval": PING_S, "ping_timeout": SILENCE_S - PING_S}
        return serve(handler, *where, process_request=check, **(settings | alive))

    websockets.asyncio.server.serve = locked  # type: ignore[assignment]
    try:
        yield
    finally:
        websockets.asyncio.server.serve = serve  # type: ignore[assignment]


def require_locked(port: int) -> None:
    """Raise UserError unless the server at this port of this machine refuses who does not tell its secret."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HEAD_TIMEOUT_S)
    connection.request("GET", "/")
    status = connection.getresponse().status
    connection.close()
    if status != HTTPStatus.FORBIDDEN:
        raise UserError(
            "the installed viser serves its page to everybody on this machine, so it is not used: install the"
            " version of requirements.lock."
        )
