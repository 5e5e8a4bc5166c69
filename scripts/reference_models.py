#!/usr/bin/env python3
"""Models of the Hugging Face format against which ours are held, made and read by transformers.

Usage: scripts/reference_models.py make FOLDER [FAMILY ...]     a tiny random model of each family, with references
       scripts/reference_models.py adapters FOLDER              a PEFT adapter of FOLDER/llama, with references
       scripts/reference_models.py check WRITTEN REFERENCE      a folder that `adjoint convert` wrote
       scripts/reference_models.py check-adapter BASE WRITTEN REFERENCE    an adapter that it wrote; REFERENCE may be
                                                                           the folder that it merged the adapter into
       scripts/reference_models.py check-tokenizer WRITTEN ADJOINT         the tokenizer of a folder that it wrote, by
                                                                           AutoTokenizer and by the binary ADJOINT

`make` writes FOLDER/FAMILY: config.json and the weights, as save_pretrained does, and reference.safetensors:
  tokens, targets [2, 24]; logits [2, 24, vocab] in float64; greedy [1, 32], the prompt and what follows, with
  margins [24] between the two best logits; gradient:NAME of the mean cross entropy for every weight.
  Its metadata says how far transformers' own float32 logits are from the float64 ones.
`check` prints one line and exits 1 where the folder gives other logits than the reference.

No gain is 1, no bias 0, and weights are exact in the dtype in which the folder has them, so every reader has the same
numbers. transformers asks for float32 in places (norms, rotary angles, softmax of scores), also in a model of
float64; the references are made below Wide, where every such request means float64.
"""
import argparse
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

VOCAB, CONTEXT, SEQ, BATCH, PROMPT = 41, 48, 24, 2, 8
PLAIN = dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=24, max_position_embeddings=CONTEXT, bos_token_id=1, eos_token_id=2, pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
ALTERNATING = ["sliding_attention", "full_attention"]

# New families go to the end: the place is the seed.
# family: config class, model class, fields, the dtype of the weights in the folder, the largest shard
FAMILIES = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel",
             dict(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=4, resid_pdrop=0.0,
                  embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2), "float32", None),
    "llama": ("LlamaConfig", "LlamaForCausalLM",
              dict(PLAIN, rms_norm_eps=1e-5, tie_word_embeddings=False), "bfloat16", None),
    "llama3": ("LlamaConfig", "LlamaForCausalLM",
               dict(PLAIN, rms_norm_eps=1e-5, tie_word_embeddings=True, rope_theta=500000.0, rope_scaling=LLAMA3),
               "bfloat16", "8KB"),
    "llama_biased": ("LlamaConfig", "LlamaForCausalLM",
                     dict(PLAIN, head_dim=8, attention_bias=True, mlp_bias=True,
                          rope_scaling=dict(rope_type="linear", factor=2.0)), "float16", None),
    "smollm": ("LlamaConfig", "LlamaForCausalLM",
               dict(PLAIN, num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-5, rope_theta=100000.0,
                    tie_word_embeddings=True), "bfloat16", None),
    "mistral": ("MistralConfig", "MistralForCausalLM",
                dict(PLAIN, sliding_window=7, rms_norm_eps=1e-5, rope_theta=10000.0), "bfloat16", "8KB"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM",
              dict(PLAIN, rope_theta=1000000.0, tie_word_embeddings=True, use_sliding_window=False), "float32", None),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM",
              dict(PLAIN, head_dim=8, rope_theta=1000000.0, tie_word_embeddings=False, use_sliding_window=False),
              "bfloat16", None),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM",
               dict(PLAIN, head_dim=8, sliding_window=7, query_pre_attn_scalar=12, attn_logit_softcapping=4.0,
                    final_logit_softcapping=3.0, layer_types=ALTERNATING, tie_word_embeddings=True),
               "bfloat16", None),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM",
               dict(PLAIN, num_hidden_layers=3, head_dim=8, sliding_window=7, query_pre_attn_scalar=12,
                    rope_theta=1000000.0, rope_local_base_freq=10000.0,
                    layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                    tie_word_embeddings=True), "bfloat16", None),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM",
                dict(PLAIN, num_local_experts=4, num_experts_per_tok=2, intermediate_size=12, sliding_window=None,
                     rope_theta=1000000.0), "bfloat16", None),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM",
                  dict(PLAIN, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                       decoder_sparse_step=1, norm_topk_prob=True, mlp_only_layers=[], use_sliding_window=False,
                       rope_theta=1000000.0, tie_word_embeddings=False), "bfloat16", None),
    "qwen3_yarn": ("Qwen3Config", "Qwen3ForCausalLM",
                   dict(PLAIN, num_hidden_layers=3, head_dim=8, rope_theta=1000000.0, tie_word_embeddings=True,
                        rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=12),
                        use_sliding_window=True, sliding_window=7, max_window_layers=2), "bfloat16", None),
}


