"""llama.cpp's own server with a model that is made for it: random weights of a few kilobytes, which
speak nonsense, and quickly. Its arguments are a directory for the model, and the port.
"""

import signal
import sys
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

EMBEDDING, FORWARD, HEADS, CONTEXT, SLOTS = 32, 32, 2, 128, 8
SPECIAL = (b"<unk>", b"<s>", b"</s>")
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz\u2581")
TOKENS = [*SPECIAL, *(b"<0x%02X>" % byte for byte in range(256)), *map(str.encode, LETTERS)]
KINDS = [
    *(gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL),
    *([gguf.TokenType.BYTE] * 256),
    *([gguf.TokenType.NORMAL] * len(LETTERS)),
]
SHAPES = {
    "token_embd": (len(TOKENS), EMBEDDING),
    "output": (len(TOKENS), EMBEDDING),
    "output_norm": (EMBEDDING,),
    **{f"blk.0.attn_{part}": (EMBEDDING, EMBEDDING) for part in ("q", "k", "v", "output")},
    **{f"blk.0.{part}_norm": (EMBEDDING,) for part in ("attn", "ffn")},
    **{f"blk.0.ffn_{part}": (FORWARD, EMBEDDING) for part in ("gate", "up")},
    "blk.0.ffn_down": (EMBEDDING, FORWARD),
}


def write_model(path):
    """Write a model of one layer that knows bytes and letters."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_feed_forward_length(FORWARD)
    writer.add_block_count(1)
    writer.add_head_count(HEADS)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_types(KINDS)
    writer.add_token_scores([0.0] * len(TOKENS))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")
    drawn = np.random.default_rng(1)
    for name, shape in SHAPES.items():
        writer.add_tensor(f"{name}.weight", drawn.normal(0.0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def serve(path, port):
    """Serve until a signal ends the process."""
    told = xllamacpp.CommonParams()
    told.model.path = str(path)
    told.hostnames, told.port = ["127.0.0.1"], port
    told.n_parallel, told.n_ctx = SLOTS, SLOTS * CONTEXT
    told.cpuparams.n_threads = told.cpuparams_batch.n_threads = 1
    told.warmup = False
    server = xllamacpp.Server(told)  # which serves as long as it is held
    signal.pause()
    del server


if __name__ == "__main__":
    model = Path(sys.argv[1], "tiny.gguf")
    write_model(model)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    serve(model, int(sys.argv[2]))
