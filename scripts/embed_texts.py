#!/usr/bin/env python3
"""Writes a C++ file that holds text files as (name, text) pairs:
embed_texts.py OUT HEADER TYPE FUNCTION FILE..."""
import pathlib
import sys

out, header, kind, function = sys.argv[1:5]
files = [pathlib.Path(p) for p in sys.argv[5:]]
rows = "".join(f'    {{"{f.name}", R"text({f.read_text()})text"}},\n' for f in sorted(files))
pathlib.Path(out).write_text(
    f'#include "{header}"\n\n'
    "namespace adjoint {\n"
    f"std::span<const {kind}> {function}() {{\n"
    f"  static const {kind} texts[] = {{\n" + rows + "  };\n"
    "  return texts;\n"
    "}\n"
    "}  // namespace adjoint\n"
)
