"""The example's router between engines that are played. Needs nothing but Python: `python -m unittest` in this folder."""

import importlib.util
import json
import socket
import threading
import unittest
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROXY = Path(__file__).parents[3] / "examples" / "vllm" / "proxy.py"
SECONDS = 5.0
POLL_SECONDS = 0.01

spec = importlib.util.spec_from_file_location("proxy", PROXY)
assert spec is not None and spec.loader is not None
proxy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(proxy)


class Played(ThreadingHTTPServer):
    """An engine that answers what it is told to and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, status: int = 200, pieces: list[bytes] | None = None, cut: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), PlayedHandler)
        self.status, self.pieces, self.cut = status, pieces or [b"{}"], cut
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []
        threading.Thread(target=self.serve_forever, args=(POLL_SECONDS,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class PlayedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Played

    def do_POST(self) -> None:  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body, self.headers.get("X-Request-Id")))
        self.send_response(self.server.status)
        self.send_header("Content-Type", "text/event-stream" if body.get("stream") else "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in self.server.pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if not self.server.cut:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


PARAMS = {"do_remote_prefill": True, "remote_request_id": "r1", "kvferry": {"version": 1}}
GIVES_PARAMS = [json.dumps({"choices": [], "kv_transfer_params": PARAMS}).encode()]


class ProxyTest(unittest.TestCase):
    def through(self, p: str, d: str) -> HTTPConnection:
        router = proxy.Router(("127.0.0.1", 0), [p], [d], SECONDS)
        router.RequestHandlerClass.log_message = PlayedHandler.log_message
        threading.Thread(target=router.serve_forever, args=(POLL_SECONDS,), daemon=True).start()
        self.addCleanup(router.server_close)
        self.addCleanup(router.shutdown)
        client = HTTPConnection("127.0.0.1", router.server_address[1], timeout=SECONDS)
        self.addCleanup(client.close)
        return client

    def played(self, *args: Any, **more: Any) -> Played:
        engine = Played(*args, **more)
        self.addCleanup(engine.server_close)
        self.addCleanup(engine.shutdown)
        return engine

    def ask(self, client: HTTPConnection, body: Any, path: str = "/v1/completions") -> HTTPResponse:
        client.request("POST", path, json.dumps(body), {"X-Request-Id": "mine"})
        return client.getresponse()

    def test_prefill_computes_one_token_and_decode_gets_its_parameters(self) -> None:
        p, d = self.played(pieces=GIVES_PARAMS), self.played(pieces=[b'{"text": "a"}'])
        body = {"prompt": [1, 2], "max_tokens": 9, "min_tokens": 2, "stream_options": {}, "stream": True}
        answer = self.ask(self.through(p.url, d.url), body)
        self.assertEqual((answer.status, answer.read()), (200, b'{"text": "a"}'))
        self.assertEqual(answer.headers["X-Request-Id"], "mine")
        path, asked, name = p.asked[0]
        self.assertEqual((path, name), ("/v1/completions", "mine"))
        self.assertEqual(asked, {"prompt": [1, 2], "max_tokens": 1, "kv_transfer_params": proxy.PREFILL_ONLY})
        self.assertEqual(d.asked, [("/v1/completions", {**body, "kv_transfer_params": PARAMS}, "mine")])

    def test_a_stream_passes_piece_by_piece(self) -> None:
        p, d = self.played(pieces=GIVES_PARAMS), self.played(pieces=[b"data: 1\n\n", b"data: [DONE]\n\n"])
        answer = self.ask(self.through(p.url, d.url), {"prompt": "a", "stream": True}, "/v1/chat/completions")
        self.assertEqual(answer.headers["Content-Type"], "text/event-stream")
        self.assertEqual(answer.read(), b"data: 1\n\ndata: [DONE]\n\n")

    def test_an_engines_refusal_keeps_its_status(self) -> None:
        refuses = {"status": 429, "pieces": [b'{"error": "busy"}']}
        good = self.played(pieces=GIVES_PARAMS)
        for p, d in ((self.played(**refuses), good), (good, self.played(**refuses))):
            answer = self.ask(self.through(p.url, d.url), {"prompt": "a"})
            self.assertEqual((answer.status, answer.read()), (429, b'{"error": "busy"}'))

    def test_an_engine_that_is_gone_is_a_bad_gateway(self) -> None:
        good, gone = self.played(pieces=GIVES_PARAMS), f"http://127.0.0.1:{closed_port()}"
        for p, d in ((gone, good.url), (good.url, gone)):
            answer = self.ask(self.through(p, d), {"prompt": "a"})
            error = json.loads(answer.read())["error"]
            self.assertEqual((answer.status, error["code"]), (502, 502))
            self.assertIn(gone, error["message"])

    def test_a_prefill_engine_that_dies_in_its_answer_is_a_bad_gateway(self) -> None:
        p, d = self.played(pieces=[b'{"kv_'], cut=True), self.played()
        answer = self.ask(self.through(p.url, d.url), {"prompt": "a"})
        self.assertEqual(answer.status, 502)
        self.assertEqual(d.asked, [])

    def test_a_decode_engine_that_dies_in_its_answer_cuts_the_answer_off(self) -> None:
        p, d = self.played(pieces=GIVES_PARAMS), self.played(pieces=[b"data: 1\n\n"], cut=True)
        answer = self.ask(self.through(p.url, d.url), {"prompt": "a", "stream": True})
        with self.assertRaises((OSError, proxy.HTTPException)):
            while answer.read1(100):
                pass
            raise ConnectionError("ended as if it were whole") if answer.isclosed() else OSError

    def test_what_parameters_cannot_stand_for_goes_to_decode_alone(self) -> None:
        p, d = self.played(pieces=GIVES_PARAMS), self.played()
        client = self.through(p.url, d.url)
        for body in ({"prompt": ["a", "b"]}, {"prompt": [[1], [2]]}, {"prompt": "a", "n": 2}):
            self.ask(client, {**body, "kv_transfer_params": {"remote_host": "elsewhere"}}).read()
            self.assertEqual(d.asked.pop()[1], body)
        self.assertEqual(p.asked, [])
        self.ask(client, {"prompt": [[1, 2]]}).read()
        self.assertEqual(len(p.asked), 1)

    def test_nonsense_is_a_bad_request(self) -> None:
        p, d = self.played(), self.played()
        client = self.through(p.url, d.url)
        for body in (b"{", b"[]", b"\xff"):
            client.request("POST", "/v1/completions", body)
            answer = client.getresponse()
            self.assertEqual((answer.status, "error" in json.loads(answer.read())), (400, True))
        self.assertEqual((p.asked, d.asked), ([], []))


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    unittest.main()
