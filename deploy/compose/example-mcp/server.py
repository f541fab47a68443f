"""An MCP server over streamable HTTP: two tools that need no network and no key."""

from datetime import datetime
from zoneinfo import ZoneInfo

from mcp.server.fastmcp import FastMCP
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations

server = FastMCP(
    "example",
    instructions="Tells the time anywhere on earth, and counts words.",
    host="0.0.0.0",
    port=8000,
    stateless_http=True,
    # The name by which the bridge reaches it. A web page that got here would have another.
    transport_security=TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=["example-mcp:8000"]
    ),
)
HARMLESS = ToolAnnotations(readOnlyHint=True, openWorldHint=False)


@server.tool(annotations=HARMLESS)
def current_time(timezone: str = "UTC") -> str:
    """The time now in a time zone such as Asia/Tokyo, in ISO 8601."""
    return datetime.now(ZoneInfo(timezone)).isoformat(timespec="seconds")


@server.tool(annotations=HARMLESS)
def count_words(text: str) -> int:
    """How many words a text has."""
    return len(text.split())


if __name__ == "__main__":
    server.run(transport="streamable-http")
