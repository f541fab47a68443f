"""A script that fails if it reaches one of the addresses in its input."""

import os
import socket
import sys

reached = []
targets = [line.split() for line in os.environ["ROCKBOT_INPUT"].splitlines()]
if not targets:
    sys.exit("the input contains no addresses")
for host, port in targets:
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
        reached.append(f"{host}:{port}")
    except OSError as error:
        print(f"not reachable, as expected: {host}:{port} ({error})")
if reached:
    sys.exit("a script reached " + ", ".join(reached) + ": does the cluster enforce NetworkPolicy?")
