"""What every op and word of the notation means, as docs/notation.md and `adjoint ops` say it. The
arguments of a function here are those of the call in a text; an annotation tells how one is read.
"""
import builtins
import math
from functools import lru_cache
from math import sqrt

import tensor
from tensor import Tensor, axis_of, constant, contract, places, reshape, size_of, strides_of, take, unary

OPS = {}


def op(function):
    OPS[function.__name__.rstrip("_")] = function
    return function


def as_object(value):
    return constant((), [float(value)]) if isinstance(value, (int, float)) else value


def scaled(x, by, add=0.0):
    return unary(x, lambda v: v * by + add, lambda v, y: by)


# Linear maps and norms.

@op
def linear(call, x, out, bias: "flag" = True, init: "init" = ("normal", 0.02), weight: "word" = None):
    out = round(out)
    shape = (out, x.shape[-1])
    matrix = (call.shared_weight(weight, shape, "matrix") if weight
              else call.parameter("weight", shape, init, "matrix"))
    letters = "abcdefgh"[:len(x.shape) - 1]
    y = contract(x, matrix, f"{letters}i,oi->{letters}o").labelled(x.labels[:-1] + [None])
    made_by = [matrix]
    if bias:
        made_by.append(call.parameter("bias", (out,), ("zeros",)))
        y = tensor.plus(y, made_by[1])
    call.interpreter.made_by[y.number] = made_by
    adapter = call.interpreter.functors.adapter(call.own)
    if adapter:
        rank, scale = adapter
        a, b = (call.interpreter.parameter(f"{call.own}.{name}.weight", sizes, begin, False, "matrix")
                for name, sizes, begin in (("lora_a", (rank, shape[1]), ("uniform", 1 / sqrt(shape[1]))),
                                           ("lora_b", (out, rank), ("zeros",))))
        thin = contract(contract(x, a, f"{letters}i,ri->{letters}r"), b, f"{letters}r,or->{letters}o")
        y = tensor.plus(y, scaled(thin, scale))
    return y


@op
def embed(call, ids, rows, width=None, init: "init" = ("normal", 0.02)):
    width = round(call.settings["hidden"] if width is None else width)
    table = call.parameter("weight", (round(rows), width), init, "table")
    index = [int(i) * width + k for i in ids.data for k in range(width)]
    return take(table, index, ids.shape + (width,), ids.labels + ["hidden"])


def mean_square(x):
    return scaled(tensor.total(tensor.times(x, x), -1, True), 1 / x.shape[-1])


def inverse_root(x, eps):
    return unary(x, lambda v: 1 / sqrt(v + eps), lambda v, y: -0.5 * y / (v + eps))


@op
def rms_norm(call, x, eps=1e-5, offset=0.0):
    weight = call.parameter("weight", x.shape[-1:], ("constant", 1.0 - offset), "norm")
    n = tensor.times(x, inverse_root(mean_square(x), eps))
    return tensor.times(n, scaled(weight, 1.0, offset)).labelled(x.labels)


@op
def layer_norm(call, x, bias: "flag" = True, eps=1e-5):
    centred = tensor.minus(x, mean(call, x, -1, True))
    n = tensor.times(centred, inverse_root(mean_square(centred), eps))
    y = tensor.times(n, call.parameter("weight", x.shape[-1:], ("ones",), "norm"))
    if bias:
        y = tensor.plus(y, call.parameter("bias", x.shape[-1:], ("zeros",), "norm"))
    return y.labelled(x.labels)


# Element by element.

def elementwise(name, function, slope):
    OPS[name] = lambda call, x: unary(x, function, slope)


def sigmoid(v):
    return 1 / (1 + math.exp(-v)) if v >= 0 else math.exp(v) / (1 + math.exp(v))


elementwise("silu", lambda v: v * sigmoid(v), lambda v, y: sigmoid(v) * (1 + v * (1 - sigmoid(v))))
elementwise("relu", lambda v: max(v, 0.0), lambda v, y: float(v > 0))
elementwise("sigmoid", sigmoid, lambda v, y: y * (1 - y))
elementwise("tanh", math.tanh, lambda v, y: 1 - y * y)
elementwise("exp", math.exp, lambda v, y: y)
elementwise("log", math.log, lambda v, y: 1 / v)
elementwise("sqrt", sqrt, lambda v, y: 0.5 / y)
elementwise("sin", math.sin, lambda v, y: math.cos(v))
elementwise("cos", math.cos, lambda v, y: -math.sin(v))
elementwise("abs", abs, lambda v, y: float(v > 0) - float(v < 0))
elementwise("sign", lambda v: float(v > 0) - float(v < 0), lambda v, y: 0.0)


