"""An MCP server over streamable HTTP: two tools that need no network and no key."""

from datetime import datetime
from zoneinfo import ZoneInfo

from mcp.server.fastmcp import FastMCP
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations

server = FastMCP(
    "example",
    instructions="Returns the time in any time zone, and counts words.",
    host="0.0.0.0",
    port=8000,
    stateless_http=True,
    # The host name that the bridge uses. Requests of web pages (DNS rebinding) have another one.
    transport_security=TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=["example-mcp:8000"]
    ),
)
READ_ONLY = ToolAnnotations(readOnlyHint=True, openWorldHint=False)


@server.tool(annotations=READ_ONLY)
def current_time(timezone: str = "UTC") -> str:
    """Returns the current time in a time zone such as Asia/Tokyo, in ISO 8601."""
    return datetime.now(ZoneInfo(timezone)).isoformat(timespec="seconds")


@server.tool(annotations=READ_ONLY)
def count_words(text: str) -> int:
    """Returns the number of words in a text."""
    return len(text.split())


if __name__ == "__main__":
    server.run(transport="streamable-http")
