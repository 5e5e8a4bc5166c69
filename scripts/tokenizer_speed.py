#!/usr/bin/env python3
"""How fast texts are encoded with GPT-2's ranks, and how fast 32,000 merges are learned, as rows of docs/tokenizers.md:

  scripts/tokenizer_speed.py build/release/adjoint --ranks gpt2.tiktoken --text tinyshakespeare.txt \
      [--learn-from /usr/share/doc /usr/include /usr/lib/python3] [--originals FOLDER_WITH_NODE_MODULES] [--rounds 3]

Beside it stand tiktoken and tokenizers, as Python has them or as npm's packages in FOLDER
(npm install --prefix FOLDER tiktoken tokenizers); what is not there is left out and named. Rates are megabytes of text per second of
one thread's CPU time, the best of some rounds. What is learned from is 100 MB of the files of text in those folders.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys
import tempfile
import time
import zlib

ROUNDS_BYTES = 8_000_000  # a judge encodes at least so much, in pieces as corpora come
PIECE = 1 << 20


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def pieces_of(text):
    return [text[at:at + PIECE] for at in range(0, len(text), PIECE)]


def python_rate(encode, text, rounds):
    """The best rate of a Python library, which runs on this thread."""
    pieces = pieces_of(text)
    count = sum(len(encode(piece)) for piece in pieces)
    best = 0.0
    for _ in range(rounds):
        begin, done = time.thread_time(), 0
        while done < ROUNDS_BYTES:
            for piece in pieces:
                encode(piece)
                done += len(piece.encode())
        best = max(best, done / 1e6 / (time.thread_time() - begin))
    return best, count


def python_judges(ranks, tokenizer_json, text, rounds):
    found, missing = [], []
    try:
        import base64
        import tiktoken
        table = {base64.b64decode(t): int(r) for t, r in (line.split() for line in open(ranks, "rb"))}
        pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
        judge = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=table, special_tokens={"<|endoftext|>": 50256})
        found.append((f"tiktoken {tiktoken.__version__} (Python)", *python_rate(judge.encode_ordinary, text, rounds)))
    except ImportError:
        missing.append("tiktoken (Python)")
    try:
        import tokenizers
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        judge = tokenizers.Tokenizer.from_str(tokenizer_json)
        found.append((f"tokenizers {tokenizers.__version__} (Python)",
                      *python_rate(lambda t: judge.encode(t, add_special_tokens=False).ids, text, rounds)))
    except ImportError:
        missing.append("tokenizers (Python)")
    return found, missing


NODE = r"""
import fs from 'node:fs';
import path from 'node:path';
import {createRequire} from 'node:module';
const [folder, ranks, textFile, tokenizerFile, rounds, roundBytes, pieceBytes] = process.argv.slice(2);
const modules = path.resolve(folder, 'node_modules');
const require = createRequire(path.join(modules, 'package.json'));
const version = (name) => JSON.parse(fs.readFileSync(path.join(modules, name, 'package.json'))).version;
const text = fs.readFileSync(textFile, 'utf8');
const pieces = [];
for (let at = 0; at < text.length; at += Number(pieceBytes)) pieces.push(text.slice(at, at + Number(pieceBytes)));
const sizes = pieces.map((piece) => Buffer.byteLength(piece));
async function measure(name, make) {
  let encode;
  try { encode = await make(); } catch (error) { console.log(JSON.stringify({name, missing: String(error).slice(0, 80)})); return; }
  let tokens = 0;
  for (const piece of pieces) tokens += (await encode(piece)).length;
  let best = 0;
  for (let round = 0; round < Number(rounds); ++round) {
    const begin = process.cpuUsage();
    let done = 0;
    while (done < Number(roundBytes)) {
      for (let i = 0; i < pieces.length; ++i) { await encode(pieces[i]); done += sizes[i]; }
    }
    const used = process.cpuUsage(begin);
    best = Math.max(best, done / 1e6 / ((used.user + used.system) / 1e6));
  }
  console.log(JSON.stringify({name: `${name} ${version(name)} (npm)`, rate: best, tokens}));
}
await measure('tiktoken', () => {
  const judge = require('tiktoken').get_encoding('gpt2');
  return (piece) => judge.encode_ordinary(piece);
});
await measure('tokenizers', async () => {
  const {Tokenizer} = require('tokenizers');
  const judge = Tokenizer.fromFile(tokenizerFile);
  return async (piece) => (await judge.encode(piece, null, {addSpecialTokens: false})).getIds();
});
"""


def npm_judges(folder, ranks, text_file, tokenizer_file, rounds):
    with tempfile.NamedTemporaryFile("w", suffix=".mjs") as script:
        script.write(NODE)
        script.flush()
        done = subprocess.run(["node", script.name, folder, ranks, text_file, tokenizer_file, str(rounds), str(ROUNDS_BYTES), str(PIECE)],
                              capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"node failed:\n{done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(line["name"], line["rate"], line["tokens"]) for line in lines if "rate" in line]
    return found, [f"{line['name']} (npm: {line['missing']})" for line in lines if "missing" in line]


def text_to_learn_from(folders, wanted, out):
    """The first `wanted` bytes of files that are text, in an order that mixes them and is the same each time."""
    paths = [path for folder in folders for path in pathlib.Path(folder).rglob("*")
             if path.suffix not in (".gz", ".pyc", ".so", ".a") and not path.is_symlink() and path.is_file()]
    paths.sort(key=lambda path: (zlib.crc32(str(path).encode(errors="replace")), path))
    size = 0
    with open(out, "wb") as file:
        for path in paths:
            try:
                data = path.read_bytes()
                data.decode()
            except (OSError, UnicodeDecodeError):
                continue
            if b"\0" not in data:
                size += file.write(data[:wanted - size])
            if size >= wanted:
                break
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adjoint")
    parser.add_argument("--ranks", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--learn-from", nargs="*", default=["/usr/share/doc", "/usr/include", "/usr/lib/python3"])
    parser.add_argument("--originals", help="a folder with node_modules")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=100, help="to learn from")
    args = parser.parse_args()
    text = pathlib.Path(args.text).read_text()

    rows, missing = [], []
    best, tokens = 0.0, 0
    for _ in range(args.rounds):
        said = json.loads(subprocess.check_output([args.adjoint, "tokenizer", "speed", "--json", "--tokenizer", args.ranks, args.text]))
        best, tokens = max(best, said["bytes_per_cpu_s"] / 1e6), said["tokens"]
    rows.append(("adjoint", best, tokens))
    with tempfile.TemporaryDirectory() as folder:
        judged_json = None
        learned = pathlib.Path(folder) / "learned.json"
        corpus = pathlib.Path(folder) / "corpus.txt"
        # GPT-2's ranks as a tokenizer.json, for the library that reads no ranks: a run's copy of its tokenizer is one.
        short = pathlib.Path(folder) / "short.txt"
        short.write_text(text[:20000])
        subprocess.check_call([args.adjoint, "train", "--model", "char", "--data", str(short), "--tokenizer", args.ranks, "--steps", "1",
                               "--batch", "1", "--context", "8", "--eval-batches", "1", "--set", "layers=1", "hidden=8", "heads=1",
                               "--out", folder + "/run"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        judged_json = pathlib.Path(folder) / "run" / "tokenizer.json"
        found, absent = python_judges(args.ranks, judged_json.read_text(), text, args.rounds)
        rows += found
        missing += absent
        if args.originals:
            found, absent = npm_judges(args.originals, args.ranks, args.text, str(judged_json), args.rounds)
            rows += found
            missing += absent
        size = text_to_learn_from(args.learn_from, args.megabytes * 1_000_000, corpus)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.monotonic()
        subprocess.check_call([args.adjoint, "tokenizer", "train", "--data", str(corpus), "--vocab", str(32000 + 257), "--out", str(learned)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wall = time.monotonic() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        merges = len(json.loads(learned.read_text())["model"]["merges"])

    print(f"{processor()}, {os.cpu_count()} cores, {datetime.date.today():%-d %B %Y}; {len(text.encode()):,} bytes of {os.path.basename(args.text)}\n")
    print("| encoder | MB per CPU second | tokens |\n|---|---|---|")
    for name, rate, count in rows:
        print(f"| {name} | {rate:.1f} | {count:,} |")
    print(f"\nLearning {merges:,} merges from {size / 1e6:.0f} MB: {wall:.0f} s on {os.cpu_count()} cores, {cpu:.0f} s of CPU time.")
    if missing:
        print("\nNot here: " + "; ".join(missing) + ".")


if __name__ == "__main__":
    main()
