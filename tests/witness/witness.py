#!/usr/bin/env python3
"""A second witness of training steps: an interpreter of the notation that shares nothing with the
program (float64, its own reverse mode, written from docs/notation.md) beside random legal models,
stacks and optimizers. The program, through take_steps, trains the same few steps from the same
parameters; gradients, parameters, optimizer states and losses have to agree.

How far they may differ is measured: the interpreter runs again with float32's rounding played at
random in every operation, and the program may be off by a multiple of what such runs differ by.

    witness.py TAKE_STEPS --cases 30 --first 0        judges cases 0 to 29
    witness.py TAKE_STEPS --case 17                   one, with its text
"""
import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import draw
import tensor
from functors import Functors
from interpreter import Interpreter
from notation import read_model
from optimizers import Facts, Optimizer, clipped, text_of

# A step of plain descent at such a rate shows gradients to the last bit.
PLAIN_RATE = 2.0**14
# Runs with rounding played: to how many bits, how often. What the first do not explain may still be
# an optimizer's sign that flips, of which louder ones know.
PLAYS = ((22, 3), (18, 8))
# A program sums in other orders and makes other intermediate results than the interpreter, so it
# may be this many times as far from it as plays are. Nobody is asked for more than EXACT.
SLACK, EXACT = 4.0, 3e-7


