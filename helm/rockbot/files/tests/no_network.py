"""Runs as a script of a model would, and fails if it reaches what its input names."""

import os
import socket
import sys

reached = []
targets = [line.split() for line in os.environ["ROCKBOT_INPUT"].splitlines()]
if not targets:
    sys.exit("the input names nothing to reach")
for host, port in targets:
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
        reached.append(f"{host}:{port}")
    except OSError as error:
        print(f"not reached, as it should be: {host}:{port} ({error})")
if reached:
    sys.exit("a script reached " + ", ".join(reached) + ": does the cluster enforce NetworkPolicy?")
