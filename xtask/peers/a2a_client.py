"""An agent of the gateway, used with the Python client of A2A over one binding: a scenario, whose outcome is printed as JSON."""

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
    bindings = [interface.protocol_binding for interface in found.supported_interfaces]
    transport = type(streaming._transport).__name__
    return {"name": found.name, "bindings": bindings, "transport": transport}


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


async def listing(streaming, polling):
    """Lists tasks page by page, and by context and state."""
    started = [await read(polling.send_message(request(f"m-{text}", text))) for text in ["one", "two", "three"]]
    # A page is stable once the ends are recorded.
    known = None
    while known != (known := (await polling.list_tasks(a2a.ListTasksRequest())).SerializeToString()):
        pass
    sizes, tasks, token = [], [], ""
    while True:
        page = await polling.list_tasks(a2a.ListTasksRequest(page_size=2, page_token=token))
        sizes.append(len(page.tasks))
        tasks.extend(page.tasks)
        token = page.next_page_token
        if not token:
            break
    times = [task.status.timestamp.ToNanoseconds() for task in tasks]
    second = await polling.get_task(a2a.GetTaskRequest(id=started[1]["id"]))
    of_context = a2a.ListTasksRequest(context_id=second.context_id, include_artifacts=True)
    working = a2a.ListTasksRequest(status=a2a.TaskState.TASK_STATE_WORKING)
    return {
        "pages": sizes,
        "total": page.total_size,
        "newest_first": {task.id for task in tasks} == {task["id"] for task in started}
        and times == sorted(times, reverse=True),
        "one_context": [summary(task)["text"] for task in (await polling.list_tasks(of_context)).tasks],
        "working": [task.id for task in (await polling.list_tasks(working)).tasks],
    }


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
        lambda: polling.list_tasks(a2a.ListTasksRequest(page_token="forged")),
        lambda: polling.list_task_push_notification_configs(
            a2a.ListTaskPushNotificationConfigsRequest(task_id=done["id"])
        ),
    ]:
        try:
            await call()
            outcomes.append("no error")
        except A2AError as error:
            outcomes.append(type(error).__name__)
    return outcomes


SCENARIOS = {function.__name__: function for function in [card, whole, stream, cancel, listing, errors]}


async def main():
    scenario, url, binding = sys.argv[1:4]
    headers = {"Authorization": f"Bearer {os.environ['A2A_TOKEN']}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        clients = [
            await create_client(
                url,
                ClientConfig(
                    httpx_client=http, streaming=is_streaming, supported_protocol_bindings=[binding]
                ),
            )
            for is_streaming in [True, False]
        ]
        print(json.dumps(await SCENARIOS[scenario](*clients)))


if __name__ == "__main__":
    asyncio.run(main())
