"""Random legal models, stacks and optimizers, each a function of its number."""
import random
import struct
from dataclasses import dataclass, field


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


@dataclass
class Case:
    number: int
    text: str
    batch: int
    seq: int
    stack: str
    optimizer: str
    numbers: dict      # of the optimizer's own
    rule: str          # its text, where it comes with nobody
    options: dict      # of the run
    rates: list
    batches: list      # per step, by input: shape, values, and whether they are whole numbers
    drawn: dict = field(default_factory=dict)
    refused: str = ""  # a stack that the program refused of this model, and why

    def begin(self, path, shape, init):
        """A parameter's values: none is what a fault could mistake for another (0, 1, all equal)."""
        if path not in self.drawn:
            draw = random.Random(f"{self.number} {path}").gauss
            gain = {"ones": 1.0, "constant": init[-1]}.get(init[0], 0.0) if len(shape) == 1 else 0.0
            deviation = 0.3 if len(shape) < 2 else 0.9 / shape[-1] ** 0.5
            count = 1
            for size in shape:
                count *= size
            self.drawn[path] = [float32(gain + draw(0, deviation)) for _ in range(count)]
        return self.drawn[path]

    def told(self):
        return (f"case {self.number}: batch {self.batch}, seq {self.seq}, stack '{self.stack}', {self.optimizer} "
                f"{self.numbers or ''} {self.options} rates {self.rates}\n{self.text}{self.rule}")


ACTIVATIONS = ["gelu({})", "silu({})", "relu({})", "tanh({})", "sigmoid({})", "gelu({}, approximate=none)",
               "sin({})", "cos({})", "abs({})", "exp(tanh({}))", "log(abs({}) + 1)", "sqrt({0}*{0} + 0.1)",
               "pow({}, 2)", "pow(0.5, tanh({}))", "sign({0})*{0}"]
INITS = ["", "", "", ", init=normal(0.1)", ", init=uniform(0.2)", ", init=constant(0.1)", ", init=zeros",
         ", init=normal(0.02/sqrt(2*layers))"]


