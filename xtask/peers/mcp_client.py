"""An MCP client for the tests, made with the official SDK or with FastMCP.

`mcp_client.py LIBRARY ERA TARGET STEPS`:

- LIBRARY is `mcp` or `fastmcp`.
- ERA is `legacy` or a revision of the protocol without a handshake; with `mcp` also `auto`.
- TARGET is the URL of a server, or the JSON list of a command and its arguments; with `mcp` also a JSON object with
  `command`, `args`, `env` and `cwd`.
- STEPS is a JSON list of requests. A call with `afterProgress` calls another tool when that number of lines has arrived.

Prints the results of the requests as a JSON list.
"""

import asyncio
import json
import sys

import mcp
from fastmcp import Client as FastClient
from fastmcp.client.transports import StdioTransport
from mcp import StdioServerParameters

MAX_PAGES = 100


def plain(value):
    """Returns a result of a library as JSON values."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


async def call(library, client, step):
    progress, tasks = [], []
    after = step.get("afterProgress", {})

    async def on_progress(_done, _total, message):
        progress.append(message)
        if len(progress) == after.get("count"):
            tasks.append(asyncio.create_task(client.call_tool(after["call"])))

    arguments = step.get("arguments", {})
    if library == "mcp":
        meta = step.get("meta")
        result = await client.call_tool(
            step["call"], arguments, progress_callback=on_progress, meta=meta
        )
    else:
        result = await client.call_tool_mcp(
            step["call"], arguments, progress_handler=on_progress, meta=step.get("meta")
        )
    await asyncio.gather(*tasks)
    return {"result": plain(result), "progress": progress}


async def listed(library, client, kind):
    method = getattr(client, f"list_{kind}")
    if library == "fastmcp":
        return plain(await method())
    items, cursor = [], None
    for _ in range(MAX_PAGES):
        page = await method(cursor=cursor)
        items += plain(page)[kind]
        cursor = page.next_cursor
        if not cursor:
            return items
    raise RuntimeError(f"the list has more than {MAX_PAGES} pages")


async def run(library, client, step):
    try:
        if "call" in step:
            return await call(library, client, step)
        if "list" in step:
            return await listed(library, client, step["list"])
        if "prompt" in step:
            return plain(await client.get_prompt(step["prompt"]))
        result = plain(await client.read_resource(step["read"]))
        return result if library == "fastmcp" else result["contents"]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def connect(library, era, target):
    is_url = isinstance(target, str)
    if library == "mcp":
        if isinstance(target, list):
            target = {"command": target[0], "args": target[1:]}
        server = target if is_url else StdioServerParameters(**target)
        return mcp.Client(server, mode=era, read_timeout_seconds=60)
    return FastClient(target if is_url else StdioTransport(target[0], target[1:]), mode=era, timeout=60)


async def main():
    library, era, target, steps = sys.argv[1:]
    target = json.loads(target) if target[0] in "[{" else target
    async with connect(library, era, target) as client:
        results = [await run(library, client, step) for step in json.loads(steps)]
    print(json.dumps(results))


asyncio.run(main())
