"""What functors of a stack make of a step that is another function: a few of those that come with
Adjoint, as their texts say it (`adjoint functors`). All others leave the function as it is.

The chain of blocks is the box `block`, repeated.
"""
import re


def number_in(text, name, default):
    found = re.search(rf"\b{name}=([0-9.e-]+)|\(([0-9.e-]+)\)", text)
    return float(found.group(1) or found.group(2)) if found else default


def block_of(path):
    found = re.match(r"block\[(\d+)\]", path)
    return int(found.group(1)) if found else None


class Functors:
    def __init__(self, stack):
        self.items = {item.strip().split("(")[0]: item.strip() for item in stack.split(" | ")}

    def says(self, name, argument, default):
        return number_in(self.items[name], argument, default) if name in self.items else None

    def loss(self, smoothing, z):
        share = self.says("label_smoothing", "e", 0.1)
        if share is not None:
            smoothing = 1 - (1 - share) * (1 - smoothing)
        return smoothing, z + (self.says("z_loss", "weight", 1e-4) or 0.0)

    def adapter(self, path):
        """Of a linear map, the rank of what is added to it, and by what that is scaled."""
        rank = self.says("lora", "rank", 16)
        return (round(rank), 2.0) if rank and block_of(path) is not None else None

    def freezes(self, path, facts, frozen):
        """Whether a parameter is frozen; `frozen` is what the model's text says."""
        if "bitfit" in self.items:
            return not facts.vector()
        if frozen:
            return True
        if "lora" in self.items:
            return ".lora_" not in path
        if "freeze" not in self.items:
            return False
        words = re.findall(r"\w+", self.items["freeze"])[1:]
        # What has several uses is frozen where all are named.
        uses = {word for word in ("embedding", "readout", "norm") if getattr(facts, word)()}
        return any(getattr(facts, w)() for w in words if w in ("matrix", "table", "vector")) or \
            bool(uses) and uses <= set(words)

    def rate(self, path, facts, rate, blocks):
        factor = self.says("layer_decay", "factor", 0.9)
        if factor is None:
            return rate
        if block_of(path) is not None:
            return rate * factor ** (blocks - block_of(path))
        return rate * factor ** (blocks + 1) if facts.embedding() and not facts.readout() else rate

    def follow(self, average, parameter, steps):
        """What `ema` keeps, after another step."""
        keep = self.says("ema", "decay", 0.999)
        if keep is None:
            return None
        old = min(steps / (steps + 1), keep)
        return [old * a + (1 - old) * p for a, p in zip(average or parameter, parameter)]
