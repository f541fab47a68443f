"""Waits until this pod reaches the broker: a network plugin may take a moment to let a new pod out.

With the name of a file it also tries the API server, and writes down what it reached, a line "HOST
PORT" each, as addresses, because scripts have no name service. What a script must not reach is then
known to be there: without that, a network that is down would pass for one that is closed.
"""

import os
import socket
import sys
import time
from urllib.parse import urlsplit

PATIENCE = 60

with open("/run/secrets/rockbot/broker-url", encoding="utf-8") as file:
    broker = urlsplit(file.read().strip())
targets = [(broker.hostname, broker.port or (5671 if broker.scheme == "amqps" else 5672))]
if len(sys.argv) > 1:
    api = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    targets.append(api)


def reach(host, port, until):
    while True:
        try:
            with socket.create_connection((host, port), timeout=10) as connection:
                return connection.getpeername()[0]
        except OSError as error:
            if time.monotonic() > until:
                sys.exit(f"the fleet itself does not reach {host}:{port}: {error}")
            time.sleep(0.2)


lines = []
for host, port in targets:
    address = reach(host, port, time.monotonic() + PATIENCE)
    print(f"reached from the fleet: port {port} of {address}")
    lines.append(f"{address} {port}")
if len(sys.argv) > 1:
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
