#!/usr/bin/env python3
"""Sets Adjoint's step beside PyTorch's: the same model, shapes, threads and machine, in one run.

Rounds alternate (adjoint, torch, adjoint, torch, ...), so that a machine that slows down or warms up does so for both.
Adjoint starts anew every round; PyTorch, which compiles for a minute, is started once per case and asked for a round at a
time. While one side runs the other is idle: Adjoint has ended, and PyTorch's processes are stopped (SIGSTOP), which costs
its steps nothing, unlike OMP_WAIT_POLICY=passive or KMP_BLOCKTIME=0, and holds whatever its threads spin on.
Writes compare.md and compare.json; without PyTorch, Adjoint's figures alone."""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
NO_TORCH = 4  # torch_step.py's exit status
PATIENCE = 1800  # seconds for one answer of a side; a compilation is one


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    batch: int
    threads: int
    steps: int  # in a round
    bf16: bool = False
    eager: bool = False
    goal: float = 0  # times PyTorch's tokens/s; 0: none was set
    device: str = "cpu"
    context: int = 0  # 0: the model's
    stack: str = ""  # Adjoint's; bf16 says its own
    checkpoint: bool = False


CASES = {
    "ref-2": Case("ref", 8, 2, steps=5, goal=1.4),
    "ref-16": Case("ref", 32, 16, steps=5, goal=1.4),
    "ref-16-bf16": Case("ref", 32, 16, steps=5, bf16=True, goal=1.2),
    "char-2": Case("char", 12, 2, steps=100, eager=True, goal=1.6),
    "char-2-compiled": Case("char", 12, 2, steps=100),
    "llama-16": Case("llama-110m", 4, 16, steps=3, goal=1.3),
    "llama-16-bf16": Case("llama-110m", 4, 16, steps=3, bf16=True),
    "gpt2-16": Case("gpt2", 4, 16, steps=3),
    "ref-gpu": Case("ref", 32, 16, steps=30, bf16=True, device="cuda", stack="bf16 | -recompute_cheap"),
    "gpt2-gpu": Case("gpt2", 32, 16, steps=30, bf16=True, device="cuda", stack="bf16 | -recompute_cheap"),
    "gpt2-gpu-64": Case("gpt2", 64, 16, steps=30, bf16=True, device="cuda", stack="bf16 | -recompute_cheap"),
    "gpt2-gpu-checkpointed": Case("gpt2", 32, 16, steps=30, bf16=True, device="cuda", checkpoint=True,
                                  stack="bf16 | checkpoint(every=1)"),
    "llama1b-gpu": Case("llama3.2-1b", 8, 16, steps=10, bf16=True, device="cuda", context=2048, stack="bf16"),
}
MEMORY_GOAL = 0.6  # of PyTorch's peak resident bytes


