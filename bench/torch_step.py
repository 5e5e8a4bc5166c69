#!/usr/bin/env python3
"""Times one training step of the same model in PyTorch: the peer that bench/compare.py sets beside Adjoint.

Plain modern PyTorch, as a careful user writes it: scaled_dot_product_attention, fused AdamW where the device has it,
set_to_none, clipping to norm 1, and torch.compile unless --eager. bf16 is autocast over float32 parameters. On a GPU the
vocabulary is padded to a multiple of 128, as careful users do, and float32 products may use tf32.
An older PyTorch (1.13, as Debian packages it) runs too, without torch.compile: good for trying the scripts, not for
figures.
With --serve it compiles and warms up once, says so in a line of JSON, and then times --steps more for every line that it
reads, so that its rounds can stand between another program's; between them it waits for input and computes nothing."""
import argparse
import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Shape:
    """Named as the settings of models/*.scheme are, so that --set means the same on both sides."""
    kind: str
    layers: int
    hidden: int
    heads: int
    context: int
    vocab: int
    kv_heads: int = 0  # Llama's
    ffn: int = 0  # 0: four times `hidden`
    base: float = 10000.0
    tied: int = 1  # 1: the readout is the embedding's table


MODELS = {
    "ref": Shape("gpt2", 4, 256, 4, context=512, vocab=4096),
    "char": Shape("gpt2", 4, 128, 4, context=64, vocab=65),
    "gpt2": Shape("gpt2", 12, 768, 12, context=1024, vocab=50257),
    "llama-tiny": Shape("llama", 2, 64, 4, context=32, vocab=101, kv_heads=2, ffn=176, tied=0),
    "llama-110m": Shape("llama", 12, 768, 12, context=1024, vocab=32000, kv_heads=4, ffn=2304),
    "llama3.2-1b": Shape("llama", 16, 2048, 32, context=8192, vocab=128256, kv_heads=8, ffn=8192, base=500000.0),
}


def shape_of(model, settings):
    """A model's shape with "layers=2"-like settings; ValueError says which is wrong."""
    shape = MODELS[model]
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in {field.name for field in dataclasses.fields(Shape)} - {"kind"}:
            raise ValueError(f"--set: the peer has no setting '{name}'")
        try:
            shape = dataclasses.replace(shape, **{name: float(value) if name == "base" else int(value)})
        except ValueError as error:
            raise ValueError(f"--set: '{setting}' wants a number after '='") from error
    return shape


class OwnRmsNorm(nn.Module):
    """For a PyTorch that has none (before 2.4)."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def own_attention(q, k, v):
    """For a PyTorch that has none (before 2.0): the scores are whole."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    above = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(above, -math.inf).softmax(-1) @ v


def their_attention(q, k, v):
    grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)


RmsNorm = getattr(nn, "RMSNorm", OwnRmsNorm)
attention = their_attention if hasattr(F, "scaled_dot_product_attention") else own_attention


class Gpt2Block(nn.Module):
    def __init__(self, shape, ffn):
        super().__init__()
        width = shape.hidden
        self.heads = shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def forward(self, x, _angles):
        b, s, c = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(c, 2))
        a = attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


def rotate(x, angles):
    cos, sin = angles
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, shape, ffn):
        super().__init__()
        width, kv_heads = shape.hidden, shape.kv_heads
        self.heads, self.kv_heads, self.size = shape.heads, kv_heads, width // shape.heads
        self.norm1, self.norm2 = RmsNorm(width, eps=1e-5), RmsNorm(width, eps=1e-5)
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
        a = attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.kind, self.checkpointed, width = shape.kind, False, shape.hidden
        self.tokens = nn.Embedding(shape.vocab, width)
        block = Gpt2Block if shape.kind == "gpt2" else LlamaBlock
        self.blocks = nn.ModuleList(block(shape, shape.ffn or 4 * width) for _ in range(shape.layers))
        if shape.kind == "gpt2":
            self.positions, self.norm = nn.Embedding(shape.context, width), nn.LayerNorm(width)
        else:
            self.norm = RmsNorm(width, eps=1e-5)
            size = width // shape.heads
            turns = shape.base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
            angle = torch.outer(torch.arange(shape.context, dtype=torch.float64), turns).repeat(1, 2)
            self.register_buffer("cos", angle.cos().float(), persistent=False)
            self.register_buffer("sin", angle.sin().float(), persistent=False)
        self.readout = None if shape.tied else nn.Linear(width, shape.vocab, bias=False)
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
        table = self.tokens if self.readout is None else self.readout
        logits = F.linear(self.norm(x), table.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def adamw(model, rate, decay=0.1, **options):
    """Matrices and tables decay; gains and biases do not."""
    decays = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decays, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    fused = {"fused": True} if version >= (2, 4) else {}
    return torch.optim.AdamW(groups, lr=rate, **options, **fused)


def backward(forward, tokens, targets, parts, bf16):
    """The gradient of the mean loss, summed over `parts` parts of the batch; the mean loss, still on the device."""
    losses = []
    for ids, wanted in zip(tokens.chunk(parts), targets.chunk(parts)):
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=bf16):
            loss = forward(ids, wanted)
        (loss / parts if parts > 1 else loss).backward()
        losses.append(loss.detach())
    return sum(losses[1:], start=losses[0]) / parts


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
    args.add_argument("--accumulate", type=int, default=1, help="equal parts of the batch, one after another")
    args.add_argument("--set", nargs="*", default=[], help="settings of the model, such as layers=2")
    args.add_argument("--no-tf32", dest="tf32", action="store_false", help="float32 products in full on a GPU")
    args.add_argument("--serve", action="store_true", help="a round of steps for every line of standard input")
    a = args.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    try:
        shape = shape_of(a.model, a.set + [f"context={a.context}"] * bool(a.context))
    except ValueError as error:
        args.exit(1, f"torch_step: {error}\n")
    if a.batch % a.accumulate:
        args.exit(1, f"torch_step: a batch of {a.batch} does not divide into {a.accumulate} equal parts\n")
    if not a.eager and not hasattr(torch, "compile"):
        sys.stderr.write(f"torch_step: PyTorch {torch.__version__} has no torch.compile: eager\n")
        a.eager = True
    context, vocab = shape.context, shape.vocab
    padding = -vocab % 128 if a.device == "cuda" else 0
    torch.set_float32_matmul_precision("high" if a.tf32 else "highest")
    model = Model(dataclasses.replace(shape, vocab=vocab + padding)).to(a.device)
    model.checkpointed = a.checkpoint
    optimizer = adamw(model, rate=1e-4)
    forward = model if a.eager else torch.compile(model)
    # Drawn as often as a text's: the n-th most frequent about 1/n times as often as the first.
    ranks = torch.exp(torch.rand(a.batch, context + 1) * math.log(vocab + 1)).long() - 1
    tokens = ranks.clamp(0, vocab - 1).to(a.device)

    def step():
        loss = backward(forward, tokens[:, :-1], tokens[:, 1:], a.accumulate, a.bf16)
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
                "model": a.model, "batch": a.batch, "seq": context, "threads": a.threads, "loss": loss,
                "params": sum(p.numel() for p in model.parameters()) - padding * shape.hidden * (2 - shape.tied),
                "measured_step_s": median, "measured_steps_s": seconds, "tokens_per_s": a.batch * context / median,
                "peak_resident_bytes": peak_resident()}

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
