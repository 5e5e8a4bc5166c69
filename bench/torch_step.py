#!/usr/bin/env python3
"""Times one training step of the same model in PyTorch: the peer that bench/compare.py sets beside Adjoint.

Plain modern PyTorch, as a careful user writes it: scaled_dot_product_attention, fused AdamW where the device has it,
set_to_none, clipping to norm 1, and torch.compile unless --eager. bf16 is autocast over float32 parameters. On a GPU the
vocabulary is padded to a multiple of 128, as careful users do, and float32 products may use tf32.
With --serve it compiles and warms up once, says so in a line of JSON, and then times --steps more for every line that it
reads, so that its rounds can stand between another program's; between them it waits for input and computes nothing."""
import argparse
import json
import math
import resource
import statistics
import sys
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint
except ModuleNotFoundError:
    sys.stderr.write("torch_step: PyTorch is not installed for this Python\n")
    sys.exit(4)  # compare.py then goes on without a peer

MODELS = {  # name: (kind, blocks, width, heads, kv heads, feed-forward width, context, vocabulary)
    "ref": ("gpt2", 4, 256, 4, 4, 1024, 512, 4096),
    "char": ("gpt2", 4, 128, 4, 4, 512, 64, 65),
    "gpt2": ("gpt2", 12, 768, 12, 12, 3072, 1024, 50257),
    "llama-110m": ("llama", 12, 768, 12, 4, 2304, 1024, 32000),
    "llama3.2-1b": ("llama", 16, 2048, 32, 8, 8192, 8192, 128256),
}


class Gpt2Block(nn.Module):
    def __init__(self, width, heads, _kv_heads, ffn, _context):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def forward(self, x, _angles):
        b, s, c = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(c, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


def rotate(x, angles):
    cos, sin = angles
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, ffn, _context):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, ffn, bias=False)
        self.up = nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x, angles):
        b, s, c = x.shape
        h = self.norm1(x)
        q = rotate(self.q(h).view(b, s, self.heads, -1).transpose(1, 2), angles)
        k = rotate(self.k(h).view(b, s, self.kv_heads, -1).transpose(1, 2), angles)
        v = self.v(h).view(b, s, self.kv_heads, -1).transpose(1, 2)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, kind, blocks, width, heads, kv_heads, ffn, context, vocab):
        super().__init__()
        self.kind, self.checkpointed = kind, False
        self.tokens = nn.Embedding(vocab, width)
        block = Gpt2Block if kind == "gpt2" else LlamaBlock
        self.blocks = nn.ModuleList(block(width, heads, kv_heads, ffn, context) for _ in range(blocks))
        if kind == "gpt2":
            self.positions, self.norm = nn.Embedding(context, width), nn.LayerNorm(width)
        else:
            self.norm = nn.RMSNorm(width, eps=1e-5)
            size = width // heads
            angle = torch.outer(torch.arange(context), 10000.0 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        s = ids.shape[1]
        x, angles = self.tokens(ids), None
        if self.kind == "gpt2":
            x = x + self.positions(torch.arange(s, device=ids.device))
        else:
            angles = (self.cos[:s].to(x.dtype), self.sin[:s].to(x.dtype))
        for block in self.blocks:
            x = checkpoint(block, x, angles, use_reentrant=False) if self.checkpointed else block(x, angles)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def peak_resident():
    """The process's largest resident size so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--model", choices=MODELS, default="ref")
    args.add_argument("--batch", type=int, default=8)
    args.add_argument("--context", type=int, help="the model's own unless said")
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--steps", type=int, default=10)
    args.add_argument("--warmup", type=int, default=3)
    args.add_argument("--bf16", action="store_true", help="autocast to bf16 over float32 parameters")
    args.add_argument("--eager", action="store_true", help="without torch.compile")
    args.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args.add_argument("--checkpoint", action="store_true", help="every block's activations are computed again")
    args.add_argument("--serve", action="store_true", help="a round of steps for every line of standard input")
    a = args.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    shape = list(MODELS[a.model])
    if a.context:
        shape[6] = a.context
    context, vocab = shape[6], shape[7]
    padding = -vocab % 128 if a.device == "cuda" else 0
    shape[7] += padding
    torch.set_float32_matmul_precision("high")
    model = Model(*shape).to(a.device)
    model.checkpointed = a.checkpoint
    decays = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=1e-4, fused=True)
    forward = model if a.eager else torch.compile(model)
    # Drawn as often as a text's: the n-th most frequent about 1/n times as often as the first.
    ranks = torch.exp(torch.rand(a.batch, context + 1) * math.log(vocab + 1)).long() - 1
    tokens = ranks.clamp(0, vocab - 1).to(a.device)

    def step():
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.bf16):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def timed(count):
        """One round: the seconds of `count` steps, and what they say of the whole."""
        seconds = []
        for _ in range(count):
            before = time.perf_counter()
            loss = step()
            seconds.append(time.perf_counter() - before)
        median = statistics.median(seconds)
        held = {}
        if a.device == "cuda":
            held = {"gpu_bytes": torch.cuda.max_memory_allocated(), "gpu_reserved_bytes": torch.cuda.max_memory_reserved()}
        return {**held, "what": "torch " + torch.__version__ + (" eager" if a.eager else " compiled") +
                        (" bf16" if a.bf16 else " f32"),
                "model": a.model, "batch": a.batch, "context": context, "threads": a.threads, "loss": loss,
                "parameters": sum(p.numel() for p in model.parameters()) - padding * shape[2], "step_s": median, "steps_s": seconds,
                "tokens_per_s": a.batch * context / median, "peak_resident_bytes": peak_resident()}

    for _ in range(a.warmup):
        step()
    if not a.serve:
        print(json.dumps(timed(a.steps)))
        return
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        step()  # caches are another program's by now
        print(json.dumps(timed(a.steps)), flush=True)

if __name__ == "__main__":
    main()