class Writer:
    """Writes a model's text. Every draw of a term is of [batch, seq, hidden] unless it says otherwise."""

    def __init__(self, number):
        self.random = random.Random(number)
        self.names, self.boxes, self.statements = 0, [], []
        r = self.random
        self.heads = r.choice([1, 2, 2, 2, 4])
        self.hidden = r.choice([4, 8, 8, 8]) if self.heads < 4 else 8
        self.layers = r.choice([1, 2, 2, 3])
        self.context = r.randint(3, 6)
        self.seq = r.choice([0, 0, 0, r.randint(2, self.context)])
        self.vocab = r.randint(5, 11)
        self.batch = r.choice([1, 2, 2, 3, 4])
        self.has_segments = self.chance(12)
        self.has_teacher = self.chance(8)
        self.busy = []  # losses that the box at hand gives
        self.inline = False
        self.form = r.randrange(100)  # how boxes are called
        self.has_chain = self.form < 50 and self.layers > 1
        self.stack = draw_stack(r, self)
        # Ranks of tensor want heads and positions of their own.
        if "sequence" in self.stack:
            self.context, self.seq = self.pick([4, 6]), 0

    def chance(self, percent):
        return self.random.randrange(100) < percent

    def pick(self, items):
        return self.random.choice(items)

    def name(self):
        self.names += 1
        return f"n{self.names}"

    def named(self):
        return f", name={self.name()}" if self.chance(30) and not self.inline else ""

    def condition(self):
        """Of numbers, in a repeated box."""
        return self.pick([f"l mod 2 == {self.pick([0, 1])}", "l in [0, 2]", "l < layers/2", "not l == 0",
                          "l == 0 or l > 1", "l > 0 and layers > 1"])

    def let(self, term):
        """A statement of its own for a term; where a term is chosen by a condition, the term itself."""
        if self.inline:
            return f"({term})"
        name = self.name()
        self.statements.append(f"{name} = {term}")
        return name

    # Terms.

    def norm(self, x):
        return self.pick([f"rms_norm({x})", f"layer_norm({x})", f"rms_norm({x}, eps=eps)",
                          f"layer_norm({x}, eps=eps{self.named()})", f"rms_norm({x}, 1e-4, offset=1)",
                          f"layer_norm({x}, bias=no)"])

    def linear(self, x, out="hidden"):
        bias = self.pick(["", "", ", bias=no", ", bias=yes when layers > 1 else no", ", bias=no when layers > 1"])
        frozen = ", frozen=yes" if self.chance(4) and not self.alike else ""
        return f"linear({x}, {out}{bias}{self.pick(INITS)}{self.named()}{frozen})"

    def active(self, x):
        form = self.pick([f for f in ACTIVATIONS if "{0}" not in f] if self.inline else ACTIVATIONS)
        return form.format(self.let(x) if "{0}" in form else x)

    def feed_forward(self, x):
        if self.chance(50):
            x = self.let(x)
            gate = f"{self.pick(['silu', 'gelu', 'sigmoid'])}({self.linear(x, 'ffn')})"
            return self.linear(f"{gate}*{self.linear(x, 'ffn')}")
        return self.linear(self.active(self.linear(x, self.pick(["ffn", "2*hidden", "hidden + 2"]))))

    def attention(self, x):
        x = self.let(x)
        options = [self.pick(["causal", "causal", "causal", "causal=yes", "causal=no"])]
        least = 2 if "tensor" in self.stack and self.heads > 1 else 1
        kv = self.pick([n for n in (1, 2, 4) if self.heads % n == 0 and n >= least])
        turn = self.pick([None, None, "rotary({}, {}, 100)", "rotary({}, {}, 50, scaling=linear, factor=4)",
                          "rotary({}, {}, base=1000, scaling=llama3, factor=8, low=1, high=4, original=16)",
                          "rotary({}, {}, dims=2)",
                          "rotary({}, {}, 100, scaling=yarn, factor=4, fast=2, slow=0.5, original=16)"])
        if self.hidden // self.heads % 2:
            turn = None
        normed = self.chance(15)
        if turn or normed or kv != self.heads or self.chance(40):
            q = self.linear(x)
            k, v = (self.linear(x, f"{kv}*hidden/heads") for _ in "kv")
            if normed:
                q, k = (f"merge(rms_norm(split({t}, {n})))" for t, n in ((q, "heads"), (k, kv)))
            if turn:
                q, k = turn.format(q, "heads"), turn.format(k, kv)
            first = self.let(q)
            options += [f"k={self.let(k)}", f"v={self.let(v)}", f"kv_heads={kv}"]
        else:
            first = self.let(self.linear(x, "3*hidden"))
        if self.chance(20):
            other = f" when {self.condition()} else 0" if not self.alike and self.chance(50) else ""
            options.append(f"window={self.random.randint(1, 4)}{other}")
        if self.chance(15):
            options.append(f"scale={self.pick([0.2, 0.5])}")
        if self.chance(15):
            options.append(f"cap={self.pick([1, 2.5, 20])}")
        if self.chance(15):
            options.append("alibi=yes")
        elif self.chance(15) and options[0] != "causal=no":
            options.append(f"bias={self.let(f'param(heads, {self.random.randint(1, 6)})')}")
        if self.chance(15):
            options.append(f"sinks={self.let('param(heads)')}")
        if self.has_segments:
            options.append("segments=segments")
        return self.linear(f"attention({first}, heads, {', '.join(options)})")

    def attention_by_hand(self, x):
        x = self.let(x)
        q, k, v = (self.let(f"split({self.linear(x)}, heads)") for _ in "qkv")
        scores = self.let(f'contract({q}, {k}, "bshd,bthd->bhst") / sqrt(hidden/heads)')
        i, j = self.name(), self.name()
        self.statements.append(f"{i}, {j} = index({scores}, 2), index({scores}, 3)")
        seen = self.pick([f"{i} >= {j}", f"{i} >= {j} and {i} - {j} < 3", f"not {j} > {i}", f"{i} + 1 > {j} or {j} == 0"])
        if self.chance(30):
            far = self.let(f"where({seen}, exp(0.3*{scores}), 0)")
            p = f"{far}/(sum({far}, keep) + 1)"
        elif self.chance(30):
            p = f"softmax({scores}, causal)"
        else:
            p = f"softmax(where({seen}, {scores}, -1e30))"
        return self.linear(f'merge(contract({p}, {v}, "bhst,bthd->bshd"))')

    def experts(self, x):
        x = self.let(x)
        many, active = self.pick([(2, 1), (3, 2), (4, 2), (4, 3)])
        scores = self.let(self.linear(x, str(many)))
        choice = self.let(f"top_k({scores}, {active})")
        routed = self.pick([f"softmax(gather({scores}, {choice}))", f"gather(route({scores}, {choice}), {choice})"])
        weights = self.let(f"unsqueeze({routed}, 3)")
        bias = self.pick(["", ", bias=yes"])
        h = self.let(f"silu(expert_linear({x}, {choice}, {many}, ffn{bias}))")
        if self.busy is not None and self.chance(60):
            over = self.pick(["", "", ", over=batch"]) if self.alone else ""
            self.busy.append(self.let(f"balance_loss(softmax({scores}), {choice}, targets{over})"))
        if self.chance(50):
            return f"expert_linear({h}*{weights}, {choice}, {many}, hidden, sum=yes)"
        return f"sum(expert_linear({h}, {choice}, {many}, hidden{bias})*{weights}, axis=2)"

    def shaped(self, x):
        """Something of x's shape that moves its elements about."""
        half = "hidden/2"
        x = self.let(x)
        forms = [
            f"concat(slice({x}, {half}, {half}), slice({x}, 0, {half}))",
            f"pad(slice({x}, 1, {half}), 2, hidden)",
            f"shift({x}, 1)", f"shift({x}, -1, fill=0.5)", f"shift({x}, 2, axis=2)",
            f"conv({x}, {self.random.randint(1, 4)}{self.pick(['', ', bias=yes'])}{self.named()})",
            f"merge(transpose(split({x}, heads)))",
            f"transpose(shift(transpose({x}, 1, 2), 1, axis=2), seq, hidden)",
            f"squeeze(unsqueeze({x}, 1), 1)",
            f"stretch(mean({x}, seq, keep), seq, 1)",
            f"{x} - mean({x}, hidden, keep)", f"{x}/(max(abs({x}), keep=yes) + 1)",
            f"{x}*softmax({x})", f"{x} + 0.1*sum({x}, axis=hidden, keep=yes)",
            f"where({x} > 0, {x}, 0.1*{x})", f"maximum({x}, 0.2*{x})", f"minimum({x}, 0.5)", f"maximum({x}, 0)",
            f"where(index({x}, seq) < 1, 0.5*{x}, {x})",
            f"{x}*(index({x}, seq) + 1)/context",
            f"merge(rms_norm(split({x}, heads)))",
            f"merge(split({x}, heads)*param(heads, 1))",
            f"{x}*param(hidden, init=ones) + param(hidden)",
            self.linear(f"sum(split({x}, heads), axis=heads)"),
            self.linear(f"max(split({x}, heads), axis=2)"),
            f'contract({x}, param(hidden, hidden, init=normal(0.1)), "bsi,io->bso")',
            f"sum(gather({x}, top_k({x}, 2)), keep)*{x}",
            f"max({x}, seq, keep) - {x}", f"{x}*sum({x}, seq, keep)/context",
            f"where(index({x}, 1) >= 2, shift({x}, 2), {x})",
            f'unsqueeze(contract({x}, {self.linear(x)}, "bsh,bsh->bs"), 2)*{x}',
            f'contract(softmax(contract({x}, {self.linear(x)}, "bsi,bti->bst"), causal), {x}, "bst,bti->bsi")',
            f'merge(contract(split({x}, heads), param(heads, hidden/heads, hidden/heads, init=normal(0.2)), "bshd,hde->bshe"))',
            f"concat({self.linear(x, 'hidden/2')}, slice({x}, 1, hidden/2))",
            f"({x} when hidden > 4 else 2*{x}) - {x}/4", f"-{x}*2 + 1",
        ]
        # A parameter that only tells a shape, or what is chosen, has no influence on the loss, and is refused.
        forms = [f for f in forms if not self.inline or not any(w in f for w in ("index(", "top_k(", "where("))]
        # What an attention gives to the stream of states itself, all that follows reads of an attention.
        return self.pick([f for f in forms if not (self.asks_roles and "bti" in f)])

    def mixed(self, x):
        draw = self.random.randrange(100)
        if draw < 30:
            return self.attention(x)
        if draw < 38 and not self.inline:
            return self.attention_by_hand(x)
        if draw < 62:
            return self.feed_forward(x)
        if draw < 68 and not self.inline:
            return self.experts(x)
        if draw < 74:
            return self.active(self.linear(x))
        if draw < 80 and not self.inline:
            return self.box_of_two(x)
        if draw < 83 and not self.inline:
            name = self.name()
            shared = self.let(f"linear({x}, hidden, name={name})")
            return f"{shared} + gelu(linear({shared}, hidden, weights={name}))"
        return self.shaped(x)

    # Boxes.

    def box_of_two(self, x):
        """A call of a box that gives two objects."""
        name, a, b = f"box_{self.name()}", self.name(), self.name()
        kept, alike, self.alike = self.open(), self.alike, True
        first, second = self.linear("y", "ffn"), self.active(self.linear("y", "ffn"))
        self.statements.append(f"one, two = {first}, {second}")
        self.close(f"{name} y{self.pick(['', '[batch, seq, hidden]'])}", kept)
        self.alike = alike
        self.statements.append(f"{a}, {b} = {name}({x})")
        return self.linear(f"{a}*{b}")

    def open(self):
        kept, self.statements = self.statements, []
        return kept

    def close(self, head, kept):
        self.boxes.append(f"{head}:\n" + "".join(f"  {self.broken(s)}\n" for s in self.statements))
        self.statements = kept

    def broken(self, statement):
        """Over two lines, sometimes, or with a comment."""
        opened = statement.find(", ", statement.find("(")) if "(" in statement else -1
        if self.chance(5) and opened > 0 and statement.count("(", 0, opened) > statement.count(")", 0, opened):
            return f"{statement[:opened]},  # it goes on\n      {statement[opened + 2:]}"
        return statement + ("  # (a comment" if self.chance(3) else "")

    def sublayers(self, count, extra=()):
        for _ in range(count):
            form = self.random.randrange(10)
            if form < 6:
                self.statements.append(f"x = x + {self.mixed(self.norm('x'))}")
            elif form < 7:
                self.statements.append(f"x = {self.norm(f'x + {self.mixed(chr(120))}')}")
            elif form < 8:
                other = self.mixed(self.norm("x"))
                self.statements.append(f"x = x + {other} + {self.mixed(self.norm('x'))}")
            elif form < 9 and not self.alike:
                self.inline = True
                a, b = self.mixed(self.norm("x")), self.mixed("x")
                self.inline = False
                self.statements.append(f"x = x + 0.5*({a} when {self.condition()} else {b})")
            else:
                self.statements.append(f"x = x + {self.pick(['', '0.5*', 'param(hidden, init=constant(0.3))*'])}"
                                       f"{self.mixed('x')}")
        for e in extra:
            self.statements.append(f"x = x + {self.pick(['0.3*', 'param(hidden)*'])}{e}")

    def block(self, name, extra=(), alike=False):
        """A box x -> x, which may ask for `l` unless all its calls are alike; tells whether it gives a loss, and
        what it takes beside x."""
        kept = self.open()
        self.busy, self.alike = [], alike
        self.sublayers(self.pick([1, 1, 2]), extra)
        more = [e for e in extra] + (["targets"] if self.busy else []) + (["segments"] if self.has_segments else [])
        brackets = self.pick(["[batch, seq, hidden]", "[batch, seq, hidden]", ""])
        if self.busy:
            term = " + ".join(self.busy)
            self.statements.append(f"x, busy = x, {term}")
        self.close(", ".join([name + f" x{brackets}", *more]), kept)
        busy, self.busy = bool(self.busy), []
        return busy, more

    def body(self):
        """Statements of the model between embedding and readout; gives a loss to be added, or none."""
        form, losses = self.form, []

        def called(name, times, extra=(), weights=""):
            busy, more = self.block(name, extra, alike=not times or "one" in weights)
            call = f"{name}{times}({', '.join(['x', *more])}{weights})"
            if busy:
                loss = self.name()
                self.statements.append(f"x, {loss} = {call}")
                losses.append(loss)
            else:
                self.statements.append(f"x = {call}")

        if form < 40:
            called("block", "^layers")
        elif form < 50:
            self.statements.append("e = x")
            called("block", "^layers", ("e",))
        elif form < 60:
            called("block", "^layers", weights=", weights=one")
        elif form < 68:
            called("block", "", weights=", name=first")
            again = self.statements[-1].replace("name=first", "weights=first")
            if losses:
                again = again.replace(losses[-1], "other", 1)
                losses.append("other")
            self.statements.append(again)
        elif form < 78:
            self.nested()
        elif form < 86:
            self.skipping()
        else:
            called("block", "^layers")
            called("part", self.pick(["", "^2", "^(2*layers)", "^(layers + 1)"]))
        return losses

    def nested(self):
        busy, more = self.block("leaf")
        if busy:  # a loss of an inner box is given on by the outer one
            kept = self.open()
            self.statements.append(f"x, busy = leaf^2({', '.join(['x', *more])})")
            self.statements.append("x, busy = x, busy")
            self.close(", ".join(["stem x", *more]), kept)
            self.statements.append(f"x, busy = stem^layers({', '.join(['x', *more])})")
            self.nested_loss = True
            return
        kept = self.open()
        self.statements.append(f"x = leaf^2({', '.join(['x', *more])})")
        self.statements.append(f"x = x + {self.linear(self.norm('x'))}")
        self.close(", ".join(["stem x[batch, seq, hidden]", *more]), kept)
        self.statements.append(f"x = stem^layers({', '.join(['x', *more])})")

    def skipping(self):
        self.busy, self.alike, self.has_segments = None, True, False
        kept = self.open()
        self.sublayers(1)
        self.statements.append("x, kept = x, x")
        self.close("down x", kept)
        kept = self.open()
        self.statements.append(f"x = x + {self.pick(['0.5*', 'param(hidden, init=ones)*'])}kept + 0.1*first")
        self.sublayers(1)
        self.close("up x, kept, first", kept)
        self.statements += ["e = x", "x, kept = down^layers(x)",
                            f"x = up^layers(x, {self.pick(['reverse(kept)', 'kept'])}, e)"]
        if self.chance(40):
            self.statements.append("x = x + 0.2*item(kept, 0)")

    def loss(self, readout):
        twice = self.chance(15)
        x = self.let("rms_norm(x, name=final)" if twice else self.norm("x") if self.chance(80) else "x")
        logits = self.let(readout.format(x))
        options = "".join(self.pick(["", "", "", o]) for o in (", smoothing=0.1", ", z=0.01", ", cap=3"))
        loss = f"cross_entropy({logits}, targets{options})"
        if self.chance(20):
            again = f"rms_norm({self.feed_forward(x)}, weights=final)" if twice else x
            later = self.let(self.linear(again, "vocab"))
            loss += f" + 0.3*cross_entropy({later}, shift(targets, -1, fill=-1))"
        if self.chance(12):
            loss = f"{loss} + 0.02*average(pow(log(sum(exp({logits}))), 2), targets)"
        if self.chance(8) and not self.asks_roles:
            loss = f"0.5*({loss}) + average(mean({x}*{x}), targets)/4"
        for _ in range(self.pick([0] * 10 + [1, 2])):
            loss += f" - 0.1*cross_entropy({self.linear(x, 'vocab')}, tokens, ignore={self.random.randrange(self.vocab)})"
        if self.has_teacher:
            p, q = self.let("softmax(teacher/temperature)"), self.let(f"softmax({logits}/temperature)")
            far = self.let(f"sum({p}*log(({p} + 1e-9)/({q} + 1e-9)))")
            loss += f" + pow(temperature, 2)*average({far}, targets)"
        return loss

    def model(self, alone):
        self.alone = alone  # whether the batch comes in one piece
        self.busy, self.alike, self.nested_loss = None, True, False
        tied = self.chance(35)
        places = self.pick(["", " + embed(position, context, name=wpe)"])
        self.statements = ["x = embed(tokens, vocab, name=wte)" + places]
        if self.chance(10):
            before = f"embed(shift(tokens, {self.pick([1, 2])}), vocab, width=hidden/2)"
            self.statements.append(f"x = x + linear({before}, hidden, bias=no)")
        if self.chance(8):
            self.statements.append("x = where(unsqueeze(tokens == shift(tokens, 1, fill=-1), 2), x, 0.5*x)")
        losses = self.body()
        if self.nested_loss:
            losses = losses + ["busy"]
        readout = f"linear({{}}, vocab{self.pick(['', ', bias=no'])}, name=readout)"
        if tied:
            readout = "linear({}, vocab, bias=no, weight=wte)"
        loss = self.loss(readout)
        for more in losses:
            loss += f" + {self.pick(['0.01', '0.1/layers', '0.5'])}*{more}"
        self.statements.append(f"loss = {loss}")
        inputs = ["tokens[batch, seq]", "targets[batch, seq]"]
        if self.has_segments:
            inputs.append("segments[batch, seq]")
        if self.has_teacher:
            inputs.append("teacher f32[batch, seq, vocab]")
        ffn = self.pick(["6", "2*hidden", "3*hidden/2", "(hidden + 4)", "ceil(hidden/3)"])
        head = (f"axes layers={self.layers} hidden={self.hidden} heads={self.heads} ffn={ffn} context={self.context} "
                f"vocab={self.vocab}\nnumbers eps=1e-3 temperature=2\n")
        model = f"model {', '.join(inputs)}:\n" + "".join(f"  {s}\n" for s in self.statements)
        return head + "".join(self.boxes) + model


