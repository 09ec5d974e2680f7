"""Who may open the page."""

from __future__ import annotations

import http.client
import http.server
import socket
import threading

import pytest

from grasp_demos.teleop.gate import HEAD_LIMIT, KEY, Gate, Refusal, require_admission, require_locked
from grasp_demos.teleop.sources import PageConfig
from grasp_sim.errors import UserError

TOKEN = "abcdefgh12345678"
COOKIE = "grasp_token_8080"
SECRET = "only-the-gate-knows"


def head(target: str = "/", *fields: str, host: str = "127.0.0.1:8080") -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", f"Host: {host}", *fields, "", ""]).encode()


@pytest.mark.parametrize(
    ("request_", "token"),
    [
        (head(), ""),
        (head(host="localhost:8080"), ""),
        (head(host="localhost"), ""),
        (head(host="[::1]:8080"), ""),
        (head("/", "Origin: http://127.0.0.1:8080", "Upgrade: websocket"), ""),
        (head("/", f'Cookie: other={{"x": 1}}; a[]=b; {COOKIE}={TOKEN}', host="robot.lan:8080"), TOKEN),
    ],
)
def test_who_is_let_in(request_, token):
    require_admission(request_, token, 8080)


@pytest.mark.parametrize(
    ("request_", "token", "status"),
    [
        (head(host="evil.example:8080"), "", 403),  # a name that was bound anew to this machine
        (head("/", "Origin: http://evil.example", "Upgrade: websocket"), "", 403),
        (head("/", "Origin: null"), "", 403),
        (head("/", "Host: evil.example"), "", 400),
        (b"GET / HTTP/1.1\r\n\r\n", "", 400),
        (b"\x16\x03\x01\x02\x00 nonsense\r\n\r\n", "", 400),
        (b"GET /\r\n\r\n", "", 400),
        (head(), TOKEN, 403),
        (head("/?token=" + TOKEN[:-1]), TOKEN, 403),
        (head("/?token="), TOKEN, 403),
        (head("/", f"Cookie: {COOKIE}="), TOKEN, 403),
        (head("/", f"Cookie: {COOKIE}=\xff;;;=\x00"), TOKEN, 403),
        (head("/", f"Cookie: grasp_token_8081={TOKEN}"), TOKEN, 403),
        (head("/", "Origin: http://[::1"), "", 400),
        (head("http://["), "", 400),
        (head("/", f"Authorization: {TOKEN}"), TOKEN, 403),
        (head(f"/?token={TOKEN}", "Origin: http://evil.example"), TOKEN, 403),
        (head(f"/?token={TOKEN}"), TOKEN, 303),  # the token's cookie, and on to the page
    ],
)
def test_who_is_not(request_, token, status):
    with pytest.raises(Refusal) as refusal:
        require_admission(request_, token, 8080)
    assert refusal.value.status == status
    answer = refusal.value.response()
    assert answer.startswith(f"HTTP/1.1 {status}".encode())
    assert (b"Set-Cookie" in answer) == (status == 303)


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.headers.get_all(KEY) == [SECRET] else 403)
        self.end_headers()
        self.wfile.write(b"the page " * 50_000)

    def log_message(self, *_):
        pass


@pytest.fixture
def inner():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def get(port: int, target: str = "/", **headers: str):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", target, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.getheader("Set-Cookie"), answer.read()


def test_the_page_is_passed_on_whole_and_only_with_the_token(inner):
    gate = Gate("127.0.0.1", 0, TOKEN, inner, SECRET)
    try:
        assert get(gate.port)[0] == 403
        status, cookie, _ = get(gate.port, f"/?token={TOKEN}")
        assert status == 303
        assert cookie is not None
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        status, _, body = get(gate.port, Cookie=cookie.split(";")[0])
        assert status == 200
        assert body == b"the page " * 50_000
    finally:
        gate.close()


def test_hostile_connections_neither_pass_nor_stop_the_gate(inner):
    gate = Gate("127.0.0.1", 0, "", inner, SECRET)
    try:
        for sent in (b"", b"GET", b"\x00" * 100, b"GET / HTTP/1.1\r\n" + b"x" * (HEAD_LIMIT + 1)):
            with socket.create_connection(("127.0.0.1", gate.port), timeout=10) as connection:
                connection.sendall(sent)
        idle = [socket.create_connection(("127.0.0.1", gate.port), timeout=10) for _ in range(20)]
        assert get(gate.port)[0] == 200
        for connection in idle:
            connection.close()
    finally:
        gate.close()
    with pytest.raises(OSError, match="refused"):
        get(gate.port)


def test_closing_the_gate_ends_what_is_open_without_a_fault(inner, caplog):
    gate = Gate("127.0.0.1", 0, "", inner, SECRET)
    with socket.create_connection(("127.0.0.1", gate.port), timeout=10) as connection:
        connection.sendall(head(host=f"127.0.0.1:{gate.port}").replace(b"GET", b"HEAD"))
        gate.close()
    assert caplog.records == []


def test_a_server_that_answers_everybody_is_refused(inner):
    require_locked(inner)  # this one wants its secret
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Open) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(UserError, match="to everybody on this machine"):
            require_locked(server.server_address[1])
        server.shutdown()


class Open(Page):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()


def test_a_port_that_is_taken_is_one_clear_line(inner):
    with pytest.raises(UserError, match=rf"127\.0\.0\.1:{inner}.*choose another page\.port"):
        Gate("127.0.0.1", inner, "", inner, SECRET)


def test_others_need_a_token_that_cannot_be_guessed():
    with pytest.raises(ValueError, match=r"page\.host=0\.0\.0\.0 lets other machines.*page\.token"):
        PageConfig(host="0.0.0.0")
    for token in ("short", "sixteen letters;", "a" * 15):
        with pytest.raises(ValueError, match="16 to 128 letters"):
            PageConfig(host="0.0.0.0", token=token)
    PageConfig(host="0.0.0.0", token=TOKEN)
