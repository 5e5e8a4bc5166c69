"""Tensors of float64 as flat lists, and reverse mode on them.

Three linear primitives carry everything that is not elementwise: `take` moves elements by a list of
indices, `fold` adds up elements that fall on one place (each is the other's transpose), and
`contract` is a product summed over letters.

Rounding can be played: inside `with rounding(bits, seed)` every result and every piece of a gradient
is off at random, by up to what rounding to so many bits would make it (Monte Carlo arithmetic:
Parker, 1997). What such runs differ by tells how far a program with float32's 24 bits may be off.
"""
import math
import random
from functools import lru_cache
from itertools import product
from operator import add, mul

_noise = None  # while rounding is played: a generator of random numbers, and how large they are


class rounding:
    """Plays rounding while it lasts."""

    def __init__(self, bits, seed):
        self.noise = random.Random(seed).random, 2.0 ** (1 - bits)

    def __enter__(self):
        global _noise
        self.before, _noise = _noise, self.noise

    def __exit__(self, *_):
        global _noise
        _noise = self.before


def rounded(data):
    if _noise is None:
        return data
    draw, unit = _noise
    return [v * (1 + (draw() - 0.5) * unit) for v in data]


def size_of(shape):
    return math.prod(shape)


def strides_of(shape):
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis], step = step, step * shape[axis]
    return strides


def places(sizes, strides, start=0):
    """The offsets of all elements of a box of these sizes, in its order."""
    offsets = [start]
    for size, stride in zip(sizes, strides):
        steps = [i * stride for i in range(size)]
        offsets = [o + s for o in offsets for s in steps]
    return offsets


class Tensor:
    """`parents` are pairs of a tensor and the function that takes the gradient of this one to a term
    of that one's. Axes have labels where a text gave them one."""

    made = 0

    def __init__(self, shape, data, parents=(), labels=None, whole=False):
        self.shape, self.data = tuple(shape), data
        self.parents = [(p, f) for p, f in parents if p.tracked]
        self.tracked = bool(self.parents)
        self.labels = list(labels) if labels else [None] * len(self.shape)
        self.whole = whole  # i32: ids, choices, positions
        Tensor.made += 1
        self.number = Tensor.made
        assert len(data) == size_of(self.shape), (self.shape, len(data))

    def labelled(self, labels):
        self.labels = list(labels)
        return self


def constant(shape, data, labels=None, whole=False):
    return Tensor(shape, list(data), labels=labels, whole=whole)


def leaf(shape, data):
    """A tensor whose gradient is asked for."""
    made = Tensor(shape, rounded(list(data)))
    made.tracked = True
    return made


def gradients(result, seed=1.0):
    """By number of tensor, the gradient of a result of one element."""
    found = {result.number: [seed]}
    nodes, waiting = {}, [result]
    while waiting:
        node = waiting.pop()
        if node.number not in nodes:
            nodes[node.number] = node
            waiting.extend(p for p, _ in node.parents)
    for number in sorted(nodes, reverse=True):
        node = nodes[number]
        if number not in found or not node.parents:
            continue
        gradient = found.pop(number)
        for parent, back in node.parents:
            term = rounded(back(gradient))
            there = found.get(parent.number)
            found[parent.number] = term if there is None else list(map(add, there, term))
    return found


# Moving and adding.

def take(x, index, shape, labels=None):
    """y[i] = x[index[i]]; nothing (0) where the index is -1."""
    data = x.data
    moved = [data[i] if i >= 0 else 0.0 for i in index]
    return Tensor(shape, moved, [(x, lambda dy: folded(dy, index, len(data)))], labels, x.whole)


def folded(data, index, count):
    sums = [0.0] * count
    for i, v in zip(index, data):
        if i >= 0:
            sums[i] += v
    return sums


def fold(x, index, shape, labels=None):
    """y[j] is the sum of x[i] over all i with index[i] = j."""
    sums = rounded(folded(x.data, index, size_of(shape)))
    return Tensor(shape, sums, [(x, lambda dy: [dy[j] if j >= 0 else 0.0 for j in index])], labels)