STACKS = ["-fuse", "-fuse | -simplify", "-join_projections", "-recompute_cheap", "-gang_updates", "fuse_loss",
          "gang_sums", "-fuse_epilogue", "-fuse_addend", "fuse_product_map", "-chunk_readout", "chunk_readout(rows=3)",
          "pad_rows(least=4)", "offload(optimizer)", "offload(activations)"]
OF_CHAINS = ["checkpoint", "checkpoint(block)", "checkpoint(selective)", "checkpoint(all)",
             "recompute(attention)", "recompute([attention, feed_forward])", "recompute(norm)", "pipeline(2, parts=2)",
             "pipeline(2, parts=2, schedule=zero_bubble)", "pipeline(2, parts=2, schedule=gpipe)"]
OF_SEVERAL = ["accumulate({})", "accumulate({}, tied=apart)", "data_parallel(2)", "data_parallel(2, reduce=part)",
              "data_parallel(2) | zero(1)", "data_parallel(2) | zero(2)", "data_parallel(2) | zero(3)",
              "tensor_parallel(2)", "tensor_parallel(2, sequence=yes)"]


OTHER_FUNCTIONS = ["label_smoothing(0.2)", "z_loss(0.05)", "freeze(norm)", "freeze(embedding)", "freeze(readout)",
                   "freeze([embedding, readout])", "freeze(vector)", "freeze(matrix)", "freeze(table)", "bitfit",
                   "ema(0.5)", "ema"]
