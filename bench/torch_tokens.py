#!/usr/bin/env python3
"""Times single tokens in PyTorch: the peer of `adjoint bench tokens`.

Two peers of the same Llama shapes in bf16, greedy, with a static cache of keys and values, parameters drawn at random:
`transformers` is its own generate(cache_implementation="static"), which compiles the model for single tokens; `plain` is
a model as careful users write it for speed (the cache written by index_copy_, projections of q, k and v in one product,
gate and up in one), one token compiled with mode="reduce-overhead", that is one CUDA graph per token, whose next token
never leaves the device. Prints a line of JSON."""
import argparse
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ModuleNotFoundError:
    sys.stderr.write("torch_tokens: PyTorch is not installed for this Python\n")
    sys.exit(4)

from torch_step import RmsNorm, rotate

SHAPES = {  # layers, hidden, heads, kv_heads, ffn, tied
    "llama3.2-1b": (16, 2048, 32, 8, 8192, True),
    "llama3-8b": (32, 4096, 32, 8, 14336, False),
    "llama-tiny": (2, 64, 4, 2, 176, False),
}
VOCAB, BASE = 128256, 500000.0


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, ffn, context):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, hidden // heads
        self.norm1, self.norm2 = RmsNorm(hidden, eps=1e-5), RmsNorm(hidden, eps=1e-5)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.size, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up, self.down = nn.Linear(hidden, 2 * ffn, bias=False), nn.Linear(ffn, hidden, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, kv_heads, context, self.size))

    def forward(self, x, at, angles, seen):
        h = self.qkv(self.norm1(x)).view(1, 1, self.heads + 2 * self.kv_heads, self.size).transpose(1, 2)
        q, k, v = h.split((self.heads, self.kv_heads, self.kv_heads), 1)
        self.keys.index_copy_(2, at, rotate(k, angles))
        self.values.index_copy_(2, at, v)
        a = F.scaled_dot_product_attention(rotate(q, angles), self.keys, self.values, attn_mask=seen, enable_gqa=True)
        x = x + self.out(a.transpose(1, 2).reshape(1, 1, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Plain(nn.Module):
    def __init__(self, shape, context):
        super().__init__()
        layers, hidden, heads, kv_heads, ffn, tied = shape
        self.tokens = nn.Embedding(VOCAB, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, kv_heads, ffn, context) for _ in range(layers))
        self.norm = RmsNorm(hidden, eps=1e-5)
        self.readout = None if tied else nn.Linear(hidden, VOCAB, bias=False)
        size = hidden // heads
        turns = BASE ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle = torch.outer(torch.arange(context, dtype=torch.float64), turns).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer("places", torch.arange(context), persistent=False)

    def forward(self, token, at):
        x = self.tokens(token)
        angles, seen = (self.cos[at], self.sin[at]), (self.places <= at).view(1, 1, 1, -1)
        for block in self.blocks:
            x = block(x, at, angles, seen)
        table = self.tokens if self.readout is None else self.readout
        return F.linear(self.norm(x), table.weight).argmax(-1), at + 1


def plain(a, shape):
    with torch.device(a.device):
        model = Plain(shape, a.context)
        places = model.places
        model = model.to(torch.bfloat16)
        model.places = places
    one = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    token = torch.ones(1, 1, dtype=torch.long, device=a.device)
    at = torch.full((1,), a.prompt, dtype=torch.long, device=a.device)

    def tokens(count, token, at):
        for _ in range(count):
            torch.compiler.cudagraph_mark_step_begin()
            token, at = one(token, at)
            token, at = token.clone(), at.clone()
        return token, at

    token, at = tokens(a.warmup, token, at)
    rounds = []
    for _ in range(a.rounds):
        torch.cuda.synchronize()
        before = time.perf_counter()
        tokens(a.tokens, token, at)
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - before) / a.tokens)
    return rounds, model


def theirs(a, shape):
    import transformers
    layers, hidden, heads, kv_heads, ffn, tied = shape
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, intermediate_size=ffn, max_position_embeddings=131072, rms_norm_eps=1e-5,
        rope_theta=BASE, tie_word_embeddings=tied, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    with torch.device(a.device):
        torch.set_default_dtype(torch.bfloat16)
        model = transformers.LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    prompt = torch.ones(1, max(1, a.prompt), dtype=torch.long, device=a.device)

    def seconds(count):
        torch.cuda.synchronize()
        before = time.perf_counter()
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, min_new_tokens=count,
                       do_sample=False, cache_implementation="static")
        torch.cuda.synchronize()
        return time.perf_counter() - before

    few, many = a.warmup, a.warmup + a.tokens
    for count in (few, many, few, many):
        seconds(count)
    return [(seconds(many) - seconds(few)) / a.tokens for _ in range(a.rounds)], model


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--model", choices=SHAPES, default="llama3.2-1b")
    args.add_argument("--peer", choices=("plain", "transformers"), default="plain")
    args.add_argument("--context", type=int, default=512, help="positions that the cache has room for")
    args.add_argument("--prompt", type=int, default=0, help="positions before the first token")
    args.add_argument("--tokens", type=int, default=200)
    args.add_argument("--warmup", type=int, default=16)
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--device", default="cuda")
    a = args.parse_args()
    if not torch.cuda.is_available():
        args.exit(1, "torch_tokens: PyTorch finds no GPU\n")
    torch.manual_seed(1)
    with torch.no_grad():
        rounds, model = (plain if a.peer == "plain" else theirs)(a, SHAPES[a.model])
    median = statistics.median(rounds)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    print(json.dumps({"what": f"torch {torch.__version__} {a.peer}", "model": a.model, "context": a.context,
                      "token_s": median, "rounds_s": rounds, "tokens_per_s": 1 / median, "weights_bytes": weights,
                      "weights_per_s": weights / median}))


if __name__ == "__main__":
    main()
