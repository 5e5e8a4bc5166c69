#!/usr/bin/env python3
"""Writes a C++ file that holds text files as (name, text) pairs: embed_texts.py OUT FILE..."""
import pathlib
import sys

out, files = sys.argv[1], [pathlib.Path(p) for p in sys.argv[2:]]
rows = "".join(f'    {{"{f.name}", R"scheme({f.read_text()})scheme"}},\n' for f in sorted(files))
pathlib.Path(out).write_text(
    '#include "models/library.h"\n\n'
    "namespace adjoint {\n"
    "std::span<const LibraryText> library_texts() {\n"
    "  static const LibraryText texts[] = {\n" + rows + "  };\n"
    "  return texts;\n"
    "}\n"
    "}  // namespace adjoint\n"
)