class Failed(Exception):
    """One side could not do its round; the message says why."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def environment():
    """Both sides run with the defaults of their OpenMP, whatever the shell has set."""
    ours = ("OMP_", "GOMP_", "KMP_", "MKL_NUM_THREADS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def adjoint_round(program, case):
    command = [str(program), "bench", "step", "--json", "--model", case.model, "--batch", str(case.batch), "--threads",
               str(case.threads), "--steps", str(case.steps), "--warmup", "2"]
    if case.stack or case.bf16:
        command += ["--stack", case.stack or "bf16"]
    return answered(command + ["--context", str(case.context), "--device", case.device])


def answered(command, patience=PATIENCE):
    """What a command that ends by printing one JSON object printed."""
    program = command[0]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, env=environment())
    except OSError as error:
        raise Failed(f"{program} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{program} said nothing for {patience} s") from error
    if done.returncode != 0:
        raise Failed(f"'{' '.join(command)}' ended with {done.returncode}: {done.stderr.strip()}")
    return answer_of(done.stdout, program)


def answer_of(text, who):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Failed(f"{who} answered something else than JSON: '{text.strip()[:60]}'") from error


class Peer:
    """torch_step.py --serve, stopped whenever it is not asked."""

    def __init__(self, program, python, case):
        command = [python, str(program), "--serve", "--model", case.model, "--batch", str(case.batch), "--threads",
                   str(case.threads), "--steps", str(case.steps)]
        command += ["--bf16"] * case.bf16 + ["--eager"] * case.eager + ["--checkpoint"] * case.checkpoint
        command += ["--device", case.device] + ["--context", str(case.context)] * (case.context > 0)
        # A session of its own: its compiler's processes are stopped and ended with it.
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                            env=environment(), start_new_session=True)
        except OSError as error:
            raise Failed(f"--python: {python} cannot be run: {error.strerror}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def ready(self):
        """Waits until it has compiled; False where there is no PyTorch."""
        try:
            self._answer()
        except Failed:
            if self.process.poll() == NO_TORCH:
                return False
            raise
        self._signal(signal.SIGSTOP)
        return True

    def round(self):
        self._signal(signal.SIGCONT)
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which reading its answer tells
        answer = self._answer()
        self._signal(signal.SIGSTOP)
        return answer

    def _signal(self, which):
        try:
            os.killpg(self.process.pid, which)
        except ProcessLookupError:
            pass

    def _answer(self):
        late = threading.Timer(PATIENCE, self._signal, [signal.SIGKILL])
        late.start()
        try:
            # Libraries print too: an answer is a line that is a JSON object.
            for line in self.process.stdout:
                if line.startswith("{"):
                    return answer_of(line, "the peer")
        finally:
            late.cancel()
        self.process.wait()
        raise Failed(f"the peer ended with {self.process.returncode} before it answered")


def summary(rounds):
    """Of one side: the median of all its steps, and the most memory that it ever held."""
    seconds = [s for each in rounds for s in each["measured_steps_s"]]
    last = rounds[-1]
    return {"what": last.get("what", "adjoint"), "measured_step_s": statistics.median(seconds),
            "fastest_s": min(seconds), "slowest_s": max(seconds), "loss": last["loss"], "params": last["params"],
            "rounds_s": [each["measured_step_s"] for each in rounds],
            "peak_resident_bytes": max(each["peak_resident_bytes"] for each in rounds),
            **{key: last[key] for key in ("model_utilization", "peak_flops_per_s", "peak_bytes",
                                          "measured_peak_bytes", "gpu_bytes", "gpu_reserved_bytes") if key in last}}


def check_same_model(name, ours, theirs):
    for what in ("params", "batch", "seq", "threads"):
        if ours[what] != theirs[what]:
            raise Failed(f"{name}: the two sides do not run the same step: '{what}' is {ours[what]} of Adjoint's and "
                         f"{theirs[what]} of PyTorch's")


def compare(name, case, args):
    """Alternating rounds of one case. Without a peer the rounds are ours alone."""
    ours, theirs = [], []
    with Peer(args.peer, args.python, case) as peer:
        say(f"{name}: the peer compiles and warms up")
        there = peer.ready()
        if not there:
            say(f"{name}: PyTorch is not installed for {args.python}: Adjoint alone")
        for i in range(args.rounds):
            ours.append(adjoint_round(args.adjoint, case))
            text = f"{name}: round {i + 1} of {args.rounds}: adjoint {1e3 * ours[-1]['measured_step_s']:.2f} ms"
            if there:
                theirs.append(peer.round())
                text += f", torch {1e3 * theirs[-1]['measured_step_s']:.2f} ms"
                check_same_model(name, ours[-1], theirs[-1])
            say(text)
    result = {"case": name, **dataclasses.asdict(case), "seq": ours[-1]["seq"], "adjoint": summary(ours)}
    if theirs:
        result["torch"] = summary(theirs)
        result["ratio"] = result["torch"]["measured_step_s"] / result["adjoint"]["measured_step_s"]
        result["round_ratios"] = [t["measured_step_s"] / o["measured_step_s"] for o, t in zip(ours, theirs)]
        result["memory_ratio"] = held(result, "adjoint") / held(result, "torch")
    return result


def held(result, side):
    """The bytes that a case is judged by: resident ones, on a GPU those of its memory that are allocated."""
    if result["device"] == "cpu":
        return result[side]["peak_resident_bytes"]
    return result[side]["measured_peak_bytes" if side == "adjoint" else "gpu_bytes"]


def machine():
    """What the tables were measured on, in words."""
    cpu, cores = platform.processor() or platform.machine(), set()
    try:
        package = ""
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = (part.strip() for part in line.partition(":"))
            if key == "model name":
                cpu = value
            elif key == "physical id":
                package = value
            elif key == "core id":
                cores.add((package, value))
    except OSError:
        pass
    return {"cpu": cpu, "cores": len(cores) or None, "threads": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def mib(count):
    return f"{count / 2**20:,.0f}"


def against(value, goal, below=False):
    """A ratio beside its goal; a miss says so."""
    if not goal:
        return f"{value:.2f}"
    met = value <= goal if below else value >= goal
    return f"{value:.2f} ({'' if met else 'misses '}{'≤' if below else '≥'} {goal:g})"


def table(results, about):
    memory = f"{about['memory_bytes'] / 2**30:.0f} GiB"
    cores = f"{about['cores']} cores, " if about["cores"] else ""
    lines = [f"{about['cpu']}, {cores}{about['threads']} hardware threads, {memory}. Medians of all timed steps; rounds "
             "of the two sides alternate.", "",
             "| case | batch x context | threads | Adjoint ms | PyTorch ms | times as fast | by round | Adjoint MiB | "
             "PyTorch MiB | of its memory |", "|---|---|---|---|---|---|---|---|---|---|"]
    for r in results:
        ours, theirs = r["adjoint"], r.get("torch")
        row = [r["case"], f"{r['batch']} x {r['seq']}", str(r["threads"]), f"{1e3 * ours['measured_step_s']:.2f}"]
        if theirs:
            how = theirs["what"].removeprefix("torch ")
            row += [f"{1e3 * theirs['measured_step_s']:.2f} ({how})", against(r["ratio"], r["goal"]),
                    f"{min(r['round_ratios']):.2f} to {max(r['round_ratios']):.2f}", mib(held(r, "adjoint")),
                    mib(held(r, "torch")), against(r["memory_ratio"], MEMORY_GOAL, below=True)]
        else:
            row += ["not installed", "", "", mib(held(r, "adjoint")), "", ""]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def write(folder, results, about):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compare.md").write_text(table(results, about))
    (folder / "compare.json").write_text(json.dumps({"machine": about, "cases": results}, indent=1) + "\n")


def check_names(names, known):
    for name in names:
        if name not in known:
            raise Failed(f"--cases: there is no '{name}'; there are {', '.join(known)}")


def make_folder(out):
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"--out: {out} cannot be a folder: {error.strerror}") from error


def arguments():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                   epilog="Example:\n  bench/compare.py --cases ref-2,char-2 --rounds 5")
    root = HERE.parent
    args.add_argument("--adjoint", type=pathlib.Path, default=root / "build/release/adjoint", help="the binary")
    args.add_argument("--cases", default="ref-2,char-2", help="of " + ", ".join(CASES) + "; or 'all'")
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--out", type=pathlib.Path, default=root / "build/bench", help="folder for compare.md and .json")
    args.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch")
    args.add_argument("--peer", type=pathlib.Path, default=HERE / "torch_step.py", help="the peer's program")
    a = args.parse_args()
    a.adjoint = a.adjoint.resolve()  # "./adjoint" is a file here, not a name to look for
    a.cases = list(CASES) if a.cases == "all" else [name.strip() for name in a.cases.split(",")]
    check_names(a.cases, CASES)
    if a.rounds < 1:
        raise Failed(f"--rounds: wanted at least 1, found {a.rounds}")
    make_folder(a.out)
    return a


def main():
    try:
        args = arguments()
        about, results = machine(), []
        for name in args.cases:
            results.append(compare(name, CASES[name], args))
            write(args.out, results, about)  # after every case: what is measured is kept
    except Failed as why:
        say(f"compare: {why}")
        return 1
    except KeyboardInterrupt:
        say("compare: interrupted; what was measured is in the folder")
        return 130
    print(table(results, about), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
