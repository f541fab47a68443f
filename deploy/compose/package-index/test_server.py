"""Tests of the package index, against an index in this process."""

import contextlib
import http.client
import io
import json
import os
import socket
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WHEEL = "demo-1.0-py3-none-any.whl"


class Upstream(BaseHTTPRequestHandler):
    """An index whose package `demo` has a wheel, and which fails in several ways."""

    def do_GET(self):
        host = f"http://127.0.0.1:{self.server.server_port}"
        if self.path == "/simple/demo/":
            wheel = {"filename": WHEEL, "url": f"{host}/files/{WHEEL}"}
            self.answer(json.dumps({"files": [wheel]}).encode())
        elif self.path == "/simple/deep/":
            self.answer(b"[" * 200_000)
        elif self.path == "/simple/garbage/":
            self.wfile.write(b"no status\r\n\r\n")
        elif self.path == f"/files/{WHEEL}.metadata":
            self.answer(b"Metadata-Version: 2.1\nName: demo\n")
        elif self.path == f"/files/{WHEEL}":
            # It breaks after the headers and a part of the body.
            self.answer(b"part", length=1000)
        else:
            self.send_error(404)

    def answer(self, body, length=None):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def start(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


upstream = start(ThreadingHTTPServer(("127.0.0.1", 0), Upstream))
os.environ["PACKAGE_INDEX_URL"] = f"http://127.0.0.1:{upstream.server_port}/simple"
os.environ["PACKAGE_FILES_URL"] = f"http://127.0.0.1:{upstream.server_port}/files/"
import server as index  # noqa: E402: it reads the variables


class PackageIndex(unittest.TestCase):
    def setUp(self):
        quiet = contextlib.redirect_stderr(io.StringIO())
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)
        self.index = start(index.Index(("127.0.0.1", 0)))
        self.addCleanup(self.index.server_close)
        self.addCleanup(self.index.shutdown)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.index.server_port, timeout=30)
        self.addCleanup(connection.close)
        connection.request("GET", path)
        return connection.getresponse()

    def raw(self, text):
        connection = socket.create_connection(("127.0.0.1", self.index.server_port), timeout=30)
        self.addCleanup(connection.close)
        connection.sendall(text)
        return connection

    def test_lists_have_own_addresses(self):
        listed = json.load(self.get("/simple/demo/"))
        self.assertEqual([file["url"] for file in listed["files"]], [f"/files/{WHEEL}"])
        self.assertEqual(self.get("/simple/missing/").status, 404)
        self.assertEqual(self.get("/files/unlisted.whl").status, 404)

    def test_failures_of_the_index_are_reported(self):
        for name in ["deep", "garbage"]:
            self.assertEqual(self.get(f"/simple/{name}/").status, 502, name)

    def test_broken_file_is_an_incomplete_response(self):
        self.get("/simple/demo/").read()
        connection = self.raw(f"GET /files/{WHEEL} HTTP/1.0\r\n\r\n".encode())
        received = b"".join(iter(lambda: connection.recv(4096), b""))
        self.assertEqual(received.count(b"HTTP/1."), 1, received)
        self.assertIn(b"Content-Length: 1000", received)
        self.assertTrue(received.endswith(b"\r\n\r\npart"), received)

    def test_dripping_clients_lose_their_places(self):
        before, index.SECONDS = index.SECONDS, 0.5
        self.addCleanup(setattr, index, "SECONDS", before)
        dripping = [self.raw(b"GET /he") for _ in range(index.CONNECTIONS)]
        closed = threading.Event()

        def drip():
            while not closed.wait(0.05):
                for connection in dripping:
                    with contextlib.suppress(OSError):
                        connection.sendall(b"a")

        dripper = threading.Thread(target=drip)
        dripper.start()
        self.addCleanup(dripper.join)
        self.addCleanup(closed.set)
        end = time.monotonic() + 20
        while True:
            try:
                self.assertEqual(self.get("/healthz").status, 200)
                return
            except (OSError, http.client.HTTPException):
                self.assertLess(time.monotonic(), end, "the places are still taken")


if __name__ == "__main__":
    unittest.main()
