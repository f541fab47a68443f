"""An MCP server for the tests, made with FastMCP.

`fastmcp_server.py` uses standard input and output, `fastmcp_server.py PORT` uses streamable HTTP at
http://127.0.0.1:PORT/mcp.
"""

import asyncio
import base64
import sys

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image

# One red pixel.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
MAX_TEXT_LENGTH = 64 * 1024 * 1024

server = FastMCP("rockbot-test-server", instructions="Tools for the tests.")


@server.tool(annotations={"readOnlyHint": True})
def echo(text: str) -> str:
    """Returns the text."""
    return text


@server.tool(annotations={"readOnlyHint": True})
def add(a: int, b: int) -> int:
    """Adds two numbers. The sum is also structured content."""
    return a + b


@server.tool
async def slow(steps: int, step_ms: int, context: Context) -> str:
    """Takes a number of steps, and reports progress after each."""
    for step in range(1, steps + 1):
        await asyncio.sleep(step_ms / 1000)
        await context.report_progress(progress=step, total=steps, message=f"step {step}")
    return f"{steps} steps"


@server.tool
def fail(reason: str) -> str:
    """Fails with the reason."""
    raise ToolError(reason)


@server.tool
def image() -> Image:
    """Returns a PNG of one red pixel."""
    return Image(data=PIXEL, format="png")


@server.tool
def long_text(length: int) -> str:
    """Returns a text of a given length."""
    return "x" * min(length, MAX_TEXT_LENGTH)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(
            transport="http",
            host="127.0.0.1",
            port=int(sys.argv[1]),
            log_level="warning",
            show_banner=False,
        )
    else:
        server.run(transport="stdio", show_banner=False)
