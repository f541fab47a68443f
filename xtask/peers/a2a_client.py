"""An agent of the gateway, used with the Python client of A2A: one scenario, whose outcome is printed as JSON."""

import asyncio
import json
import os
import sys

import httpx
from a2a.client import ClientConfig, create_client
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import A2AError


def request(message_id, text, **options):
    message = a2a.Message(
        message_id=message_id, role=a2a.Role.ROLE_USER, parts=[a2a.Part(text=text)]
    )
    configuration = a2a.SendMessageConfiguration(**options)
    return a2a.SendMessageRequest(message=message, configuration=configuration)


def state(status):
    return a2a.TaskState.Name(status.state)


def summary(task):
    texts = [part.text for artifact in task.artifacts for part in artifact.parts]
    return {"id": task.id, "state": state(task.status), "text": "".join(texts)}


async def read(events):
    """Returns the task after the events of a stream."""
    outcome = {}
    async for event in events:
        if event.HasField("task"):
            outcome = summary(event.task)
        elif event.HasField("artifact_update"):
            update = event.artifact_update
            text = "".join(part.text for part in update.artifact.parts)
            outcome["text"] = outcome["text"] + text if update.append else text
        elif event.HasField("status_update"):
            outcome["state"] = state(event.status_update.status)
    return outcome


async def card(streaming, polling):
    found = await streaming.get_extended_agent_card(a2a.GetExtendedAgentCardRequest())
    return {"name": found.name, "binding": found.supported_interfaces[0].protocol_binding}


async def whole(streaming, polling):
    return await read(polling.send_message(request("m1", "hello")))


async def stream(streaming, polling):
    """Streams a message, and sends it again in both ways."""
    message = request("m1", "hello")
    outcomes = [await read(client.send_message(message)) for client in [streaming, streaming, polling]]
    outcomes.append(summary(await polling.get_task(a2a.GetTaskRequest(id=outcomes[0]["id"]))))
    return outcomes


async def cancel(streaming, polling):
    """Cancels a task whose stream is read."""
    started = await read(polling.send_message(request("m1", "wait", return_immediately=True)))
    events = streaming.subscribe(a2a.SubscribeToTaskRequest(id=started["id"]))
    await anext(events)
    cancelled = await polling.cancel_task(a2a.CancelTaskRequest(id=started["id"]))
    async for event in events:
        last = event
    return [state(cancelled.status), state(last.status_update.status)]


async def errors(streaming, polling):
    outcomes = []
    unknown = {"id": "unknown"}
    done = await read(polling.send_message(request("m1", "hello")))
    for call in [
        lambda: polling.get_task(a2a.GetTaskRequest(**unknown)),
        lambda: polling.cancel_task(a2a.CancelTaskRequest(**unknown)),
        lambda: read(streaming.subscribe(a2a.SubscribeToTaskRequest(**unknown))),
        lambda: polling.cancel_task(a2a.CancelTaskRequest(id=done["id"])),
        lambda: read(streaming.subscribe(a2a.SubscribeToTaskRequest(id=done["id"]))),
        lambda: read(polling.send_message(request("m1", "another text"))),
    ]:
        try:
            await call()
            outcomes.append("no error")
        except A2AError as error:
            outcomes.append(type(error).__name__)
    return outcomes


SCENARIOS = {function.__name__: function for function in [card, whole, stream, cancel, errors]}


async def main():
    scenario, url = sys.argv[1:3]
    headers = {"Authorization": f"Bearer {os.environ['A2A_TOKEN']}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        clients = [
            await create_client(url, ClientConfig(httpx_client=http, streaming=is_streaming))
            for is_streaming in [True, False]
        ]
        print(json.dumps(await SCENARIOS[scenario](*clients)))


if __name__ == "__main__":
    asyncio.run(main())
