"""One step of any optimizer, from its text: those that are built in have texts here."""
from pathlib import Path

import tensor
from interpreter import Interpreter, Place
from notation import Model, State, read_optimizer

BUILT_IN = {
    "adamw": """
optimizer adamw(beta1 = 0.9, beta2 = 0.99, eps = 1e-8):
  state m like p
  state v like p
  m = beta1*m + (1 - beta1)*g
  v = beta2*v + (1 - beta2)*g*g
  p = p - rate*(m/(1 - pow(beta1, step))/(sqrt(v/(1 - pow(beta2, step))) + eps) + decay*p)
""",
    "momentum": """
optimizer momentum(momentum = 0.9):
  state v like p
  v = momentum*v + g + decay*p
  p = p - rate*v
""",
    "sgd": """
optimizer sgd():
  p = p - rate*(g + decay*p)
"""}


def text_of(name):
    if name in BUILT_IN:
        return BUILT_IN[name]
    return (Path(__file__).parents[2] / "optimizers" / f"{name}.optimizer").read_text()


class Facts:
    """What conditions may ask of a parameter. A matrix is multiplied and summed over, a table looked up
    in, and all else is a vector, whatever its rank."""

    def __init__(self, shape, uses):
        self.shape, self.uses = shape, uses

    def matrix(self):
        return "matrix" in self.uses

    def table(self):
        return "table" in self.uses and not self.matrix()

    def vector(self):
        return not self.matrix() and not self.table()

    def embedding(self):
        return "table" in self.uses

    def readout(self):
        return "readout" in self.uses

    def norm(self):
        return "norm" in self.uses


def clipped(gradients, largest):
    """All gradients by one factor, so that their norm together is at most `largest`."""
    norm = sum(v * v for g in gradients.values() for v in g) ** 0.5
    factor = min(1.0, largest / (norm + 1e-6)) if largest else 1.0
    return {path: [v * factor for v in g] for path, g in gradients.items()}


class Optimizer:
    """`states` are by path of the parameter and name of the state."""

    def __init__(self, text, numbers=(), run_numbers=()):
        self.text = read_optimizer(text)
        self.numbers, self.run_numbers, self.states, self.step = dict(numbers), dict(run_numbers), {}, 0

    def update(self, parameters, gradients, facts, rate_of, decay):
        self.step += 1
        changed = {}
        for path, g in gradients.items():
            fact, rate = facts[path], rate_of(path)
            given = {"p": tensor.constant(fact.shape, parameters[path]), "g": tensor.constant(fact.shape, g),
                     "rate": rate, "decay": 0.0 if fact.vector() else decay, "step": float(self.step)}
            changed[path] = self.one(self.text, path, fact, given, self.numbers)
        return changed

    def one(self, text, path, fact, given, numbers):
        run = Interpreter(Model(boxes=text.boxes), 0, 1, None)
        run.facts = {name: lambda p, ask=getattr(fact, name): float(ask())
                     for name in ("matrix", "table", "vector", "embedding", "readout", "norm")}
        run.facts |= {"rank": lambda p: float(len(p.shape)), "dim": lambda p, k: float(p.shape[round(k)]),
                      "elements": lambda p: float(len(p.data))}
        scope = dict(given)
        said = self.run_numbers | numbers if text.name in BUILT_IN else numbers
        for name, term in text.parameters.items():
            scope[name] = said[name] if name in said else run.value(term, scope, Place())
            if scope[name] != round(scope[name]):
                scope[name] = tensor.rounded([scope[name]])[0]
        body = list(text.shared)
        if text.cases:
            chosen = next(c for c in text.cases
                          if c.condition is None or run.value(c.condition, scope, Place()) != 0)
            if chosen.other:
                return self.one(read_optimizer(text_of(chosen.other)), path, fact, given, {})
            body += chosen.body
        states = []
        for line in body:
            if isinstance(line, State):
                like = run.value(line.like, scope, Place())
                begin = run.value(line.begin, scope, Place()) if line.begin else 0.0
                there = self.states.get((path, line.name), [begin] * len(like.data))
                scope[line.name] = tensor.constant(like.shape, there)
                states.append(line.name)
            else:
                for name, term in zip(line.names, line.terms):
                    scope[name] = run.value(term, scope, Place())
        for name in states:
            self.states[path, name] = scope[name].data
        return scope["p"].data
