"""Turns of 8 steps in DBOS: each step records the response of a model and the result of a tool, neither of
which does anything.

`cargo xtask bench turns` runs it. Argument: the URL of a PostgreSQL database. It prints `ready`, then reads
measurements from standard input, `VARIANT IN_FLIGHT MILLISECONDS`, and prints for each the steps per second
and the times of a turn at p50 and p99 in microseconds.
"""

import asyncio
import sys
import time

from dbos import DBOS, DBOSConfig

STEPS = 8
TEXT = "x" * 500
# Connections of the pool, as many as turns run at once.
CONNECTIONS = 64


@DBOS.step()
async def model() -> str:
    return TEXT


@DBOS.step()
async def noop() -> str:
    return "done"


@DBOS.workflow()
async def turn(message: str) -> str:
    read = len(message)
    for _ in range(STEPS):
        read += len(await model())
        read += len(await noop())
    return f"All done after {read} bytes."


async def one_after_the_other(end: float) -> list[float]:
    times = []
    while time.monotonic() < end:
        began = time.monotonic()
        answer = await turn("go")
        assert answer.startswith("All done"), answer
        times.append(time.monotonic() - began)
    return times


async def measure(in_flight: int, seconds: float) -> str:
    start = time.monotonic()
    ended = await asyncio.gather(*(one_after_the_other(start + seconds) for _ in range(in_flight)))
    taken = time.monotonic() - start
    times = sorted(one for some in ended for one in some)
    at = lambda share: times[min(int(len(times) * share), len(times) - 1)] * 1e6
    return f"{len(times) * STEPS / taken:.0f} {at(0.5):.0f} {at(0.99):.0f}"


async def main() -> None:
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        _, in_flight, milliseconds = line.split()
        print(await measure(int(in_flight), int(milliseconds) / 1000), flush=True)


if __name__ == "__main__":
    config: DBOSConfig = {
        "name": "turns",
        "system_database_url": sys.argv[1],
        "sys_db_pool_size": CONNECTIONS,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()
    asyncio.run(main())
