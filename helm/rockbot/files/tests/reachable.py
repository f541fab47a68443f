"""Waits until this pod reaches the broker: a network plugin may take a moment to admit a new pod.

With a file name it also connects to the API server, and writes the addresses into the file, as lines
"HOST PORT" with IP addresses, because scripts have no DNS. This proves that the targets are up, so that
a failed connection from a script means isolation.
"""

import os
import socket
import sys
import time
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 60

with open("/run/secrets/rockbot/broker-url", encoding="utf-8") as file:
    broker = urlsplit(file.read().strip())
targets = [(broker.hostname, broker.port or (5671 if broker.scheme == "amqps" else 5672))]
if len(sys.argv) > 1:
    api = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    targets.append(api)


def connect(host, port, deadline):
    while True:
        try:
            with socket.create_connection((host, port), timeout=10) as connection:
                return connection.getpeername()[0]
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"{host}:{port} is not reachable from the fleet: {error}")
            time.sleep(0.2)


lines = []
for host, port in targets:
    address = connect(host, port, time.monotonic() + TIMEOUT_SECONDS)
    print(f"reachable from the fleet: port {port} of {address}")
    lines.append(f"{address} {port}")
if len(sys.argv) > 1:
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
