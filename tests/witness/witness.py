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

import draw
import tensor
from functors import Functors
from interpreter import Interpreter
from notation import read_model
from optimizers import Facts, Optimizer, clipped

# A step of plain descent at such a rate shows gradients to the last bit.
PLAIN_RATE = 2.0**14
PLAYS = 3  # runs with rounding played
# A program sums in other orders and makes other intermediate results than the interpreter, so it
# may be this many times as far from it as plays are, which round two bits earlier. Nobody is asked
# for more than EXACT.
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
        self.parameters, self.gradients, self.losses, self.norms, averages = {}, [], [], [], {}
        functors = Functors(case.stack)
        run = Interpreter(read_model(case.text), case.batch, case.seq, self.given(case), functors)
        optimizer = Optimizer(case.optimizer, case.numbers, case.options)
        for step, (batch, rate) in enumerate(zip(case.batches, case.rates)):
            loss = run.loss({name: tensor.constant(shape, values, whole=whole)
                             for name, (shape, values, whole) in batch.items()})
            facts = {path: Facts(p.shape, run.uses[path]) for path, p in run.parameters.items()}
            found = tensor.gradients(loss)
            self.frozen = run.frozen | {path for path in facts if functors.freezes(path, facts[path])}
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
                self.parameters[path] = case.begin(path, shape, init)
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


def of_gradients(stack):
    """Without what is about updates alone: plain descent shows gradients."""
    return " | ".join(item for item in stack.split(" | ") if not re.match(r"offload\(optimizer|ema|layer_decay", item))


class Judge:
    """Judges one case: `wrong` are sentences, none where nothing is."""

    def __init__(self, case, program):
        self.case, self.program, self.wrong = case, program, []
        self.tensors, self.blind, self.refused = 0, 0, ""
        self.interpret()

    def interpret(self):
        self.plain, self.plays = Told(self.case), None
        self.begin = {path: self.case.begin(path, shape, None) for path, shape in self.plain.shapes.items()}

    def question(self, optimizer, options, rates, batches):
        case = self.case
        return {"text": case.text, "batch": case.batch, "seq": case.seq, "stack": of_gradients(case.stack) if optimizer == "sgd" else case.stack,
                "options": {**options, "optimizer": optimizer}, "rates": rates, "parameters": self.begin,
                "batches": [{name: values for name, (_, values, _) in batch.items()} for batch in batches]}

    def answer(self, *question):
        told = self.program.ask(self.question(*question))
        if "refused" in told:
            self.refused = told["refused"]
            if not self.case.stack:
                self.wrong.append("a legal model was refused: " + told["refused"])
        elif "died" in told:
            self.wrong.append(told["died"])
        return told.get("carried")

    def play(self):
        if self.plays is None:
            self.plays = []
            for seed in range(PLAYS):
                with tensor.rounding(seed):
                    self.plays.append(Told(self.case))
        return self.plays

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
        if max(off) > exact:
            spreads = [max(abs(p - w) for p in ps) for *ps, w in zip(*map(of, self.play()), want)]
            # An element by itself may have been lucky in all plays.
            typical = math.sqrt(sum(s * s for s in spreads) / len(spreads))
            allowed = [SLACK * (s + typical) + exact for s in spreads]
        self.blind += 0 < 0.1 * math.hypot(*want) < math.hypot(*allowed)
        worst = max(range(len(off)), key=lambda i: off[i] - allowed[i])
        if off[worst] > allowed[worst]:
            self.wrong.append(f"{name}[{worst}] is {got[worst]:.9g}, the witness has {want[worst]:.9g}: off by "
                              f"{off[worst]:.2g}, and rounding explains {allowed[worst]:.2g}")

    def judge(self):
        case, none = self.case, {"clip": 0.0, "weight_decay": 0.0}
        carried = self.answer("sgd", none, [PLAIN_RATE], case.batches[:1])
        if carried is None and self.refused and case.stack:
            self.case.refused, self.case.stack = f"'{case.stack}': {self.refused}", ""
            self.interpret()
            carried = self.answer("sgd", none, [PLAIN_RATE], case.batches[:1])
        if carried is None:
            return
        plain = self.plain
        shapes = {source: tuple(told["sizes"]) for source, told in carried.items() if told["role"] == "parameter"}
        if shapes != plain.shapes:
            extra, lacking = set(shapes) - set(plain.shapes), set(plain.shapes) - set(shapes)
            other = [p for p in shapes if p in plain.shapes and shapes[p] != plain.shapes[p]]
            self.wrong.append(f"parameters differ: the program has also {sorted(extra)}, lacks {sorted(lacking)}, "
                              f"and has other sizes of {other}")
            return
        for path in plain.shapes:
            before, after = self.begin[path], carried[path]["values"]
            if path in plain.frozen:
                if after != before:
                    self.wrong.append(f"{path} is frozen, and was changed")
                continue
            got = [(b - a) / PLAIN_RATE for a, b in zip(after, before)]
            self.compare(f"the gradient of {path}", got, plain.gradients[0][path],
                         lambda told, path=path: told.gradients[0][path])
        self.judge_optimizer()

    def judge_optimizer(self):
        case, plain = self.case, self.plain
        own = "".join(f", {k}={v!r}" for k, v in case.numbers.items())[2:]
        told = self.program.ask(self.question(f"{case.optimizer}({own})" if own else case.optimizer, case.options,
                                              case.rates, case.batches))
        if "carried" not in told:
            self.wrong.append(told.get("refused") or told["died"])
            return
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
        for key, values in plain.states.items():
            if key not in states:
                self.wrong.append(f"the program has no state {key[1]} of {key[0]}")
                continue
            self.compare(f"{key[1]} of {key[0]}", states[key], values, lambda t, key=key: t.states[key])


def judged(number, program):
    case = draw.case(number)
    judge = Judge(case, program)
    judge.judge()
    return case, judge


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--case", type=int)
    parser.add_argument("--show", action="store_true", help="print what is judged")
    flags = parser.parse_args()
    numbers = [flags.case] if flags.case is not None else range(flags.first, flags.first + flags.cases)
    program, bad, refused, tensors, blind = Program(flags.program), 0, 0, 0, 0
    for number in numbers:
        case, judge = judged(number, program)
        tensors, blind, refused = tensors + judge.tensors, blind + judge.blind, refused + bool(case.refused)
        if flags.show or flags.case is not None or judge.wrong:
            print(case.told())
        if case.refused and (flags.show or flags.case is not None):
            print(f"refused: {case.refused}")
        if judge.wrong:
            bad += 1
            print("\n".join(judge.wrong[:8]))
            print(f"again: {sys.argv[0]} {flags.program} --case {number}\n", flush=True)
    print(f"{len(numbers)} cases, {bad} wrong, {refused} refused; {tensors} tensors compared, {blind} of them blindly")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