OTHER_FUNCTIONS_OF_CHAINS = ["lora(2)", "lora(3)", "layer_decay(0.5)"]


def draw_stack(r, writer):
    lists = [STACKS, OTHER_FUNCTIONS] + [OF_CHAINS] * writer.has_chain + [OF_SEVERAL] * 2 * (writer.batch > 1)
    if writer.form < 40 and writer.layers > 1:
        lists += [OTHER_FUNCTIONS_OF_CHAINS]
    items = []
    for _ in range(r.choice([0, 1, 1, 1, 2, 2, 3])):
        item = r.choice(r.choice(lists)).format(r.randint(2, writer.batch) if writer.batch > 1 else 1)
        chosen = OTHER_FUNCTIONS + OTHER_FUNCTIONS_OF_CHAINS
        if item in chosen and any(other in chosen for other in items):
            continue
        if not any(item.split("(")[0].lstrip("-") in other for other in items):
            items.append(item)
    return " | ".join(items)


class Rule:
    """Writes the text of an optimizer."""

    def __init__(self, r):
        self.random, self.boxes = r, ""

    def pick(self, items):
        return self.random.choice(items)

    def condition(self):
        ask = lambda: self.pick(["matrix(p)", "vector(p)", "table(p)", "embedding(p)", "readout(p)", "norm(p)",
                                 "rank(p) == 2", "rank(p) >= 2", "dim(p, 0) > 4", "elements(p) > 16"])
        return self.pick([ask(), ask(), f"not {ask()}", f"{ask()} and not {ask()}", f"{ask()} or {ask()}"])

    def body(self, indent):
        lines = ["state m like p" + self.pick(["", "", " = 0.1"])]
        lines.append(self.pick(["m = beta*m + (1 - beta)*g", "m = beta*m + g", "m = m + beta*(g - m)"]))
        step = self.pick(["m", "m", "g + beta*m", "m/(1 - pow(beta, step))", "m/sqrt(step)"])
        form = self.random.randrange(6)
        if form == 0:
            lines += ["state v like p", "v = share*v + (1 - share)*g*g", f"u = {step}/(sqrt(v) + eps)"]
        elif form == 1:
            lines += ["state v like p = 0.01", "v = maximum(share*v, abs(g))", f"u = {step}/(v + eps)"]
        elif form == 2:
            lines += ["state rows like mean(p, -1)", "rows = share*rows + (1 - share)*mean(g*g, -1)",
                      f"u = {step}/(sqrt(unsqueeze(rows, rank(p) - 1)) + eps)"]
        elif form == 3:
            lines.append(f"u = {step}/(sqrt(mean(m*m, -1, keep=yes)) + eps)")
        elif form == 4:
            lines.append(f"u = minimum(maximum({step}, -0.05), 0.05) + 0.1*tanh(m)")
        else:
            self.boxes = "damp x:\n  x = x/(abs(x) + 1)\n"
            lines.append(f"u = damp{self.pick(['', '^2'])}({step})")
        lines.append(self.pick(["p = p - rate*(u + decay*p)", "p = (1 - rate*decay)*p - rate*u",
                                "p = p - (rate when rank(p) > 1 else 0.5*rate)*u"]))
        return "".join(f"{indent}{line}\n" for line in lines)

    def text(self):
        rule = "optimizer mine(beta = 0.9, share = 0.8, eps = 1e-2):\n"
        if self.random.randrange(2):
            rule += self.body("  ")
        else:
            for _ in range(self.pick([1, 1, 2])):
                rule += f"  when {self.condition()}:\n" + self.body("    ")
            rule += self.pick(["  otherwise adamw\n", "  otherwise sgd\n", "  otherwise:\n" + self.body("    ")])
        return self.boxes + rule


