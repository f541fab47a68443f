"""Measures calls/s and p50 of a Celery task with the rpc:// result backend, with the worker in another
process.

    python celery_calls.py AMQP_URL
"""

import os
import statistics
import subprocess
import sys
import time

from celery import Celery

URL = os.environ.get("BENCH_AMQP_URL") or sys.argv[1]
app = Celery("bench", broker=URL, backend="rpc://")
app.conf.update(
    broker_transport_options={"confirm_publish": True},
    task_acks_late=True,
    result_persistent=True,
    worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True,
)


@app.task(name="echo")
def echo(text):
    return text


def measure(in_flight, seconds=3.0):
    times, calls, began = [], 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        results = [echo.delay("hello") for _ in range(in_flight)]
        for result in results:
            assert result.get(timeout=30) == "hello"
            times.append(time.perf_counter() - start)
        calls += in_flight
    return calls / (time.perf_counter() - began), statistics.median(times) * 1000


def main():
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "celery_calls", "worker", "-P", "threads", "-c", "64",
         "--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"],
        cwd=os.path.dirname(os.path.abspath(__file__)),
        env={**os.environ, "BENCH_AMQP_URL": URL},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert echo.delay("hello").get(timeout=60) == "hello"
        print("| in flight | Celery calls/s | p50 |\n|---:|---:|---:|")
        for in_flight in (1, 16, 256):
            per_second, p50 = measure(in_flight)
            print(f"| {in_flight} | {per_second:.0f} | {p50:.2f} ms |", flush=True)
    finally:
        worker.terminate()
        worker.wait(timeout=30)


if __name__ == "__main__":
    main()