@op
def gelu(call, x, approximate: "word" = "tanh"):
    if approximate != "tanh":
        share = lambda v: 0.5 * (1 + math.erf(v / sqrt(2)))
        return unary(x, lambda v: v * share(v),
                     lambda v, y: share(v) + v * math.exp(-v * v / 2) / sqrt(2 * math.pi))
    bent = lambda v: math.tanh(sqrt(2 / math.pi) * (v + 0.044715 * v**3))
    return unary(x, lambda v: 0.5 * v * (1 + bent(v)),
                 lambda v, y: 0.5 * (1 + bent(v)) + 0.5 * v * (1 - bent(v)**2) * sqrt(2 / math.pi)
                 * (1 + 3 * 0.044715 * v * v))


@op
def pow(call, x, power):
    if isinstance(x, Tensor):
        return unary(x, lambda v: v**power, lambda v, y: power * v**(power - 1) if power else 0.0)
    return unary(power, lambda v: x**v, lambda v, y: y * math.log(x))


@op
def maximum(call, a, b):
    return tensor.larger(as_object(a), as_object(b))


@op
def minimum(call, a, b):
    return tensor.smaller(as_object(a), as_object(b))


@op
def where(call, condition, yes, no):
    return tensor.where(as_object(condition), as_object(yes), as_object(no))


@op
def dropout(call, x, rate=0.1):
    assert rate == 0, "nobody can judge what is random"
    return x


@op
def softmax(call, x, causal: "flag" = False):
    if causal:
        i, j = index(call, x, -2), index(call, x, -1)
        seen = tensor.binary(i, j, lambda v, w: float(v >= w), (lambda v, w: 0.0,) * 2)
        x = tensor.where(seen, x, as_object(-1e300))
    top = constant(x.shape[:-1] + (1,), tensor.largest(x, -1, True).data)
    e = OPS["exp"](call, tensor.minus(x, top))
    return tensor.over(e, tensor.total(e, -1, True)).labelled(x.labels)


# Shapes.

@op
def sum(call, x, axis: "axis" = -1, keep: "flag" = False):
    return tensor.total(x, axis, bool(keep))


@op
def mean(call, x, axis: "axis" = -1, keep: "flag" = False):
    return scaled(tensor.total(x, axis, bool(keep)), 1 / x.shape[axis_of(x, axis)])


@op
def max_(call, x, axis: "axis" = -1, keep: "flag" = False):
    return tensor.largest(x, axis, bool(keep))