def reshape(x, shape, labels=None):
    return Tensor(shape, x.data, [(x, lambda dy: dy)], labels, x.whole)


@lru_cache(maxsize=4096)
def spread(shape, to):
    """Where the elements of `to` are in a tensor of `shape`, which stretches as NumPy's do."""
    lead = len(to) - len(shape)
    strides = [0] * lead + [0 if n == 1 else s for n, s in zip(shape, strides_of(shape))]
    return places(to, strides)


def broadcast_shape(a, b):
    shape = []
    for k in range(1, max(len(a), len(b)) + 1):
        m, n = a[-k] if k <= len(a) else 1, b[-k] if k <= len(b) else 1
        if m != n and 1 not in (m, n):
            raise ValueError(f"{a} and {b} do not stretch to each other")
        shape.append(n if m == 1 else m)
    return tuple(reversed(shape))


def stretched(x, shape, labels=None):
    return x if x.shape == shape else take(x, spread(x.shape, shape), shape, labels)


# Element by element.

def unary(x, function, slope):
    """`slope` is the derivative by x, as a function of x and y."""
    y = rounded([function(v) for v in x.data])
    back = lambda dy: [d * slope(v, w) for d, v, w in zip(dy, x.data, y)]
    return Tensor(x.shape, y, [(x, back)], x.labels)


def binary(a, b, function, slopes):
    """`slopes` are the derivatives by a and by b, as functions of a and b."""
    shape = broadcast_shape(a.shape, b.shape)
    labels = [None] * len(shape)
    for t in (a, b):
        for k, label in enumerate(reversed(t.labels), 1):
            if label and labels[-k] is None and t.shape[-k] == shape[-k]:
                labels[-k] = label
    a, b = stretched(a, shape), stretched(b, shape)
    y = rounded(list(map(function, a.data, b.data)))
    by = lambda slope: lambda dy: [d * slope(v, w) for d, v, w in zip(dy, a.data, b.data)]
    return Tensor(shape, y, [(a, by(slopes[0])), (b, by(slopes[1]))], labels)


def plus(a, b):
    return binary(a, b, add, (lambda v, w: 1.0, lambda v, w: 1.0))


def minus(a, b):
    return binary(a, b, lambda v, w: v - w, (lambda v, w: 1.0, lambda v, w: -1.0))


def times(a, b):
    return binary(a, b, mul, (lambda v, w: w, lambda v, w: v))


def over(a, b):
    return binary(a, b, lambda v, w: v / w, (lambda v, w: 1 / w, lambda v, w: -v / (w * w)))


def larger(a, b):
    return binary(a, b, max, (lambda v, w: float(v > w), lambda v, w: float(v <= w)))


def smaller(a, b):
    return binary(a, b, min, (lambda v, w: float(v < w), lambda v, w: float(v >= w)))


def where(condition, yes, no):
    shape = broadcast_shape(condition.shape, broadcast_shape(yes.shape, no.shape))
    mask = [condition.data[i] != 0 for i in spread(condition.shape, shape)]
    a, b = stretched(yes, shape), stretched(no, shape)
    y = [v if m else w for m, v, w in zip(mask, a.data, b.data)]
    to_a = lambda dy: [d if m else 0.0 for m, d in zip(mask, dy)]
    to_b = lambda dy: [0.0 if m else d for m, d in zip(mask, dy)]
    labels = max((condition, yes, no), key=lambda t: (t.shape == shape, len(t.shape))).labels
    return Tensor(shape, y, [(a, to_a), (b, to_b)], labels, yes.whole and no.whole)


# Along an axis.

def axis_of(x, axis):
    if isinstance(axis, str):
        return x.labels.index(axis)
    return int(axis) % len(x.shape)


