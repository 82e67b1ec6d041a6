"""The stand-in serves on loopback."""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.gcs_stand_in.answers import Answer
from tests.gcs_stand_in.requests import Fault, Kind, call_of
from tests.gcs_stand_in.service import GcsStandIn


@contextlib.contextmanager
def running() -> Iterator[GcsStandIn]:
    """A stand-in that serves on a free port of loopback until the block ends."""
    stand_in = GcsStandIn()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.stand_in = stand_in
    stand_in.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        stand_in.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # idle connections of clients that live on
    request_queue_size = 512
    stand_in: GcsStandIn

    def process_request(self, request, client_address) -> None:
        with self.stand_in._lock:
            self.stand_in.connections += 1
            self.stand_in._open += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.stand_in._lock:
                self.stand_in._open -= 1

    def handle_error(self, request, client_address) -> None:
        """Say nothing of clients that hang up: faults make them."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 64 * 1024
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *arguments: object) -> None:
        """The log is `GcsStandIn.log`."""

    def serve(self) -> None:
        stand_in = self.server.stand_in
        call = call_of(self.command, self.path, self.headers)
        with stand_in.under_way(call):
            fault = stand_in.fault_of(call)
            kind = fault.kind if fault else None
            body = self._body(fault.seconds if fault and kind is Kind.SLOW else 0)
            stand_in.wait(stand_in.latency_s)
            if kind is not Kind.RESET:
                answer = stand_in.answer(call, self.headers, body, fault)
                call.status = answer.status
        if kind in (Kind.RESET, Kind.LOST):
            self._reset()
        else:
            self._send(answer, fault)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = serve  # noqa: N815  http.server's names

    def _body(self, seconds_each: float) -> bytes:
        left = int(self.headers.get("Content-Length") or 0)
        pieces = []
        while left:
            self.server.stand_in.wait(seconds_each)
            piece = self.rfile.read(min(left, 64 * 1024))
            if not piece:
                raise ConnectionError("the client hung up")
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _reset(self) -> None:
        """Close with RST, as a middlebox does: at once, and without a word to close the connection with."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def _send(self, answer: Answer, fault: Fault | None) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        half = len(answer.body) // 2
        if fault and fault.kind is Kind.TRUNCATED:
            self.wfile.write(answer.body[:half])
            self.close_connection = True
        elif fault and fault.kind is Kind.STALL:
            self.wfile.write(answer.body[:half])
            self.wfile.flush()
            self.server.stand_in.wait(fault.seconds)
            self.wfile.write(answer.body[half:])
        else:
            self.wfile.write(answer.body)
