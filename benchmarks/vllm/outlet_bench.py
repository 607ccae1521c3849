"""vLLM's own parsers and its benchmark client on files of the outlet; no model, no GPU.

python -m benchmarks.vllm.outlet_bench TRACE BATCH RESULT, in an environment with vLLM. A small
server here yields the tokens that the client asks for, and notes what it was asked. Its notes go to
stdout as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from aiohttp import web
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.launchers.run_batch import BatchRequestInput

WORDS = 500
TOKEN_S = 0.002


def save_tokenizer(folder):
    """Write a tokenizer of some hundred words: the client makes prompts of them."""
    words = {"<unk>": 0, **{f"w{number}": number for number in range(1, WORDS)}}
    plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="<unk>").save_pretrained(folder)


async def answer(request):
    """Stream as many tokens as asked for, at even times, as the completions API does."""
    asked = await request.json()
    prompt, count = asked["prompt"], asked["max_tokens"]
    request.app["asked"].append([len(prompt), count, bool(asked.get("ignore_eos")), prompt[:8]])
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(request)
    for _ in range(count):
        await asyncio.sleep(TOKEN_S)
        await reply.write(b'data: {"choices": [{"text": "w"}]}\n\n')
    usage = {"prompt_tokens": len(prompt), "completion_tokens": count}
    end = json.dumps({"choices": [], "usage": usage})
    await reply.write(f"data: {end}\n\ndata: [DONE]\n\n".encode())
    return reply


async def models_served(request):
    """Name the one model."""
    return web.json_response({"object": "list", "data": [{"id": "none", "object": "model"}]})


async def bench(trace, result):
    """Run ``vllm bench serve`` against the server; return what the server was asked."""
    app = web.Application(client_max_size=2**28)
    app["asked"] = []
    app.add_routes([web.post("/v1/completions", answer), web.get("/v1/models", models_served)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    count = len(Path(trace).read_text().splitlines())
    with tempfile.TemporaryDirectory() as folder:
        save_tokenizer(folder)
        command = [
            sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", "serve",
            "--backend", "vllm", "--base-url", f"http://127.0.0.1:{port}",
            "--model", "none", "--tokenizer", folder, "--num-prompts", str(count),
            "--dataset-name", "timed_trace", "--dataset-path", trace, "--disable-tqdm",
            "--ready-check-timeout-sec", "0",
            "--save-result", "--save-detailed", "--result-filename", result,
        ]  # fmt: skip
        client = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        text, _ = await client.communicate()
    await runner.cleanup()
    if client.returncode:
        sys.exit(text.decode()[-1500:])
    return app["asked"]


def main():
    """Check the files and print the notes."""
    trace, batch, result = sys.argv[1:]
    lines = [
        BatchRequestInput.model_validate_json(line) for line in Path(batch).read_text().splitlines()
    ]
    notes = {
        "priorities": {line.custom_id: line.body.priority for line in lines},
        "asked": asyncio.run(bench(trace, result)),
    }
    print(json.dumps(notes))


if __name__ == "__main__":
    main()