class Program:
    """take_steps, begun again where a case ended it."""

    def __init__(self, binary):
        self.binary, self.process = binary, None

    def ask(self, question):
        if self.process is None:
            self.process = subprocess.Popen([self.binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        code, self.process = self.process.wait(), None
        return {"died": f"take_steps ended with code {code}"}


class Told:
    """What the interpreter makes of a case: gradients of every batch, and what is carried after all
    steps."""

    def __init__(self, case):
        self.parameters, self.inits, self.gradients, self.losses, self.norms, averages = {}, {}, [], [], [], {}
        functors = Functors(case.stack)
        run = Interpreter(read_model(case.text), case.batch, case.seq, self.given(case), functors)
        optimizer = Optimizer(case.rule or text_of(case.optimizer), case.numbers, case.options)
        for step, (batch, rate) in enumerate(zip(case.batches, case.rates)):
            loss = run.loss({name: tensor.constant(shape, values, whole=whole)
                             for name, (shape, values, whole) in batch.items()})
            facts = {path: Facts(p.shape, run.uses[path]) for path, p in run.parameters.items()}
            found = tensor.gradients(loss)
            self.frozen = {path for path in facts if functors.freezes(path, facts[path], path in run.frozen)}
            self.shapes = {path: p.shape for path, p in run.parameters.items()}
            gradients = {path: found.get(p.number, [0.0] * len(p.data))
                         for path, p in run.parameters.items() if path not in self.frozen}
            self.gradients.append(gradients)
            self.losses.append(loss.data[0])
            self.norms.append(math.sqrt(sum(v * v for g in gradients.values() for v in g)))
            blocks = run.settings.get("layers", 0)
            self.parameters |= optimizer.update(
                self.parameters, clipped(gradients, case.options["clip"]), facts,
                lambda path: functors.rate(path, facts[path], rate, blocks), case.options["weight_decay"])
            for path in gradients:
                averages[path, "average"] = functors.follow(averages.get((path, "average")), self.parameters[path], step)
        self.states = optimizer.states | {key: kept for key, kept in averages.items() if kept}

    def given(self, case):
        def give(path, shape, init):
            if path not in self.parameters:
                self.parameters[path], self.inits[path] = case.begin(path, shape, init), init
            return self.parameters[path]
        return give


def states_told(carried):
    """By parameter and name: `block[0].qkv.weight:adamw.m` is m."""
    found = {}
    for source, told in carried.items():
        if told["role"] == "state":
            path, _, facet = source.partition(":")
            found[path, facet.rsplit(".", 1)[-1]] = told["values"]
    return found


def as_init(values, kind, number=0.0):
    """Whether these values may be what a text says that a parameter begins as."""
    many, size = len(values) >= 32, math.sqrt(sum(v * v for v in values) / len(values))
    if kind == "uniform":
        return max(map(abs, values)) <= number * (1 + 1e-6) and (not many or 0.3 * number < size < number)
    if kind == "normal":
        return not many or 0.5 * number < size < 2 * number
    wanted = {"zeros": 0.0, "ones": 1.0}.get(kind, number)
    return all(abs(v - wanted) <= 1e-7 * abs(wanted) for v in values)


def of_gradients(stack):
    """Without what is about updates alone: plain descent shows gradients."""
    return " | ".join(item for item in stack.split(" | ") if not re.match(r"offload\(optimizer|ema|layer_decay", item))


class Judge:
    """Judges one case: `wrong` are sentences, none where nothing is."""

    def __init__(self, case, program):
        self.case, self.program, self.wrong = case, program, []
        self.tensors, self.blind = 0, 0

    def interpret(self):
        self.plain, self.plays = Told(self.case), {}
        self.begin = {path: self.case.begin(path, shape, None) for path, shape in self.plain.shapes.items()}

    def answer(self, stack_of, optimizer, options, rates, batches):
        """What the program tells; nothing where it died or refused. A stack that it refuses of this model is
        noted, and the case goes on without one."""
        case = self.case
        told = self.program.ask({
            "text": case.text, "batch": case.batch, "seq": case.seq, "stack": stack_of(case.stack),
            "options": {**options, "optimizer": optimizer}, "rates": rates, "parameters": self.begin,
            "batches": [{name: values for name, (_, values, _) in batch.items()} for batch in batches]})
        if "refused" in told and case.stack:
            case.refused, case.stack = f"'{case.stack}': {told['refused']}", ""
            self.interpret()
            return self.answer(stack_of, optimizer, options, rates, batches)
        if "refused" in told:
            self.wrong.append("a legal model was refused: " + told["refused"])
        elif "died" in told:
            self.wrong.append(told["died"])
        return told if "carried" in told else None

    def play(self, bits, times):
        if bits not in self.plays:
            self.plays[bits] = []
            for seed in range(times):
                with tensor.rounding(bits, seed):
                    self.plays[bits].append(Told(self.case))
        return self.plays[bits]

    def compare(self, name, got, want, of, held=0.0):
        """`of` takes what the interpreter told to the same numbers; `held` is what float32 cannot hold."""
        self.tensors += 1
        if len(got) != len(want):
            self.wrong.append(f"{name} has {len(got)} elements, wanted {len(want)}")
            return
        if any(v is None or not math.isfinite(v) for v in got):
            self.wrong.append(f"{name} is not finite")
            return
        exact = EXACT * max(map(abs, want), default=0.0) + held
        off = [abs(a - b) for a, b in zip(got, want)]
        allowed = [exact] * len(want)
        for bits, times in PLAYS:
            if all(o <= a for o, a in zip(off, allowed)):
                break
            spreads = [max(abs(p - w) for p in ps) for *ps, w in zip(*map(of, self.play(bits, times)), want)]
            # An element by itself may have been lucky in all plays.
            typical = math.sqrt(sum(s * s for s in spreads) / len(spreads))
            allowed = [SLACK * (s + typical) + exact for s in spreads]
        self.blind += 0 < 0.1 * math.hypot(*want) < math.hypot(*allowed)
        worst = max(range(len(off)), key=lambda i: off[i] - allowed[i])
        if off[worst] > allowed[worst]:
            self.wrong.append(f"{name}[{worst}] is {got[worst]:.9g}, the witness has {want[worst]:.9g}: off by "
                              f"{off[worst]:.2g}, and rounding explains {allowed[worst]:.2g}")

    def judge(self):
        self.interpret()
        case, none = self.case, {"clip": 0.0, "weight_decay": 0.0}
        told = self.answer(of_gradients, "sgd", none, [PLAIN_RATE], case.batches[:1])
        if told is None:
            return
        carried, plain = told["carried"], self.plain
        shapes = {source: tuple(told["sizes"]) for source, told in carried.items() if told["role"] == "parameter"}
        if shapes != plain.shapes:
            extra, lacking = set(shapes) - set(plain.shapes), set(plain.shapes) - set(shapes)
            other = [p for p in shapes if p in plain.shapes and shapes[p] != plain.shapes[p]]
            self.wrong.append(f"parameters differ: the program has also {sorted(extra)}, lacks {sorted(lacking)}, "
                              f"and has other sizes of {other}")
            return
        for path in plain.shapes:
            before, after = self.begin[path], carried[path]["values"]
            initial = told["initial"][path]["values"]
            if not as_init(initial, *plain.inits[path]):
                self.wrong.append(f"{path} begins as {initial[:4]}..., and not as {plain.inits[path]}")
            if path in plain.frozen:
                if after != before:
                    self.wrong.append(f"{path} is frozen, and was changed")
                continue
            got = [(b - a) / PLAIN_RATE for a, b in zip(after, before)]
            self.compare(f"the gradient of {path}", got, plain.gradients[0][path],
                         lambda told, path=path: told.gradients[0][path])
        self.judge_optimizer()

    def judge_optimizer(self):
        case = self.case
        own = ", ".join(f"{name}={number!r}" for name, number in case.numbers.items())
        with tempfile.TemporaryDirectory() as folder:
            name = case.optimizer
            if case.rule:
                name = f"{folder}/{name}.optimizer"
                Path(name).write_text(case.rule)
            told = self.answer(lambda stack: stack, f"{name}({own})" if own else name, case.options, case.rates,
                               case.batches)
        if told is None:
            return
        plain = self.plain
        for step, metrics in enumerate(told["metrics"]):
            if len(metrics) >= 3:
                self.compare(f"the loss of step {step}", metrics[:1], [plain.losses[step]],
                             lambda t, step=step: [t.losses[step]])
                self.compare(f"the norm of step {step}", metrics[2:3], [plain.norms[step]],
                             lambda t, step=step: [t.norms[step]])
        for path in plain.shapes:
            # A step is small beside what it changes, so the change is compared.
            change = lambda values, path=path: [a - b for a, b in zip(values, self.begin[path])]
            self.compare(f"the change of {path} by {case.optimizer}", change(told["carried"][path]["values"]),
                         change(plain.parameters[path]), lambda t, path=path: change(t.parameters[path]),
                         held=2.0**-22 * max(map(abs, self.begin[path])))
        states = states_told(told["carried"])
        extra = [f"{name} of {path}" for path, name in states.keys() - plain.states.keys() if path in plain.shapes]
        lacking = [f"{name} of {path}" for path, name in plain.states.keys() - states.keys()]
        if extra or lacking:
            self.wrong.append(f"the program has the states {extra}, and lacks {lacking}")
            return
        for key, values in plain.states.items():
            self.compare(f"{key[1]} of {key[0]}", states[key], values, lambda t, key=key: t.states[key])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--case", type=int)
    flags = parser.parse_args()
    numbers = [flags.case] if flags.case is not None else range(flags.first, flags.first + flags.cases)
    program, bad, refused, tensors, blind = Program(flags.program), 0, 0, 0, 0
    for number in numbers:
        case = draw.case(number)
        if flags.case is not None:
            print(case.told())
        judge = Judge(case, program)
        try:
            judge.judge()
        except Exception:
            judge.wrong.append(traceback.format_exc())
        tensors, blind, refused = tensors + judge.tensors, blind + judge.blind, refused + bool(case.refused)
        if case.refused and flags.case is not None:
            print(f"refused: {case.refused}")
        if judge.wrong:
            bad += 1
            told = "" if flags.case is not None else case.told() + "\n"
            more = f"\n... and {len(judge.wrong) - 8} more" if len(judge.wrong) > 8 else ""
            print(f"{told}{chr(10).join(judge.wrong[:8])}{more}\n"
                  f"again: {sys.argv[0]} {flags.program} --case {number}\n", flush=True)
    print(f"{len(numbers)} cases, {bad} wrong, {refused} with a stack that was refused and left out; "
          f"{tensors} tensors compared, {blind} with a tolerance of more than a tenth")
    # What is zero but for rounding cannot be judged; were there more of it, nothing would be.
    return 1 if bad or len(numbers) >= 30 and blind > tensors / 20 else 0


if __name__ == "__main__":
    sys.exit(main())
