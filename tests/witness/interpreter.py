"""A model's text evaluated as it stands: settings, boxes, repetition, names, lists, shared weights.

Numbers are floats, objects Tensors, lists of objects Python's lists; a loss is a tensor of one
number. Parameters are asked for by path when a call first needs them; how each was used is noted,
for optimizers want to know.
"""
import inspect
import math
from collections import defaultdict

import ops
import tensor
from tensor import Tensor

NUMBERS = {"sqrt": math.sqrt, "ceil": math.ceil, "floor": math.floor, "min": min, "max": max, "pow": pow,
           "exp": math.exp, "log": math.log, "abs": abs, "cos": math.cos, "sin": math.sin}
COMPARED = {"<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
            ">=": lambda a, b: a >= b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
            "and": lambda a, b: a != 0 and b != 0, "or": lambda a, b: a != 0 or b != 0}
RECKONED = {"+": (lambda a, b: a + b, tensor.plus), "-": (lambda a, b: a - b, tensor.minus),
            "*": (lambda a, b: a * b, tensor.times), "/": (lambda a, b: a / b, tensor.over)}


def is_number(value):
    return isinstance(value, (int, float))


def as_object(value):
    return tensor.constant((), [float(value)]) if is_number(value) else value


def reckon(operator, a, b):
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        a, b = as_object(a), as_object(b)
        if operator in RECKONED:
            return RECKONED[operator][1](a, b)
        one = lambda v, w: float(COMPARED[operator](v, w))
        flat = lambda v, w: 0.0
        return tensor.binary(a, b, one, (flat, flat))
    if operator in RECKONED:
        return RECKONED[operator][0](a, b)
    if operator == "mod":
        return a - b * math.floor(a / b)
    if operator == "in":
        return float(a in b)
    return float(COMPARED[operator](a, b))


class Place:
    """One call of a box: its path, and what was called in it so far."""

    def __init__(self, path="", outer=None):
        self.path, self.outer = path, outer
        self.counts, self.named = defaultdict(int), {}

    def join(self, part):
        return f"{self.path}.{part}" if self.path else part

    def part(self, callee, name, is_box):
        """How a call is called: by its name, else by its number among calls of the same; of a box the
        first has none."""
        self.counts[callee] += 1
        number = self.counts[callee]
        return name or (callee if is_box and number == 1 else f"{callee}#{number}")

    def weights_of(self, name):
        place = self
        while name not in place.named:
            place = place.outer
        return place.named[name]


class Call:
    """What an op sees of its call: its own path, and the path of its weights."""

    def __init__(self, interpreter, place, own, path, frozen):
        self.interpreter, self.place, self.own, self.path, self.frozen = interpreter, place, own, path, frozen
        self.settings = interpreter.settings

    def parameter(self, part, shape, init, use=""):
        path = f"{self.path}.{part}" if part else self.path
        return self.interpreter.parameter(path, [round(n) for n in shape], init, self.frozen, use)

    def shared_weight(self, name, shape, use):
        return self.interpreter.parameter(self.place.weights_of(name) + ".weight", shape, None, False, use)


