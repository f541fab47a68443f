"""A read-only view of a Python package index: the wheels of packages, and nothing else of the network.

`/simple/NAME/` is the list of a package's wheels, in the index's JSON format. `/files/PATH` is a file of
a list that was requested before; other paths are not forwarded. Nor is a wheel that names the address of
a dependency: installers would build what is there, with any code in it.

Variables: PACKAGE_INDEX_URL, the index without a final slash; PACKAGE_FILES_URL, the prefix of its files;
PORT.
"""

import email, http.client, json, os, re, socket, sys, threading, time, urllib.error, urllib.request
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

INDEX = os.environ.get("PACKAGE_INDEX_URL", "https://pypi.org/simple")
FILES = os.environ.get("PACKAGE_FILES_URL", "https://files.pythonhosted.org/packages/")
JSON = "application/vnd.pypi.simple.v1+json"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,98}[a-z0-9])?")
PATH = re.compile(r"[A-Za-z0-9_.+!/-]{1,300}")
# Fields of a file that installers use. Others, such as the size, are optional.
FIELDS = ("filename", "hashes", "requires-python", "yanked")
SECONDS, CONNECTIONS, CHUNK = 20, 8, 64 * 1024
LIST_BYTES, FILE_BYTES, KNOWN_FILES = 16 << 20, 1 << 30, 100_000
METADATA_BYTES = 4 << 20
# The time for a reply before its first byte, and the slowest transfer of a file, in bytes per second.
REPLY_SECONDS, MIN_RATE = 60, 64 * 1024


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which could lead to another server."""

    def redirect_request(self, *arguments):
        return None


class Index(ThreadingHTTPServer):
    """The server, with the files that it has listed."""

    daemon_threads = True

    def __init__(self, address):
        super().__init__(address, Handler)
        self.upstream = urllib.request.build_opener(NoRedirect)
        self.connections = threading.BoundedSemaphore(CONNECTIONS)
        self.lock, self.known = threading.Lock(), OrderedDict()
        # A parsed list takes several times its size: one at a time.
        self.parsing = threading.Lock()
        # The end of each connection: a slow client must not keep a place.
        self.ends = {}
        threading.Thread(target=self.close_late, daemon=True).start()

    def process_request(self, request, address):
        """Handles a connection in a thread, unless too many are open."""
        if self.connections.acquire(blocking=False):
            self.allow(request, SECONDS)
            super().process_request(request, address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request, address):
        try:
            super().process_request_thread(request, address)
        finally:
            with self.lock:
                self.ends.pop(request, None)
            self.connections.release()

    def allow(self, connection, seconds):
        """Gives a connection this time from now on."""
        with self.lock:
            self.ends[connection] = time.monotonic() + seconds

    def close_late(self):
        while True:
            time.sleep(min(1, SECONDS / 4))
            with self.lock:
                late = [one for one, end in self.ends.items() if end < time.monotonic()]
            for connection in late:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def open(self, url, accept):
        return self.upstream.open(
            urllib.request.Request(url, headers={"Accept": accept}), timeout=SECONDS
        )

    def list(self, name):
        """Returns the list of a package as JSON, with our own addresses of its wheels."""
        with self.open(f"{INDEX}/{name}/", JSON) as response:
            text = read_all(response, LIST_BYTES)
        with self.parsing:
            return json.dumps(self.rewrite(name, json.loads(text))).encode()

    def rewrite(self, name, listed):
        wheels = []
        for file in listed["files"]:
            path = file["url"].removeprefix(FILES)
            if path == file["url"] or not file["filename"].endswith(".whl"):
                continue
            if PATH.fullmatch(path) and ".." not in path:
                wheel = {key: file[key] for key in FIELDS if key in file}
                wheels.append({"url": f"/files/{path}", **wheel})
        self.remember(wheel["url"] for wheel in wheels)
        return {"meta": {"api-version": "1.0"}, "name": name, "files": wheels}

    def check(self, url):
        """Raises an error for a wheel with a dependency that no index has."""
        with self.open(url + ".metadata", "*/*") as response:
            text = read_all(response, METADATA_BYTES)
        for requirement in email.message_from_bytes(text).get_all("Requires-Dist", []):
            if "@" in str(requirement).split(";")[0]:
                raise ValueError("the wheel names the address of a dependency")

    def remember(self, paths):
        with self.lock:
            for path in paths:
                self.known[path] = None
                self.known.move_to_end(path)
            while len(self.known) > KNOWN_FILES:
                self.known.popitem(last=False)

    def is_known(self, path):
        with self.lock:
            return path in self.known


def pieces(response, length, seconds):
    """Yields up to `length` bytes of a response, and fails after the time."""
    end = time.monotonic() + seconds
    while length > 0 and (piece := response.read1(min(CHUNK, length))):
        yield piece
        length -= len(piece)
        if time.monotonic() > end:
            raise TimeoutError("the index is too slow")


def read_all(response, limit):
    text = b"".join(pieces(response, limit + 1, REPLY_SECONDS / 2))
    if len(text) > limit:
        raise ValueError(f"the response is larger than {limit} bytes")
    return text


class Handler(BaseHTTPRequestHandler):
    timeout = SECONDS
    has_started = False
    server_version, sys_version = "package-index", ""

    def do_GET(self):
        name = self.path.removeprefix("/simple/").removesuffix("/")
        self.server.allow(self.connection, REPLY_SECONDS)
        try:
            if self.path == "/healthz":
                self.reply(b"ok\n", "text/plain")
            elif self.path == f"/simple/{name}/" and NAME.fullmatch(name):
                self.reply(self.server.list(name), JSON)
            elif self.server.is_known(self.path):
                self.forward(FILES + self.path.removeprefix("/files/"))
            else:
                self.send_error(404, "not a list or a listed file")
        except urllib.error.HTTPError as error:
            self.fail(404 if error.code == 404 else 502, f"the index replied {error.code}")
        except (
            OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, http.client.HTTPException,
        ) as error:
            print(f"{self.path}: {error}", file=sys.stderr)
            self.fail(502, "the index is unavailable")

    def fail(self, code, text):
        """Sends an error, or closes the connection of a response that has started."""
        self.close_connection = True
        if not self.has_started:
            self.send_error(code, text)

    def start(self, content_type, length):
        """Sends the headers, and gives the client the time for the body."""
        self.server.allow(self.connection, SECONDS + length / MIN_RATE)
        self.has_started = True
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def reply(self, body, content_type):
        self.start(content_type, len(body))
        self.wfile.write(body)

    def forward(self, url):
        """Forwards a file. A client that gets less than the length sees an incomplete response."""
        self.server.check(url)
        with self.server.open(url, "*/*") as response:
            length = int(response.headers["Content-Length"])
            if length > FILE_BYTES:
                raise ValueError(f"the file is larger than {FILE_BYTES} bytes")
            if length < 0:
                raise ValueError("the length of the file is negative")
            self.start("application/octet-stream", length)
            for piece in pieces(response, length, SECONDS + length / MIN_RATE):
                self.wfile.write(piece)

    def log_message(self, text, *arguments):
        """Logs nothing: requests name what a model asked for."""


if __name__ == "__main__":
    server = Index(("", int(os.environ.get("PORT", "8080"))))
    print(f"port {server.server_port}", flush=True)
    server.serve_forever()