@op
def split(call, x, parts):
    parts = round(parts)
    shape = x.shape[:-1] + (parts, x.shape[-1] // parts)
    heads = [name for name in ("heads", "kv_heads") if call.settings.get(name) == parts]
    return reshape(x, shape, x.labels[:-1] + [heads[0] if heads else None, None])


@op
def merge(call, x):
    return reshape(x, x.shape[:-2] + (x.shape[-2] * x.shape[-1],), x.labels[:-2] + [None])


@lru_cache(maxsize=4096)
def run_along(shape, axis, by, size):
    """Where the elements of an axis of another size come from, that of the operand from `by` on."""
    inner, there, index = size_of(shape[axis + 1:]), shape[axis], []
    for outer in range(size_of(shape[:axis])):
        for i in range(size):
            begin = (outer * there + i - by) * inner
            index.extend(range(begin, begin + inner) if 0 <= i - by < there else [-1] * inner)
    return index


def shifted(x, axis, by, size, fill=0.0):
    index = run_along(x.shape, axis, by, size)
    y = take(x, index, x.shape[:axis] + (size,) + x.shape[axis + 1:], x.labels)
    if fill:
        y.data = [fill if i < 0 else v for i, v in zip(index, y.data)]
    return y


@op
def slice(call, x, start, size, axis: "axis" = -1):
    return shifted(x, axis_of(x, axis), -round(start), round(size))


@op
def pad(call, x, start, size, axis: "axis" = -1):
    return shifted(x, axis_of(x, axis), round(start), round(size))


@op
def shift(call, x, by, axis: "axis" = 1, fill=0.0):
    axis = axis_of(x, axis)
    return shifted(x, axis, round(by), x.shape[axis], fill)


@op
def concat(call, *xs, axis: "axis" = -1):
    xs = xs[0] if isinstance(xs[0], list) else xs
    axis, start, y = axis_of(xs[0], axis), 0, None
    size = builtins.sum(x.shape[axis] for x in xs)
    for x in xs:
        piece = shifted(x, axis, start, size)
        start += x.shape[axis]
        y = piece if y is None else tensor.plus(y, piece)
    return y


@op
def transpose(call, x, a: "axis" = -2, b: "axis" = -1):
    a, b = axis_of(x, a), axis_of(x, b)
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    steps = strides_of(x.shape)
    shape = tuple(x.shape[k] for k in order)
    return take(x, places(shape, [steps[k] for k in order]), shape, [x.labels[k] for k in order])


@op
def squeeze(call, x, axis: "axis"):
    axis = axis_of(x, axis)
    assert x.shape[axis] == 1
    return reshape(x, x.shape[:axis] + x.shape[axis + 1:], x.labels[:axis] + x.labels[axis + 1:])


@op
def unsqueeze(call, x, axis):
    axis = round(axis) % (len(x.shape) + 1)
    return reshape(x, x.shape[:axis] + (1,) + x.shape[axis:], x.labels[:axis] + [None] + x.labels[axis:])


@op
def stretch(call, x, size, axis: "axis"):
    axis = axis_of(x, axis)
    return tensor.stretched(x, x.shape[:axis] + (round(size),) + x.shape[axis + 1:], x.labels)


@op
def conv(call, x, width, init: "init" = ("uniform", 0.5), bias: "flag" = False):
    width, channels = round(width), x.shape[-1]
    weight, y = call.parameter("weight", (width, channels), init), None
    for back in range(width):
        tap = take(weight, [back * channels + c for c in range(channels)], (channels,))
        term = tensor.times(shifted(x, 1, back, x.shape[1]), tap)
        y = term if y is None else tensor.plus(y, term)
    if bias:
        y = tensor.plus(y, call.parameter("bias", (channels,), ("zeros",)))
    return y.labelled(x.labels)


@op
def gather(call, x, ids):
    width, many = x.shape[-1], ids.shape[-1]
    index = [n // many * width + int(i) for n, i in enumerate(ids.data)]
    return take(x, index, ids.shape, x.labels[:-1] + [None])


@op
def top_k(call, scores, k):
    k, width, found = round(k), scores.shape[-1], []
    for at in range(0, len(scores.data), width):
        row = scores.data[at:at + width]
        found.extend(map(float, sorted(range(width), key=lambda i: (-row[i], i))[:k]))
    return constant(scores.shape[:-1] + (k,), found, scores.labels[:-1] + [None], whole=True)


@op
def index(call, x, axis: "axis"):
    axis = axis_of(x, axis)
    shape = tuple(n if k == axis else 1 for k, n in enumerate(x.shape))
    return constant(shape, map(float, range(x.shape[axis])), whole=True)


@op
def contract_(call, a, b, equation):
    for operand in (a, b):
        call.interpreter.note_use(operand, "matrix")
    return contract(a, b, equation)


@op
def route(call, scores, choice):
    chosen = [-1e300] * len(scores.data)
    width, many = scores.shape[-1], choice.shape[-1]
    for n, i in enumerate(choice.data):
        chosen[n // many * width + int(i)] = 0.0
    hidden = constant(scores.shape, [float(c != 0) for c in chosen])
    return softmax(call, tensor.where(hidden, as_object(-1e300), scores))


@op
def reverse(call, items):
    return items[::-1]


@op
def item(call, items, number):
    return items[round(number)]


OPS["param"] = None  # the interpreter's own


# Attention.

def angles(positions, pairs, base, scaling, factor, low, high, fast, slow, original):
    """Per pair its frequency, stretched, and by what all lengths are multiplied."""
    found, length = [], 1.0
    for i in range(pairs):
        frequency = base ** (-i / pairs)
        wave = 2 * math.pi / frequency
        if scaling == "linear":
            frequency /= factor
        elif scaling == "llama3":
            smooth = (original / wave - low) / (high - low)
            smooth = min(max(smooth, 0.0), 1.0)
            frequency = (1 - smooth) * frequency / factor + smooth * frequency
        elif scaling == "yarn":
            where = lambda turns: pairs * math.log(original / (turns * 2 * math.pi)) / math.log(base)
            first, last = max(math.floor(where(fast)), 0), min(math.ceil(where(slow)), 2 * pairs - 1)
            ramp = min(max((i - first) / max(last - first, 1e-3), 0.0), 1.0)
            frequency = frequency / factor * ramp + frequency * (1 - ramp)
        found.append(frequency)
    if scaling == "yarn":
        length = 0.1 * math.log(factor) + 1
    return found, length


@op
def rotary(call, x, heads, base=10000.0, dims=None, scaling: "word" = None, factor=1.0, low=1.0, high=4.0,
           fast=32.0, slow=1.0, original=8192.0):
    batch, seq, width = x.shape
    heads = round(heads)
    size = width // heads
    turned = size if dims is None else round(dims)
    pairs = turned // 2
    frequencies, length = angles(seq, pairs, base, scaling, factor, low, high, fast, slow, original)
    cosines, sines, partner = [], [], []
    for t in range(seq):
        for k in range(size):
            angle = t * frequencies[k % pairs] if k < turned else 0.0
            scale = length if k < turned else 1.0
            cosines.append(math.cos(angle) * scale)
            sines.append(math.sin(angle) * scale * (0 if k >= turned else -1 if k < pairs else 1))
    shape = (1, seq, 1, size)
    y = reshape(x, (batch, seq, heads, size))

    index = [at - at % size + (at % size + pairs) % turned if at % size < turned else at
             for at in range(len(y.data))]
    swapped = take(y, index, y.shape)
    y = tensor.plus(tensor.times(y, constant(shape, cosines)), tensor.times(swapped, constant(shape, sines)))
    return reshape(y, x.shape, x.labels)


def slopes(heads):
    """ALiBi's (Press et al., 2022): of a number of heads that is no power of two, those of the next
    smaller power, and every other one of the next larger."""
    power = 2 ** math.floor(math.log2(heads))
    found = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return found + [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]


@op
def attention(call, q, heads, causal: "flag" = True, k=None, v=None, kv_heads=None, window=0.0, scale=0.0,
              cap=0.0, alibi: "flag" = False, bias=None, sinks=None, segments=None, dropout=0.0):
    assert dropout == 0
    heads = round(heads)
    kv_heads = round(kv_heads or heads)
    batch, seq = q.shape[:2]
    if k is None:
        size = q.shape[2] // (heads + 2 * kv_heads)
        first, second = heads * size, (heads + kv_heads) * size
        q, k, v = (shifted(q, 2, -a, b - a)
                   for a, b in ((0, first), (first, second), (second, second + kv_heads * size)))
    size, value_size, group = q.shape[2] // heads, v.shape[2] // kv_heads, heads // kv_heads
    q = reshape(q, (batch, seq, kv_heads, group, size))
    k, v = reshape(k, (batch, seq, kv_heads, size)), reshape(v, (batch, seq, kv_heads, value_size))
    scores = scaled(contract(q, k, "bskgd,btkd->bkgst"), scale or 1 / sqrt(size))
    if cap:
        scores = scaled(OPS["tanh"](call, scaled(scores, 1 / cap)), cap)
    distance = [[s - t for t in range(seq)] for s in range(seq)]
    if alibi:
        bent = [-slope * abs(d) for slope in slopes(heads) for row in distance for d in row]
        scores = tensor.plus(scores, constant((1, kv_heads, group, seq, seq), bent))
    if bias is not None:
        last = bias.shape[1] - 1
        index = [h * (last + 1) + min(abs(d), last) for h in range(heads) for row in distance for d in row]
        scores = tensor.plus(scores, take(bias, index, (1, kv_heads, group, seq, seq)))
    seen = []
    for b in range(batch):
        for s in range(seq):
            for t in range(seq):
                same = segments is None or segments.data[b * seq + s] == segments.data[b * seq + t]
                near = not window or abs(s - t) < window
                seen.append(float(same and near and (t <= s or not causal)))
    scores = tensor.where(constant((batch, 1, 1, seq, seq), seen), scores, as_object(-1e300))
    if sinks is not None:
        sink = tensor.stretched(reshape(sinks, (1, kv_heads, group, 1, 1)), (batch, kv_heads, group, seq, 1))
        scores = tensor.plus(shifted(scores, 4, 0, seq + 1), shifted(sink, 4, seq, seq + 1))
    p = softmax(call, scores)
    if sinks is not None:
        p = shifted(p, 4, 0, seq)
    y = contract(p, v, "bkgst,btkd->bskgd")
    return reshape(y, (batch, seq, heads * value_size), ["batch", "seq", None])


# Experts.

@op
def expert_linear(call, x, choice, experts, out, bias: "flag" = False, sum: "flag" = False,
                  init: "init" = ("normal", 0.02)):
    experts, out, wide = round(experts), round(out), x.shape[-1]
    weight = call.parameter("weight", (experts, out, wide), init, "matrix")
    many = out * wide
    chosen = take(weight, [int(c) * many + i for c in choice.data for i in range(many)],
                  choice.shape + (out, wide))
    y = contract(x, chosen, "bski,bskoi->bsko" if len(x.shape) == 4 else "bsi,bskoi->bsko")
    if bias:
        table = call.parameter("bias", (experts, out), ("zeros",))
        y = tensor.plus(y, take(table, [int(c) * out + i for c in choice.data for i in range(out)], y.shape))
    y.labels = x.labels[:2] + [None, None]
    return tensor.total(y, 2) if sum else y


@op
def balance_loss(call, probabilities, choice, targets=None, ignore=-1.0, over: "word" = "sequence"):
    batch, seq, experts = probabilities.shape
    active = choice.shape[-1]
    counts = [targets is None or t != ignore for t in (targets.data if targets else [0] * (batch * seq))]
    rows = [range(b * seq, (b + 1) * seq) for b in range(batch)]
    if over == "batch":
        rows = [range(batch * seq)]
    found, counted = None, 0
    for group in rows:
        group = [r for r in group if counts[r]]
        if not group:
            continue
        counted += 1
        share = [0.0] * experts
        for r in group:
            for c in choice.data[r * active:(r + 1) * active]:
                share[int(c)] += 1 / (len(group) * active)
        weights = constant((len(group), experts), [experts * f / len(group) for _ in group for f in share])
        part = take(probabilities, [r * experts + e for r in group for e in range(experts)], (len(group), experts))
        term = tensor.total(reshape(tensor.times(part, weights), (len(group) * experts,)))
        found = term if found is None else tensor.plus(found, term)
    return as_loss(scaled(found, 1 / counted) if found else as_object(0.0))


# Losses.

def as_loss(mean):
    mean.is_loss = True
    return mean


def added_loss(a, b):
    return as_loss(tensor.plus(a, b))


def mean_over(values, targets, ignore):
    counted = [float(t != ignore) for t in targets.data]
    share = constant(values.shape, [c / (builtins.sum(counted) or 1) for c in counted])
    return as_loss(tensor.total(reshape(tensor.times(values, share), (len(counted),))))


@op
def average(call, values, targets, ignore=-1.0):
    return mean_over(values, targets, ignore)


@op
def cross_entropy(call, logits, targets, ignore=-1.0, smoothing=0.0, z=0.0, cap=0.0):
    for parameter in call.interpreter.made_by.get(logits.number, []):
        call.interpreter.note_use(parameter, "readout")
    smoothing, z = call.interpreter.functors.loss(smoothing, z)
    if cap:
        logits = scaled(OPS["tanh"](call, scaled(logits, 1 / cap)), cap)
    width = logits.shape[-1]
    top = constant(logits.shape[:-1] + (1,), tensor.largest(logits, -1, True).data)
    e = tensor.total(OPS["exp"](call, tensor.minus(logits, top)), -1, True)
    log_sum = tensor.plus(OPS["log"](call, e), top)
    surprise = tensor.minus(log_sum, logits)
    index = [n * width + int(t) if t != ignore else -1 for n, t in enumerate(targets.data)]
    values = take(surprise, index, targets.shape)
    if smoothing:
        values = tensor.plus(scaled(values, 1 - smoothing), scaled(mean(call, surprise, -1), smoothing))
    if z:
        squared = reshape(tensor.times(log_sum, log_sum), targets.shape)
        values = tensor.plus(values, scaled(squared, z))
    return mean_over(values, targets, ignore)