class Interpreter:
    """`give(path, shape, init)` says what a parameter is when it is first asked for."""

    def __init__(self, model, batch, seq, give, functors=None):
        self.model, self.give, self.functors = model, give, functors
        self.facts = {}  # functions of an optimizer's text
        self.settings = {"batch": batch}
        for name, term in {**model.axes, **model.numbers}.items():
            self.settings[name] = self.value(term, dict(self.settings), None)
        self.settings["seq"] = round(seq or self.settings["context"])
        self.parameters, self.frozen, self.uses = {}, set(), defaultdict(set)
        self.made_by = {}  # by number of tensor, the parameters of the linear map that made it

    def parameter(self, path, shape, init, frozen, use):
        if path not in self.parameters:
            self.parameters[path] = tensor.leaf(shape, self.give(path, tuple(shape), init))
        made = self.parameters[path]
        assert list(made.shape) == list(shape), (path, made.shape, shape)
        if frozen:
            self.frozen.add(path)
        self.uses[path].add(use)
        return made

    def note_use(self, object, use):
        """That this object, if it is a parameter, is used so."""
        for path, made in self.parameters.items():
            if made is object:
                self.uses[path].add(use)

    def loss(self, inputs):
        self.parameters, self.uses = {}, defaultdict(set)
        box = self.model.boxes["model"]
        return self.run_box(box, [inputs[given.name] for given in box.inputs], Place(), 0)[0]

    # Boxes.

    def run_box(self, box, operands, place, number):
        scope = {"l": float(number)}
        for given, operand in zip(box.inputs, operands):
            if given.axes is not None and isinstance(operand, Tensor):
                sizes = tuple(round(self.value(axis, dict(self.settings), place)) for axis in given.axes)
                assert operand.shape == sizes, (box.name, given.name, operand.shape, sizes)
                operand = Tensor(sizes, operand.data, [(operand, lambda dy: dy)], whole=operand.whole,
                                 labels=[axis[1] if axis[0] == "name" else None for axis in given.axes])
            scope[given.name] = operand
        for statement in box.statements:
            values = []
            for term in statement.terms:
                only = statement.names[0] if len(statement.names) == 1 else None
                value = self.value(term, scope, place, only)
                values.extend(value if isinstance(value, tuple) else [value])
            assert len(values) == len(statement.names), statement
            scope.update(zip(statement.names, values))
        return values

    def call_box(self, box, operands, times, place, name, weights):
        part = place.part(box.name, name, True)
        path = place.join(part)
        if weights and weights != "one":
            path = place.weights_of(weights)
        if name:
            place.named[name] = path
        if times is None:
            return tuple(self.run_box(box, operands, Place(path, place), 0))
        carried, gathered, losses = list(operands), defaultdict(list), {}
        for l in range(times):
            inner = Place(f"{path}[{0 if weights == 'one' else l}]", place)
            dealt = [item[l] if isinstance(item, list) else item for item in carried]
            results = self.run_box(box, dealt, inner, l)
            for k, result in enumerate(results):
                if getattr(result, "is_loss", False):
                    losses[k] = ops.added_loss(losses[k], result) if k in losses else result
                elif k < len(carried):
                    carried[k] = result
                else:
                    gathered[k].append(result)
        return tuple(losses.get(k, gathered.get(k, carried[k] if k < len(carried) else None))
                     for k in range(len(results)))

    # Terms.

    def value(self, term, scope, place, stated=None):
        kind = term[0]
        if kind in ("number", "text", "value"):
            return term[1]
        if kind == "list":
            return [self.value(item, scope, place) for item in term[1]]
        if kind == "name":
            return self.named(term[1], scope)
        if kind == "when":
            _, chosen, condition, other = term
            holds = self.value(condition, scope, place) != 0
            return self.value(chosen if holds else other, scope, place) if holds or other else None
        if kind == "call":
            made = self.call(term, scope, place, stated)
            return made[0] if isinstance(made, tuple) and len(made) == 1 else made
        if kind == "not":
            return reckon("==", self.value(term[1], scope, place), 0.0)
        if len(term) == 2:
            return reckon("*", -1.0, self.value(term[1], scope, place))
        a, b = self.value(term[1], scope, place), self.value(term[2], scope, place)
        made = reckon(kind, a, b)
        if getattr(a, "is_loss", False) or getattr(b, "is_loss", False):
            made.is_loss = True
        return made

    def named(self, name, scope):
        if name in scope:
            return scope[name]
        if name in self.settings:
            return self.settings[name]
        if name in ("yes", "no"):
            return float(name == "yes")
        if name == "position":
            seq = self.settings["seq"]
            return tensor.constant((seq,), map(float, range(seq)), ["seq"], whole=True)
        return name  # a word

    def call(self, term, scope, place, stated):
        _, name, times, places, named = term
        word = lambda key: named[key][1] if key in named and named[key][0] == "name" else None
        if name in self.model.boxes:
            operands = [self.value(p, scope, place) for p in places]
            count = None if times is None else round(self.value(times, scope, place))
            return self.call_box(self.model.boxes[name], operands, count, place, word("name"), word("weights"))
        if name in self.facts:
            return self.facts[name](*[self.value(p, scope, place) for p in places])
        if name in NUMBERS and not named:
            # Once, for what makes parameters is counted; an axis behind an object is a label, no number.
            values = [self.value(places[0], scope, place)]
            if is_number(values[0]):
                values += [self.value(p, scope, place) for p in places[1:]]
                if all(map(is_number, values)):
                    return float(NUMBERS[name](*values))
            places = [("value", v) for v in values] + places[len(values):]
        op = ops.OPS[name]
        given = self.arguments(op, name, places, named, scope, place)
        if name == "param":
            place.counts["param"] += 1
            own = word("name") or stated or f"param#{place.counts['param']}"
            frozen = "frozen" in named and self.value(named["frozen"], scope, place) != 0
            return Call(self, place, "", place.join(own), frozen).parameter("", *given)
        part = place.part(name, word("name"), False)
        own = path = place.join(part)
        if word("weights"):
            path = place.weights_of(word("weights"))
        if word("name"):
            place.named[word("name")] = path
        frozen = "frozen" in named and self.value(named["frozen"], scope, place) != 0
        return op(Call(self, place, own, path, frozen), *given[0], **given[1])

    def arguments(self, op, name, places, named, scope, place):
        if name == "param":
            init = self.init(named["init"], scope, place) if "init" in named else ("zeros",)
            return [self.value(p, scope, place) for p in places], init
        parameters = dict(list(inspect.signature(op).parameters.items())[1:])
        kinds = {key: p.annotation for key, p in parameters.items()}
        free = list(parameters)
        many = [key for key, p in parameters.items() if p.kind == p.VAR_POSITIONAL]
        values, listed = {}, []

        def read(key, of):
            if kinds.get(key) == "axis" and of[0] == "name":
                return of[1]
            if kinds.get(key) == "word":
                while of[0] == "when":
                    of = of[1] if self.value(of[2], scope, place) != 0 else of[3] or ("name", None)
                return of[1]
            if kinds.get(key) == "init":
                return self.init(of, scope, place)
            return self.value(of, scope, place)

        for at in places:
            if at[0] == "name" and kinds.get(at[1]) == "flag" and at[1] not in scope:
                values[at[1]] = 1.0
                continue
            if many:
                listed.append(read(many[0], at))
                continue
            key = next(k for k in free if k not in values)
            values[key] = read(key, at)
        for key, at in named.items():
            if key in parameters:
                value = read(key, at)
                if value is not None:
                    values[key] = value
        return listed, values

    def init(self, term, scope, place):
        if term[0] == "name":
            return (term[1],)
        return (term[1], *[self.value(p, scope, place) for p in term[3]])
