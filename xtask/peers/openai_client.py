"""Completions and responses with OpenAI's Python client: one scenario, whose outcome is printed as JSON."""

import json
import sys

import openai


def ask(client, text, **options):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="assistant", messages=messages, **options)


def streamed(stream):
    """Returns text, lines about the course of the turn, and the usage of a stream."""
    content, reasoning, usage = "", "", None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
    return {"content": content, "reasoning": reasoning, "totalTokens": usage and usage.total_tokens}


def models(client):
    return [model.id for model in client.models.list()]


def whole(client):
    completion = ask(client, "tools")
    message = completion.choices[0].message
    return {
        "content": message.content,
        "reasoning": message.model_extra["reasoning_content"],
        "finish": completion.choices[0].finish_reason,
        "totalTokens": completion.usage.total_tokens,
    }


def stream(client):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    return streamed(ask(client, "tools", **options))


def conversation(client):
    first = ask(client, "first").choices[0].message.content
    messages = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "second"},
    ]
    second = client.chat.completions.create(model="assistant", messages=messages)
    return second.choices[0].message.content


def errors(client):
    outcomes = []
    for model, text in [("absent", "x"), ("assistant", "fail")]:
        for is_stream in [False, True]:
            try:
                messages = [{"role": "user", "content": text}]
                reply = client.chat.completions.create(
                    model=model, messages=messages, stream=is_stream
                )
                list(reply)
                outcomes.append("no error")
            except openai.APIError as error:
                outcomes.append([type(error).__name__, error.code])
    return outcomes


def repeat(client):
    """Sends the same request five times with its key."""
    headers = {"Idempotency-Key": sys.argv[3]}
    completions = [ask(client, "tools", extra_headers=headers) for _ in range(5)]
    return sorted({completion.id for completion in completions})


def hang_up(client):
    """Ends a stream once the tool has started."""
    with ask(client, "sleep", stream=True) as chunks:
        for chunk in chunks:
            if getattr(chunk.choices[0].delta, "reasoning_content", None):
                return "hung up"
    return "ended"


def respond(client, text, **options):
    return client.responses.create(model="assistant", input=text, **options)


def summary(response):
    """Returns text, lines about the course of the turn, and the usage of a response."""
    lines = [item.summary[0].text for item in response.output if item.type == "reasoning"]
    return {
        "content": response.output_text,
        "reasoning": "".join(lines),
        "finish": response.status,
        "totalTokens": response.usage.total_tokens,
    }


def response_whole(client):
    return summary(respond(client, "tools"))


def response_stream(client):
    """Reads a stream as events, and another one with the client's own reader, which checks their order."""
    deltas, kinds, last = "", [], None
    for event in respond(client, "tools", stream=True):
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            deltas += event.delta
        if event.type == "response.completed":
            last = event.response
    assert deltas == last.output_text, (deltas, last)
    assert kinds[:2] == ["response.created", "response.in_progress"], kinds
    with client.responses.stream(model="assistant", input="tools") as events:
        read = events.get_final_response()
    assert read.output_text == last.output_text, read
    return summary(read)


def response_continued(client):
    first = respond(client, "first")
    second = respond(client, "second", previous_response_id=first.id)
    read = client.responses.retrieve(second.id)
    assert (read.output_text, read.previous_response_id) == (second.output_text, first.id), read
    client.responses.delete(second.id)
    try:
        client.responses.retrieve(second.id)
    except openai.NotFoundError:
        return second.output_text
    return "not deleted"


def response_errors(client):
    outcomes = []
    for options in [{"model": "absent"}, {"tools": [{"type": "web_search"}]}, {"input": "fail"}]:
        for is_stream in [False, True]:
            request = {"model": "assistant", "input": "x", "stream": is_stream, **options}
            try:
                events = list(client.responses.create(**request))
                outcomes.append([events[-1].type, events[-1].response.error.code])
            except openai.APIError as error:
                outcomes.append([type(error).__name__, error.code])
    return outcomes


def response_repeat(client):
    """Sends the same request five times with its key."""
    headers = {"Idempotency-Key": sys.argv[3]}
    responses = [respond(client, "tools", extra_headers=headers) for _ in range(5)]
    return sorted({(response.id, response.output_text) for response in responses})


def response_hang_up(client):
    """Ends a stream once the tool has started."""
    with respond(client, "sleep", stream=True) as events:
        for event in events:
            if event.type == "response.reasoning_summary_text.delta":
                return "hung up"
    return "ended"


COMPLETIONS = [models, whole, stream, conversation, errors, repeat, hang_up]
RESPONSES = [
    response_whole,
    response_stream,
    response_continued,
    response_errors,
    response_repeat,
    response_hang_up,
]
SCENARIOS = {function.__name__: function for function in COMPLETIONS + RESPONSES}

if __name__ == "__main__":
    scenario, base_url = sys.argv[1:3]
    # The key comes from OPENAI_API_KEY.
    print(json.dumps(SCENARIOS[scenario](openai.OpenAI(base_url=base_url, timeout=60))))
