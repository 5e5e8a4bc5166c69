"""The notation of models and optimizers as trees, read as docs/notation.md says. Nothing here knows
what a name means.

A term is a tuple: ("number", 3), ("text", "ik,jk->ij"), ("name", "x"), ("list", [...]),
("call", name, times or None, places, named), ("not", a), ("-", a), (operator, a, b), and
("when", a, condition, b or None).
"""
import re
from dataclasses import dataclass, field

TOKENS = re.compile(r"""\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|(?P<text>"[^"]*")
    |(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign><=|>=|==|!=|->|[-+*/^()\[\],=<>:|]))""", re.X)


@dataclass
class Input:
    """What the head of a box takes: a name, and where the text says so a dtype and axes."""
    name: str
    dtype: str = ""
    axes: list = None


@dataclass
class Statement:
    names: list
    terms: list


@dataclass
class Box:
    name: str
    inputs: list
    statements: list


@dataclass
class Model:
    axes: dict = field(default_factory=dict)
    numbers: dict = field(default_factory=dict)
    boxes: dict = field(default_factory=dict)


@dataclass
class State:
    name: str
    like: tuple
    begin: tuple


@dataclass
class Case:
    """A rule of an optimizer for parameters of which the condition holds: statements and states in
    their order, or the name of another optimizer."""
    condition: tuple = None
    body: list = field(default_factory=list)
    other: str = ""


@dataclass
class Optimizer:
    name: str
    parameters: dict
    shared: list
    cases: list
    boxes: dict


class Reader:
    """Reads one line from left to right."""

    def __init__(self, text):
        self.tokens, at = [], 0
        while at < len(text.rstrip()):
            found = TOKENS.match(text, at)
            if not found:
                raise SyntaxError(f"cannot read: {text[at:]}")
            self.tokens.append((found.lastgroup, found.group(found.lastgroup)))
            at = found.end()
        self.at = 0

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead][1] if self.at + ahead < len(self.tokens) else ""

    def kind(self):
        return self.tokens[self.at][0] if self.at < len(self.tokens) else "end"

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1][1]

    def accept(self, *words):
        if self.kind() != "text" and self.peek() in words:
            return self.next()
        return ""

    def expect(self, word):
        if not self.accept(word):
            raise SyntaxError(f"wanted {word}, found '{self.peek()}'")

    def term(self):
        chosen = self.either()
        if not self.accept("when"):
            return chosen
        condition = self.either()
        return ("when", chosen, condition, self.term() if self.accept("else") else None)

    def joined(self, part, *operators):
        left = part()
        while operator := self.accept(*operators):
            left = (operator, left, part())
        return left

    def either(self):
        return self.joined(lambda: self.joined(self.negated, "and"), "or")

    def negated(self):
        return ("not", self.negated()) if self.accept("not") else self.compared()

    def compared(self):
        left = self.summed()
        if operator := self.accept("<", "<=", ">", ">=", "==", "!=", "in"):
            return (operator, left, self.summed())
        return left

    def summed(self):
        return self.joined(lambda: self.joined(self.signed, "*", "/", "mod"), "+", "-")

    def signed(self):
        return ("-", self.signed()) if self.accept("-") else self.primary()

    def primary(self):
        kind = self.kind()
        if kind == "number":
            return ("number", float(self.next()))
        if kind == "text":
            return ("text", self.next()[1:-1])
        if self.accept("("):
            inner = self.term()
            self.expect(")")
            return inner
        if self.accept("["):
            items = self.several(self.term, "]")
            return ("list", items)
        name = self.next()
        times = self.primary_of_power() if self.accept("^") else None
        if not self.accept("("):
            return ("name", name)
        places, named = [], {}
        while not self.accept(")"):
            if self.peek(1) == "=":
                key = self.next()
                self.next()
                named[key] = self.term()
            else:
                places.append(self.term())
            self.accept(",")
        return ("call", name, times, places, named)

    def primary_of_power(self):
        if self.accept("("):
            inner = self.term()
            self.expect(")")
            return inner
        return ("number", float(self.next())) if self.kind() == "number" else ("name", self.next())

    def several(self, part, end):
        items = []
        while not (self.accept(end) if end else self.kind() == "end"):
            items.append(part())
            self.accept(",")
        return items

    def settings(self):
        found = {}
        while self.kind() != "end":
            name = self.next()
            self.expect("=")
            found[name] = self.term()
        return found

    def input(self):
        made = Input(self.next())
        if self.kind() == "name":
            made.dtype = self.next()
        if self.accept("["):
            made.axes = self.several(self.term, "]")
        return made

    def box(self):
        return Box(self.next(), self.several(self.input, ":"), [])

    def statement(self):
        names = [self.next()]
        while self.accept(","):
            names.append(self.next())
        self.expect("=")
        return Statement(names, self.several(self.term, ""))


def lines_of(text):
    """Pairs of an indent and a line; one with open brackets goes on in the next."""
    held, found = "", []
    for line in text.splitlines():
        line = re.sub(r'("[^"]*")|#.*', lambda m: m.group(1) or "", line).rstrip()
        held = held + " " + line.strip() if held else line
        if sum(held.count(c) for c in "([") > sum(held.count(c) for c in ")]"):
            continue
        if held.strip():
            found.append((len(held) - len(held.lstrip()), held.strip()))
        held = ""
    return found


def read_model(text):
    model, box = Model(), None
    for indent, line in lines_of(text):
        reader = Reader(line)
        if indent:
            box.statements.append(reader.statement())
        elif reader.accept("axes"):
            model.axes |= reader.settings()
        elif reader.accept("numbers"):
            model.numbers |= reader.settings()
        else:
            box = reader.box()
            model.boxes[box.name] = box
    return model


def read_optimizer(text):
    made, body, boxes, inside = None, None, {}, 0
    for indent, line in lines_of(text):
        reader = Reader(line)
        if not indent:
            if reader.accept("optimizer"):
                name = reader.next()
                parameters = {}
                if reader.accept("("):
                    while not reader.accept(")"):
                        key = reader.next()
                        reader.expect("=")
                        parameters[key] = reader.term()
                        reader.accept(",")
                made = Optimizer(name, parameters, [], [], boxes)
                body = made.shared
            else:
                box = reader.box()
                boxes[box.name], body = box, box.statements
        elif made and reader.accept("when"):
            made.cases.append(Case(condition=reader.either()))
            body, inside = made.cases[-1].body, indent
        elif made and reader.accept("otherwise"):
            made.cases.append(Case(other="" if reader.peek() == ":" else reader.next()))
            body, inside = made.cases[-1].body, indent
        else:
            if made and inside and indent <= inside:
                body, inside = made.shared, 0
            if reader.accept("state"):
                name = reader.next()
                reader.expect("like")
                like = reader.term()
                body.append(State(name, like, reader.term() if reader.accept("=") else None))
            else:
                body.append(reader.statement())
    return made
