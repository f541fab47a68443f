"""Chat completions with OpenAI's Python client: one scenario, whose outcome is printed as JSON."""

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


SCENARIOS = {
    function.__name__: function
    for function in [models, whole, stream, conversation, errors, repeat, hang_up]
}

if __name__ == "__main__":
    scenario, base_url = sys.argv[1:3]
    # The key comes from OPENAI_API_KEY.
    print(json.dumps(SCENARIOS[scenario](openai.OpenAI(base_url=base_url, timeout=60))))
