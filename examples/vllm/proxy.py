#!/usr/bin/env python3
"""A small router for vLLM with prefill and decode apart. Needs nothing but Python.

    proxy.py --prefill http://127.0.0.1:8100 --decode http://127.0.0.1:8200 [--port 8000]

Each completion goes to a prefill engine first, which computes the prompt and answers with `kv_transfer_params`; these go to a
decode engine with the same request, and its answer goes to the client as it comes. Both options may be given several times;
engines take turns. It is an example to read: it knows nothing of load, and of no engine whether it is well.
"""

import argparse
import itertools
import json
import uuid
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

COMPLETIONS = ("/v1/completions", "/v1/chat/completions")
CONNECT_SECONDS = 5.0
LARGEST_BODY = 64 << 20
PIECE = 1 << 16
PREFILL_ONLY = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_request_id": None,
    "remote_host": None,
    "remote_port": None,
}


class Refused(Exception):
    """What the client is told instead of an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def body(self) -> bytes:
        kind = "BadRequest" if self.status < 500 else "BadGateway"
        return json.dumps({"error": {"message": str(self), "type": kind, "code": self.status}}).encode()


class Upstream(Exception):
    """An engine's own refusal, passed on as it is."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status, self.body = status, body


class Engine:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise SystemExit(f"{url}: an address looks like http://127.0.0.1:8100")
        self.name, self.host, self.port = url, parts.hostname, parts.port or 80

    def send(self, call: "Call", body: bytes) -> tuple[HTTPConnection, HTTPResponse]:
        """The response's head; its body is still to be read. The caller closes the connection."""
        connection = HTTPConnection(self.host, self.port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
            connection.sock.settimeout(call.seconds)
            connection.request(call.method, call.path, body or None, call.headers)
            return connection, connection.getresponse()
        except (OSError, HTTPException) as error:
            connection.close()
            raise Refused(502, f"{self.name}: {error or type(error).__name__}") from error


class Call:
    """What is passed on with every message for one request of a client."""

    def __init__(self, method: str, path: str, headers: dict[str, str], seconds: float) -> None:
        self.method, self.path, self.headers, self.seconds = method, path, headers, seconds


class Router(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], prefill: list[str], decode: list[str], seconds: float) -> None:
        super().__init__(address, Handler)
        self.prefill: Iterator[Engine] = itertools.cycle([Engine(url) for url in prefill])
        self.decode: Iterator[Engine] = itertools.cycle([Engine(url) for url in decode])
        self.seconds = seconds

    def params_for(self, request: dict[str, Any], call: Call) -> dict[str, Any] | None:
        """Has a prefill engine compute the prompt; its parameters for the decode engine."""
        engine = next(self.prefill)
        connection, response = engine.send(call, json.dumps(for_prefill(request)).encode())
        try:
            body = response.read()
        except (OSError, HTTPException) as error:
            raise Refused(502, f"{engine.name}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise Upstream(response.status, body)
        try:
            params: dict[str, Any] | None = json.loads(body).get("kv_transfer_params")
        except (ValueError, AttributeError) as error:
            raise Refused(502, f"{engine.name}: the answer is no JSON object") from error
        return params


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Router

    def do_GET(self) -> None:  # noqa: N802, the library's name
        self.answer(self.forward)

    def do_POST(self) -> None:  # noqa: N802
        self.answer(self.complete if self.path in COMPLETIONS else self.forward)

    def answer(self, work: Any) -> None:
        self.call = Call(self.command, self.path, self.passed_on(), self.server.seconds)
        try:
            work()
        except Refused as refused:
            self.whole(refused.status, refused.body())
        except Upstream as upstream:
            self.whole(upstream.status, upstream.body)
        except (BrokenPipeError, ConnectionResetError):
            # The client or the decode engine is gone. The connection to the other is closed, so it notices.
            self.close_connection = True

    def passed_on(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "X-Request-Id": self.request_id()}
        if authorization := self.headers.get("Authorization"):
            headers["Authorization"] = authorization
        return headers

    def request_id(self) -> str:
        return self.headers.get("X-Request-Id") or str(uuid.uuid4())

    def complete(self) -> None:
        request = self.json_body()
        # What a client sends under this name is not for an engine to act on: it says where to connect.
        request.pop("kv_transfer_params", None)
        if handed_off(request):
            request["kv_transfer_params"] = self.server.params_for(request, self.call)
        self.stream(json.dumps(request).encode())

    def forward(self) -> None:
        """Anything else is for a decode engine."""
        self.stream(self.body())

    def body(self) -> bytes:
        try:
            length = int(self.headers.get("Content-Length", 0))
        except ValueError:
            length = -1
        if not 0 <= length <= LARGEST_BODY or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise Refused(400, f"the body needs a length of at most {LARGEST_BODY} bytes")
        return self.rfile.read(length)

    def json_body(self) -> dict[str, Any]:
        try:
            request = json.loads(self.body())
        except ValueError as error:
            raise Refused(400, f"the body is no JSON: {error}") from error
        if not isinstance(request, dict):
            raise Refused(400, "the body is no JSON object")
        return request

    def stream(self, body: bytes) -> None:
        """Sends this to a decode engine and its answer to the client, piece by piece."""
        connection, response = next(self.server.decode).send(self.call, body)
        try:
            self.head(response)
            while piece := response.read1(PIECE):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        except (TimeoutError, HTTPException) as error:
            # The head is gone: an answer that is cut off is all that can still say so.
            self.close_connection = True
            self.log_error("%s: cut off, %r", self.call.headers["X-Request-Id"], error)
        finally:
            connection.close()

    def head(self, response: HTTPResponse) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.headers.get("Content-Type", "application/json"))
        self.send_header("X-Request-Id", self.call.headers["X-Request-Id"])
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def whole(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Request-Id", self.call.headers["X-Request-Id"])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def handed_off(request: dict[str, Any]) -> bool:
    """One prompt with one answer. Parameters stand for the blocks of one prompt, to be taken over once; what asks for more the
    decode engine computes alone."""
    prompt = request.get("prompt")
    several = isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)
    return request.get("n") in (None, 1) and not several


def for_prefill(request: dict[str, Any]) -> dict[str, Any]:
    """The same prompt, one token, not streamed: what the prefill engine answers nobody reads."""
    dropped = ("stream", "stream_options", "min_tokens", "min_completion_tokens")
    asked = {key: value for key, value in request.items() if key not in dropped}
    asked.update(max_tokens=1, kv_transfer_params=PREFILL_ONLY)
    if "max_completion_tokens" in asked:
        asked["max_completion_tokens"] = 1
    return asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefill", action="append", required=True, metavar="URL")
    parser.add_argument("--decode", action="append", required=True, metavar="URL")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long an engine may be silent")
    options = parser.parse_args()
    router = Router((options.host, options.port), options.prefill, options.decode, options.seconds)
    print(f"listening on http://{options.host}:{router.server_address[1]}", flush=True)
    try:
        router.serve_forever()
    except KeyboardInterrupt:
        router.server_close()


if __name__ == "__main__":
    main()