class Wide(TorchDispatchMode):
    """Whoever asks for float32 gets float64, and nothing gives float32."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        def widened(x):
            return torch.float64 if x is torch.float32 else x

        def checked(x):
            if isinstance(x, torch.Tensor) and x.dtype == torch.float32:
                raise AssertionError(f"{function} gave float32 below Wide")
            return x

        given = tree_map(widened, args), tree_map(widened, kwargs or {})
        return tree_map(checked, function(*given[0], **given[1]))


def built(config, name):
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return getattr(transformers, name)(config).eval()


def draw(model, dtype, seed):
    """Weights that no reader can mistake for their defaults, exact in `dtype`."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=random, dtype=torch.float64)
            is_gain = weight.dim() == 1 and name.endswith("weight")
            drawn = 0.3 * noise + (1.0 if is_gain and weight.float().mean() > 0.5 else 0.0)
            weight.copy_(drawn.to(dtype).to(weight.dtype))


def wide_copy(model, class_name):
    """The same model in float64 throughout, rotary angles included."""
    torch.set_default_dtype(torch.float64)
    try:
        with Wide():
            wide = built(model.config.__class__.from_dict(model.config.to_dict()), class_name)
        wide.load_state_dict({k: v.double() for k, v in model.state_dict().items()})
    finally:
        torch.set_default_dtype(torch.float32)
    narrow = [k for k, v in [*wide.named_parameters(), *wide.named_buffers()] if v.dtype == torch.float32]
    assert not narrow, f"left in float32: {narrow}"
    return wide


def logits_of(model, tokens):
    return model(input_ids=tokens, use_cache=False).logits


def as_saved(weights, model):
    """These weights by the names, and in the shapes, that a folder has them: experts apart, for example."""
    holder = copy.deepcopy(model).float()
    with torch.no_grad():
        for name, weight in holder.named_parameters():
            weight.copy_(weights[name])
    with tempfile.TemporaryDirectory() as folder:
        holder.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def reference(wide, model, seed):
    """(tensors, metadata) of reference.safetensors."""
    random = torch.Generator().manual_seed(seed + 1000)
    tokens, targets = torch.randint(0, VOCAB, (2, BATCH, SEQ), generator=random)
    with Wide():
        logits = logits_of(wide, tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        written, margins = tokens[:1, :PROMPT], []
        with torch.no_grad():
            for _ in range(SEQ):
                best = logits_of(wide, written)[0, -1].topk(2)
                margins.append((best.values[0] - best.values[1]).reshape(1))
                written = torch.cat([written, best.indices[:1].reshape(1, 1)], dim=1)
        margins = torch.cat(margins)
    with torch.no_grad():
        narrow = logits_of(model, tokens).double()
    error = (narrow - logits).detach()
    tensors = {"tokens": tokens.int(), "targets": targets.int(), "logits": logits.detach(), "greedy": written.int(),
               "margins": margins}
    for name, gradient in as_saved({k: p.grad for k, p in wide.named_parameters()}, model).items():
        tensors["gradient:" + name] = gradient
    metadata = {"transformers": transformers.__version__, "torch": torch.__version__,
                "float32_error": repr(error.norm().item()), "float32_largest_error": repr(error.abs().max().item()),
                "logits_norm": repr(logits.detach().norm().item())}
    return {k: v.contiguous() for k, v in tensors.items()}, metadata


def make(folder, families):
    for seed, (family, (config, name, fields, dtype, shard)) in enumerate(FAMILIES.items()):
        if families and family not in families:
            continue
        dtype = getattr(torch, dtype)
        model = built(getattr(transformers, config)(**fields), name)
        draw(model, dtype, seed)
        tensors, metadata = reference(wide_copy(model, name), model, seed)
        out = folder / family
        if dtype is not torch.float32:
            model = model.to(dtype)
        model.save_pretrained(out, **({"max_shard_size": shard} if shard else {}))
        save_file(tensors, out / "reference.safetensors", metadata)
        size = sum(f.stat().st_size for f in out.iterdir())
        print(f"{family:14} float32 error {float(metadata['float32_error']):.3g} of "
              f"{float(metadata['logits_norm']):.3g}, {size / 1024:.0f} KiB")


def make_adapter(folder):
    import peft

    base = folder / "llama"
    config, name, fields, dtype, _ = FAMILIES["llama"]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager").float()
    lora = peft.LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"],
                           task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, lora)
    random = torch.Generator().manual_seed(99)
    with torch.no_grad():
        for key, weight in sorted(adapted.named_parameters()):
            if "lora_" in key:
                weight.copy_(0.3 * torch.randn(weight.shape, generator=random))
    out = folder / "llama_adapter"
    adapted.peft_config["default"].base_model_name_or_path = base.name
    adapted.save_pretrained(out)
    narrow_out = logits_of(adapted.eval(), load_file(base / "reference.safetensors")["tokens"].long()).double()
    merged = adapted.merge_and_unload()
    wide = wide_copy(merged, name)
    # The sum W + scale*B*A in float64, not as float32 rounded it.
    with torch.no_grad():
        base_weights = load_file(base / "model.safetensors")
        thin = load_file(out / "adapter_model.safetensors")
        for key in list(thin):
            if "lora_A" not in key:
                continue
            module = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            a, b = thin[key].double(), thin[key.replace("lora_A", "lora_B")].double()
            wide.get_parameter(module + ".weight").copy_(base_weights[module + ".weight"].double() + 6 / 4 * (b @ a))
    tokens = load_file(base / "reference.safetensors")["tokens"]
    with Wide(), torch.no_grad():
        logits = logits_of(wide, tokens.long())
    error = (narrow_out - logits).norm().item()
    save_file({"tokens": tokens, "logits": logits.contiguous()}, out / "reference.safetensors",
              {"peft": peft.__version__, "float32_error": repr(error), "logits_norm": repr(logits.norm().item())})
    print(f"llama_adapter float32 error {error:.3g}")