def lines(shape, axis):
    """For every element, the number of its line along the axis, and its place in the line."""
    inner = size_of(shape[axis + 1:])
    numbers = [o * inner + i for o in range(size_of(shape[:axis])) for _ in range(shape[axis])
               for i in range(inner)]
    return numbers


def reduced(x, axis, keep):
    one = lambda values, unit: values[:axis] + (type(values)([unit]) if keep else type(values)()) + values[axis + 1:]
    return one(x.shape, 1), one(list(x.labels), None)


def total(x, axis=-1, keep=False):
    axis = axis_of(x, axis)
    shape, labels = reduced(x, axis, keep)
    return fold(x, lines(x.shape, axis), shape, labels)


def largest(x, axis=-1, keep=False):
    """Equal largest ones share the gradient."""
    axis = axis_of(x, axis)
    shape, labels = reduced(x, axis, keep)
    line_of, found = lines(x.shape, axis), [-math.inf] * size_of(shape)
    for line, v in zip(line_of, x.data):
        found[line] = max(found[line], v)
    sharing = [0] * len(found)
    for line, v in zip(line_of, x.data):
        sharing[line] += v == found[line]
    back = lambda dy: [dy[line] / sharing[line] if v == found[line] else 0.0 for line, v in zip(line_of, x.data)]
    return Tensor(shape, found, [(x, back)], labels)


# Products.

def contracted(a, shape_a, b, shape_b, letters_a, letters_b, out):
    """The data of the product summed over the letters that the result lacks."""
    sizes = dict(zip(letters_a, shape_a)) | dict(zip(letters_b, shape_b))
    shared = [c for c in out if c in letters_a and c in letters_b]
    rows = [c for c in out if c in letters_a and c not in letters_b]
    columns = [c for c in out if c in letters_b and c not in letters_a]
    inner = [c for c in sizes if c not in out]

    def laid_out(data, shape, letters, order):
        steps = dict(zip(letters, strides_of(shape)))
        return [data[i] for i in places([sizes[c] for c in order], [steps.get(c, 0) for c in order])]

    many, deep = size_of([sizes[c] for c in shared]), size_of([sizes[c] for c in inner])
    tall, wide = size_of([sizes[c] for c in rows]), size_of([sizes[c] for c in columns])
    left = laid_out(a, shape_a, letters_a, shared + rows + inner)
    right = laid_out(b, shape_b, letters_b, shared + columns + inner)
    found = []
    for n in range(many):
        lefts = [left[(n * tall + i) * deep:(n * tall + i + 1) * deep] for i in range(tall)]
        rights = [right[(n * wide + j) * deep:(n * wide + j + 1) * deep] for j in range(wide)]
        found.extend(sum(map(mul, u, v)) for u in lefts for v in rights)
    made = shared + rows + columns
    if made == list(out):
        return found
    steps = dict(zip(made, strides_of([sizes[c] for c in made])))
    return [found[i] for i in places([sizes[c] for c in out], [steps[c] for c in out])]


def contract(a, b, equation):
    operands, out = equation.replace(" ", "").split("->")
    one, other = operands.split(",")
    sizes = dict(zip(one, a.shape)) | dict(zip(other, b.shape))
    names = dict(zip(other, b.labels)) | dict(zip(one, a.labels))
    shape = tuple(sizes[c] for c in out)
    y = rounded(contracted(a.data, a.shape, b.data, b.shape, one, other, out))

    def back(mine, mine_shape, theirs, theirs_letters):
        # Letters that only this operand has were summed by themselves: each gets the same.
        known = "".join(c for c in mine if c in out or c in theirs_letters)

        def gradient(dy):
            part = contracted(dy, shape, theirs.data, theirs.shape, out, theirs_letters, known)
            steps = dict(zip(known, strides_of([sizes[c] for c in known])))
            return [part[i] for i in places(mine_shape, [steps.get(c, 0) for c in mine])]
        return gradient

    return Tensor(shape, y, [(a, back(one, a.shape, b, other)), (b, back(other, b.shape, a, one))],
                  [names[c] for c in out])
