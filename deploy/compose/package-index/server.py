"""A read-only view of a Python package index: the wheels of packages, and nothing else of the network.

`/simple/NAME/` is the list of a package's wheels, in the index's JSON format. `/files/PATH` is a file of
a list that was requested before; other paths are not forwarded. Nor is a wheel that names the address of
a dependency: installers would build what is there, with any code in it.

Variables: PACKAGE_INDEX_URL, the index without a final slash; PACKAGE_FILES_URL, the prefix of its files;
PORT.
"""

import email, json, os, re, sys, threading, urllib.error, urllib.request
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

    def process_request(self, request, address):
        """Handles a connection in a thread, unless too many are open."""
        if self.connections.acquire(blocking=False):
            super().process_request(request, address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request, address):
        try:
            super().process_request_thread(request, address)
        finally:
            self.connections.release()

    def open(self, url, accept):
        return self.upstream.open(
            urllib.request.Request(url, headers={"Accept": accept}), timeout=SECONDS
        )

    def list(self, name):
        """Returns the list of a package as JSON, with our own addresses of its wheels."""
        with self.open(f"{INDEX}/{name}/", JSON) as response:
            text = response.read(LIST_BYTES + 1)
        if len(text) > LIST_BYTES:
            raise ValueError(f"the list of {name} is larger than {LIST_BYTES} bytes")
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
            text = response.read(METADATA_BYTES + 1)
        if len(text) > METADATA_BYTES:
            raise ValueError(f"the metadata is larger than {METADATA_BYTES} bytes")
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


class Handler(BaseHTTPRequestHandler):
    timeout = SECONDS
    server_version, sys_version = "package-index", ""

    def do_GET(self):
        name = self.path.removeprefix("/simple/").removesuffix("/")
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
            self.send_error(404 if error.code == 404 else 502, f"the index replied {error.code}")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"{self.path}: {error}", file=sys.stderr)
            self.send_error(502, "the index is unavailable")

    def reply(self, body, content_type):
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def forward(self, url):
        """Forwards a file. A client that gets less than the length sees an incomplete response."""
        self.server.check(url)
        with self.server.open(url, "*/*") as response:
            length = int(response.headers["Content-Length"])
            if length > FILE_BYTES:
                raise ValueError(f"the file is larger than {FILE_BYTES} bytes")
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(length))
            self.end_headers()
            while length > 0 and (chunk := response.read(min(CHUNK, length))):
                self.wfile.write(chunk)
                length -= len(chunk)
        if length > 0:
            self.close_connection = True

    def log_message(self, text, *arguments):
        """Logs nothing: requests name what a model asked for."""


if __name__ == "__main__":
    server = Index(("", int(os.environ.get("PORT", "8080"))))
    print(f"port {server.server_port}", flush=True)
    server.serve_forever()