def compare_folders(model, merged):
    """Whether an adapted model computes what the folder does into which the adapter was merged."""
    tokens = torch.arange(BATCH * SEQ).reshape(BATCH, SEQ) * 7 % VOCAB
    with torch.no_grad():
        found, wanted = logits_of(model.float().eval(), tokens), logits_of(load(merged).float().eval(), tokens)
    error = ((found - wanted).norm() / wanted.norm()).item()
    print(f"{merged}: relative distance {error:.3g}: " + ("the same" if error < 1e-5 else "NOT the same"))
    return error < 1e-5


def compare(model, path):
    from safetensors import safe_open

    if path.is_dir():
        return compare_folders(model, path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    wanted = load_file(path)
    with torch.no_grad():
        found = logits_of(model.float().eval(), wanted["tokens"].long()).double()
    error = (found - wanted["logits"]).norm().item()
    good = error <= 2 * float(metadata["float32_error"])
    print(f"{path}: error {error:.3g}, of transformers' own float32 {float(metadata['float32_error']):.3g}: "
          + ("as the reference" if good else "NOT the reference"))
    return good


TEXTS = ["", " ", "The cat sat on the mat.", "It's 12:30, isn't it?  Yes; 1234567 + 89 = 1234656.", "a\n\n  b\t\tc\r\n ",
         "Grüße, Ærøskøbing, čaj", "日本語のテキスト、한국어", "Привет, мир! שלום مرحبا", "👩‍👩‍👧 e\u0301 \u00a0\u3000x", "x" * 300,
         "def f(x):\n    return x ** 2  # squared\n", "<|endoftext|>"]


def compare_tokenizers(folder, adjoint):
    """Whether AutoTokenizer and our binary give the same ids by a folder's files, and the texts come back."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lines = "".join(json.dumps(text) + "\n" for text in TEXTS)
    out = subprocess.run([adjoint, "tokenizer", "encode", "--tokenizer", folder, "--specials", "--json"], input=lines, text=True,
                         capture_output=True, check=True).stdout
    ours = [json.loads(line) for line in out.splitlines()]
    theirs = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    wrong = [text for text, a, b in zip(TEXTS, ours, theirs, strict=True) if a != b]
    lost = [text for text, ids in zip(TEXTS, theirs) if tokenizer.decode(ids, clean_up_tokenization_spaces=False) != text]
    for text in wrong + lost:
        print(f"{folder}: NOT the same: {text[:60]!r}")
    print(f"{folder}: {type(tokenizer).__name__} of {len(tokenizer)} tokens, {len(TEXTS)} texts, {len(wrong)} with other ids, "
          f"{len(lost)} that do not come back")
    return not wrong and not lost


def load(folder):
    """A folder's model; weights that are missing or left over are an error."""
    model, told = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                                   output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not told[kind], f"{folder}: {kind}: {told[kind]}"
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["make", "adapters", "check", "check-adapter", "check-tokenizer"])
    parser.add_argument("paths", nargs="+")
    given = parser.parse_args()
    paths = [pathlib.Path(p) for p in given.paths]
    transformers.logging.set_verbosity_error()
    if given.command == "make":
        make(paths[0], set(given.paths[1:]))
        return 0
    if given.command == "adapters":
        make_adapter(paths[0])
        return 0
    if given.command == "check-tokenizer":
        return 0 if compare_tokenizers(paths[0], paths[1]) else 1
    if given.command == "check":
        return 0 if compare(load(paths[0]), paths[1]) else 1
    import peft

    adapted = peft.PeftModel.from_pretrained(load(paths[0]), paths[1])
    return 0 if compare(adapted, paths[2]) else 1


if __name__ == "__main__":
    sys.exit(main())
