"""An agent of the gateway, used with the Python client of A2A over one binding: a scenario, whose outcome is printed as JSON."""

import asyncio
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from a2a.client import ClientConfig, create_client
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import A2AError
from google.protobuf import json_format


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


async def push(streaming, polling):
    """Receives the events of two tasks: one registered with its message, one after it."""
    received, changed = [], threading.Condition()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            event = json_format.ParseDict(body, a2a.StreamResponse())
            token, authorization = self.headers["X-A2A-Notification-Token"], self.headers["Authorization"]
            with changed:
                received.append((self.path, token, authorization, event))
                changed.notify_all()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def config(path, **fields):
        authentication = a2a.AuthenticationInfo(scheme="Bearer", credentials="credentials")
        url = f"http://127.0.0.1:{server.server_port}/{path}"
        return a2a.TaskPushNotificationConfig(url=url, token=f"token-{path}", authentication=authentication, **fields)

    options = {"return_immediately": True, "task_push_notification_config": config("message")}
    await read(polling.send_message(request("m1", "hello", **options)))
    second = await read(polling.send_message(request("m2", "hello again")))
    created = await polling.create_task_push_notification_config(config("created", task_id=second["id"]))
    named = {"task_id": second["id"], "id": created.id}
    found = await polling.get_task_push_notification_config(a2a.GetTaskPushNotificationConfigRequest(**named))
    listed = await polling.list_task_push_notification_configs(
        a2a.ListTaskPushNotificationConfigsRequest(task_id=second["id"])
    )

    def is_end(event):
        completed = a2a.TaskState.TASK_STATE_COMPLETED
        return completed in (event.task.status.state, event.status_update.status.state)

    def wait_for_ends():
        with changed:
            changed.wait_for(lambda: len({path for path, _, _, event in received if is_end(event)}) == 2)

    await asyncio.to_thread(wait_for_ends)
    await polling.delete_task_push_notification_config(a2a.DeleteTaskPushNotificationConfigRequest(**named))
    left = await polling.list_task_push_notification_configs(
        a2a.ListTaskPushNotificationConfigsRequest(task_id=second["id"])
    )
    server.shutdown()

    async def events(path):
        for at, _, _, event in list(received):
            if at == path:
                yield event

    outcomes = [await read(events("/message")), await read(events("/created"))]
    return {
        "texts": [outcome["text"] for outcome in outcomes],
        "states": [outcome["state"] for outcome in outcomes],
        "begins_with_task": [event.WhichOneof("payload") for at, _, _, event in received if at == "/message"][0],
        "tokens": sorted({token for _, token, _, _ in received}),
        "authorization": sorted({authorization for _, _, authorization, _ in received}),
        "same": created == found and list(listed.configs) == [created],
        "left": len(left.configs),
    }


async def signed_card(streaming, polling):
    """Verifies the signature of the card, and that a changed card has none that is valid."""
    from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier

    with open(os.environ["A2A_CARD_KEY"], encoding="ascii") as file:
        public_key = file.read()
    key_ids = []

    def key(key_id, url):
        key_ids.append(key_id)
        return public_key

    verify = create_signature_verifier(key, ["ES256"])
    found = await streaming.get_extended_agent_card(
        a2a.GetExtendedAgentCardRequest(), signature_verifier=verify
    )
    verify(found)
    found.description += "!"
    try:
        verify(found)
        changed = "valid"
    except InvalidSignaturesError:
        changed = "invalid"
    return {"signatures": len(found.signatures), "changed": changed, "key_ids": sorted(set(key_ids))}


SCENARIOS = {
    function.__name__: function
    for function in [card, whole, stream, cancel, listing, errors, push, signed_card]
}


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
