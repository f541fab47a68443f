"""An agent behind the Python server of A2A, controlled by its standard input.

The arguments are `streaming` or `polling`, and optionally the file of a private key that signs its card.

Prints `listening PORT`, then `ran TEXT` for each message that it runs and `cancelled TEXT` for each cancelled one. A message that
starts with "wait" ends after the line `go` of the standard input; one that starts with "ask" requires input.
"""

import asyncio
import pathlib
import socket
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as a2a
from a2a.utils.signing import create_agent_card_signer
from starlette.applications import Starlette


def say(line):
    print(line, flush=True)


class Executor(AgentExecutor):
    def __init__(self):
        self.go = asyncio.Semaphore(0)

    async def execute(self, context, events):
        text = context.get_user_input()
        say(f"ran {text}")
        if not context.current_task:
            await events.enqueue_event(
                a2a.Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=a2a.TaskStatus(state=a2a.TaskState.TASK_STATE_SUBMITTED),
                    history=[context.message],
                )
            )
        updater = TaskUpdater(events, context.task_id, context.context_id)
        progress = updater.new_agent_message([a2a.Part(text="It searches.")])
        await updater.update_status(a2a.TaskState.TASK_STATE_WORKING, progress)
        if text.startswith("ask"):
            question = updater.new_agent_message([a2a.Part(text="Which table?")])
            await updater.update_status(a2a.TaskState.TASK_STATE_INPUT_REQUIRED, question)
            return
        if text.startswith("wait"):
            await self.go.acquire()
        await updater.add_artifact([a2a.Part(text=f"Found by {text}")], name="answer")
        await updater.update_status(a2a.TaskState.TASK_STATE_COMPLETED)

    async def cancel(self, context, events):
        say(f"cancelled {context.task_id}")
        updater = TaskUpdater(events, context.task_id, context.context_id)
        await updater.update_status(a2a.TaskState.TASK_STATE_CANCELED)


async def control(executor):
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline() == b"go\n":
        executor.go.release()


async def main():
    streams = sys.argv[1] == "streaming"
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    card = a2a.AgentCard(
        name="finder",
        description="Finds things.",
        version="1",
        capabilities=a2a.AgentCapabilities(streaming=streams),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[a2a.AgentSkill(id="find", name="Find", description="Finds a thing.", tags=["find"])],
        supported_interfaces=[
            a2a.AgentInterface(
                url=f"http://127.0.0.1:{port}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
            )
        ],
    )
    for key in sys.argv[2:]:
        header = {"alg": "ES256", "kid": "key", "jku": None, "typ": "JOSE"}
        card = create_agent_card_signer(pathlib.Path(key).read_text(), header)(card)
    executor = Executor()
    handler = DefaultRequestHandler(
        agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card
    )
    routes = create_agent_card_routes(card) + create_jsonrpc_routes(handler, "/rpc")
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error", lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    say(f"listening {port}")
    await control(executor)
    server.should_exit = True
    server.force_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
