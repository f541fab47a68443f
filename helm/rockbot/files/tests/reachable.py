"""Finds what a script must not reach, and proves that a pod of the fleet does reach it.

Without that, a network that is down would pass for one that is closed. Writes a line "HOST PORT" for
each to the file that is named, as addresses, because scripts have no name service.
"""

import os
import socket
import sys
from urllib.parse import urlsplit

with open("/run/secrets/rockbot/broker-url", encoding="utf-8") as file:
    broker = urlsplit(file.read().strip())
targets = [
    (broker.hostname, broker.port or (5671 if broker.scheme == "amqps" else 5672)),
    (os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])),
]
lines = []
for host, port in targets:
    # A look of its own at each: which of its addresses answers is what the script is given.
    with socket.create_connection((host, port), timeout=10) as connection:
        address = connection.getpeername()[0]
    print(f"reached from the fleet: port {port} of {address}")
    lines.append(f"{address} {port}")
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.write("\n".join(lines))