OPTIMIZERS = ["mine"] * 4 + ["adamw"] * 4 + ["sgd", "momentum", "momentum", "lion", "adafactor", "adafactor", "muon", "muon"]


def draw_optimizer(r):
    name = r.choice(OPTIMIZERS)
    options = {"beta1": 0.9, "beta2": r.choice([0.99, 0.95]), "eps": r.choice([1e-8, 1e-4, 1e-2]),
               "momentum": r.choice([0.9, 0.5]), "weight_decay": r.choice([0.0, 0.1, 0.5]),
               "clip": r.choice([0.0, 1.0, 0.3, 0.05])}
    numbers = {}
    if r.randrange(3) == 0:
        numbers = {"lion": {"beta1": 0.8}, "adafactor": {"relative": 1.0, "clip": 0.5},
                   "muon": {"momentum": 0.5, "steps": 3.0}, "adamw": {"beta1": 0.7, "eps": 1e-3},
                   "momentum": {"momentum": 0.7}, "mine": {"beta": 0.5}}.get(name, {})
    return name, numbers, options, Rule(r).text() if name == "mine" else ""


def draw_batch(r, w, seq):
    rows = w.batch * seq
    targets = [float(-1 if r.randrange(6) == 0 else r.randrange(w.vocab)) for _ in range(rows)]
    if w.batch > 1 and r.randrange(4) == 0:
        targets[-seq:] = [-1.0] * seq
    targets[r.randrange(seq)] = float(r.randrange(w.vocab))
    made = {"tokens": ((w.batch, seq), [float(r.randrange(w.vocab)) for _ in range(rows)], True),
            "targets": ((w.batch, seq), targets, True)}
    if w.has_segments:
        ids = []
        for _ in range(w.batch):
            ends = [0.0]
            for _ in range(seq - 1):
                ends.append(ends[-1] + (r.randrange(3) == 0))
            ids += ends
        made["segments"] = ((w.batch, seq), ids, True)
    if w.has_teacher:
        made["teacher"] = ((w.batch, seq, w.vocab), [float32(r.gauss(0, 1)) for _ in range(rows * w.vocab)], False)
    return made


def case(number):
    writer = Writer(number)
    r = writer.random
    alone = not any(word in writer.stack for word in ("accumulate", "parallel", "pipeline"))
    name, numbers, options, rule = draw_optimizer(r)
    writer.asks_roles = name == "muon" or "readout" in rule + writer.stack
    text = writer.model(alone)
    seq = writer.seq or writer.context
    rates = [float32(r.choice([0.1, 1.0] if name in ("sgd", "momentum") else [0.01, 0.1])) for _ in range(2)]
    if name == "lion":
        # A gradient that is zero but for rounding has any sign; what that does to the next step shall be little.
        rates[0] = float32(1e-4)
    return Case(number, text, writer.batch, writer.seq, writer.stack, name, numbers, rule, options,
                rates, [draw_batch(r, writer, seq) for _ in range(2)])
