#!/usr/bin/env python3
"""Times one LoRA training step of Llama shapes in PyTorch with transformers and PEFT: the peer of
`adjoint bench step --stack "lora | bf16"`.

As careful users do it: weights in bf16 and frozen, adapters of rank 16 on every linear map of the blocks in float32 (as
PEFT makes them), scaled_dot_product_attention, fused AdamW on the adapters, clipping to norm 1; torch.compile unless
--eager. Prints a line of JSON."""
import argparse
import json
import statistics
import sys
import time

try:
    import peft
    import torch
    import transformers
except ModuleNotFoundError as missing:
    sys.stderr.write(f"peft_step: {missing.name} is not installed for this Python\n")
    sys.exit(4)

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SHAPES = {
    "llama3.2-1b": dict(vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
                        num_key_value_heads=8, intermediate_size=8192, tie_word_embeddings=True),
    "llama-tiny": dict(vocab_size=101, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, intermediate_size=176, tie_word_embeddings=False),
}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--model", choices=SHAPES, default="llama3.2-1b")
    args.add_argument("--batch", type=int, default=8)
    args.add_argument("--seq", type=int, default=1024)
    args.add_argument("--rank", type=int, default=16)
    args.add_argument("--steps", type=int, default=20)
    args.add_argument("--warmup", type=int, default=4)
    args.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    args.add_argument("--eager", action="store_true", help="without torch.compile")
    a = args.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    config = transformers.LlamaConfig(max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=500000.0,
                                      attn_implementation="sdpa", use_cache=False, **SHAPES[a.model])
    with torch.device(a.device):
        torch.set_default_dtype(torch.bfloat16)
        model = transformers.LlamaForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    model = peft.get_peft_model(model, peft.LoraConfig(r=a.rank, lora_alpha=2 * a.rank, lora_dropout=0.0,
                                                       target_modules=LINEAR, task_type="CAUSAL_LM"))
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=a.device == "cuda")
    forward = model if a.eager else torch.compile(model)
    ids = torch.randint(0, config.vocab_size, (a.batch, a.seq), device=a.device)

    def step():
        loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for _ in range(a.warmup):
        step()
    if a.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(a.steps):
        before = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - before)
    median = statistics.median(seconds)
    held = {}
    if a.device == "cuda":
        held = {"gpu_bytes": torch.cuda.max_memory_allocated(), "gpu_reserved_bytes": torch.cuda.max_memory_reserved()}
    print(json.dumps({"what": f"torch {torch.__version__} peft {peft.__version__}" + (" eager" if a.eager else " compiled"),
                      "model": a.model, "batch": a.batch, "seq": a.seq, "rank": a.rank, "measured_step_s": median,
                      "measured_steps_s": seconds, "tokens_per_s": a.batch * a.seq / median,
                      "trained": sum(p.numel() for p in trained), **held}))


if __name__ == "__main__":
    main()
