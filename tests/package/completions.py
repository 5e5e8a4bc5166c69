#!/usr/bin/env python3
"""Presses TAB in real shells with the completions that `adjoint completions` prints: completions.py ADJOINT.

A shell that is not installed is skipped, and said to be. bash and zsh run on a terminal of their own; a key that they are
given writes the line as it is after the TAB into a file, so nothing here waits by the clock. fish answers by itself.
"""
import os
import pathlib
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time

# What is typed before the TAB, and the line behind it.
TYPED = [
    ("adjoint trai", "adjoint train "),
    ("adjoint bench ste", "adjoint bench step "),
    ("adjoint train --stop-", "adjoint train --stop-after "),
    ("adjoint plan --model gpt3", "adjoint plan --model gpt3-175b "),
    ("adjoint train --packing wind", "adjoint train --packing windows "),
    ("adjoint train --packing=wind", "adjoint train --packing=windows "),
    ("adjoint train --device cu", "adjoint train --device cuda "),
    ("adjoint plan --device rtx", "adjoint plan --device rtx4090 "),
    ("adjoint show --optimizer adam", "adjoint show --optimizer adamw "),
    ("adjoint train --stack checkp", "adjoint train --stack checkpoint "),
    ('adjoint train --stack "bf16 | checkp', 'adjoint train --stack "bf16 | checkpoint" '),
    ("adjoint train --data boo", "adjoint train --data book.txt "),
    ("adjoint train --config=boo", "adjoint train --config=book.txt "),
    ("adjoint convert run", "adjoint convert runs/"),
    ("adjoint train --init run", "adjoint train --init runs/"),
    ("adjoint train --model gpt2 --set lay", "adjoint train --model gpt2 --set layers="),
    ("adjoint launch -n 2 -- train --warm", "adjoint launch -n 2 -- train --warmup "),
    ("adjoint completions fi", "adjoint completions fish "),
    ("adjoint train --no-such-fl", "adjoint train --no-such-fl"),
]

BASH = """
PS1='$ '
bind 'set bell-style none'
dump() { printf %s "$READLINE_LINE" >line.part && mv line.part line; }
bind -x '"\\C-g": dump'
source completions
: >ready
"""
ZSH = """
PS1='$ '
autoload -Uz compinit && compinit -u -d zcompdump
zstyle ':completion:*' accept-exact false
unsetopt BEEP AUTO_LIST
dump() { print -rn -- "$BUFFER" >line.part && mv line.part line; BUFFER= }
zle -N dump
bindkey '^G' dump
bindkey '^I' complete-word
source ./completions
: >ready
"""


class Terminal:
    """A shell that reads what is sent to it as from a keyboard."""

    def __init__(self, words, folder, environment):
        self.folder = folder
        self.child, self.end = pty.fork()
        if self.child == 0:
            os.chdir(folder)
            os.execvpe(words[0], words, environment)

    def send(self, text):
        os.write(self.end, text.encode())

    def wait_for(self, name):
        path = self.folder / name
        shown = b""
        until = time.monotonic() + 30
        while not path.exists():
            if select.select([self.end], [], [], 0.01)[0]:
                shown += os.read(self.end, 65536)
            if time.monotonic() > until:
                sys.exit(f"the shell showed no '{name}' within 30 s, but: {shown.decode(errors='replace')}")
        text = path.read_text()
        path.unlink()
        return text

    def close(self):
        os.close(self.end)
        os.waitpid(self.child, 0)


def typed_in(shell, folder, environment):
    script, words = (BASH, ["bash", "--norc", "--noprofile", "-i"]) if shell == "bash" else (ZSH, ["zsh", "-f", "-i"])
    (folder / "begin").write_text(script)
    terminal = Terminal(words, folder, environment)
    terminal.send(" . ./begin\r")
    terminal.wait_for("ready")
    answers = []
    for text, _ in TYPED:
        terminal.send(text + "\t\x07")  # TAB, and the key that tells the line
        answers.append(terminal.wait_for("line"))
        if shell == "bash":
            terminal.send("\x05\x15")  # the line is emptied
    terminal.close()
    return answers


def asked_of_fish(folder, environment):
    answers = []
    for text, _ in TYPED:
        told = subprocess.run(["fish", "--no-config", "-c", 'source completions; complete -C "$argv"', "--", text],
                              cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
        words = [line.split("\t")[0] for line in told.splitlines()]
        quote = '"' if '"' in text else ""
        begin = text.index(quote) if quote else text.rindex(" ") + 1
        # fish puts in what all of its answers begin with, and a space behind a word that is whole
        common = os.path.commonprefix(words) or text[begin:]
        whole = len(words) == 1 and common[-1] not in "=/"
        answers.append(text[:begin] + common + (quote + " " if whole else ""))
    return answers


def main():
    adjoint = pathlib.Path(sys.argv[1]).resolve()
    environment = {"PATH": f"{adjoint.parent}:{os.environ['PATH']}", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    failures = 0
    for shell in ["bash", "zsh", "fish"]:
        if not shutil.which(shell):
            print(f"{shell}: skipped, because it is not installed")
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            environment["HOME"] = name
            (folder / "book.txt").write_text("a text")
            (folder / "runs").mkdir()
            script = subprocess.run([adjoint, "completions", shell], capture_output=True, text=True, check=True).stdout
            (folder / "completions").write_text(script)
            answers = asked_of_fish(folder, environment) if shell == "fish" else typed_in(shell, folder, environment)
        for (text, wanted), answer in zip(TYPED, answers):
            if answer != wanted:
                print(f"{shell}: '{text}' became '{answer}', wanted '{wanted}'")
                failures += 1
        print(f"{shell}: {len(TYPED)} lines completed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
