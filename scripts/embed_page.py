#!/usr/bin/env python3
"""Writes a C++ file that holds the files of the studio's page, compressed: embed_page.py OUT FOLDER.

A folder that is missing is a page without files. Bytes are string literals, which a compiler reads much faster than lists
of numbers.
"""
import gzip
import os
import pathlib
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".wasm": "application/wasm",
    ".txt": "text/plain; charset=utf-8",
}


def literal(data: bytes) -> str:
    # Octal escapes have three digits at most, so none swallows what follows.
    text = "".join(f"\\{byte:03o}" for byte in data)
    return "\n".join(f'        "{text[i:i + 4000]}"' for i in range(0, len(text), 4000)) or '        ""'


def main() -> None:
    out, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    rows = []
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if not path.is_file() or path.suffix == ".map":
            continue
        data = gzip.compress(path.read_bytes(), mtime=0)
        name = path.relative_to(folder).as_posix()
        kind = TYPES.get(path.suffix, "application/octet-stream")
        rows.append(f'    {{"{name}", "{kind}", std::string_view(\n{literal(data)},\n        {len(data)})}},\n')
    count = max(len(rows), 1)
    part = out.with_name(out.name + ".part")
    part.write_text(
        '#include "studio/page.h"\n\n'
        "namespace adjoint {\n"
        "std::span<const PageFile> page_files() {\n"
        f"  static const PageFile files[{count}] = {{\n" + "".join(rows) + "  };\n"
        f"  return std::span(files).first({len(rows)});\n"
        "}\n"
        "}  // namespace adjoint\n"
    )
    os.replace(part, out)


if __name__ == "__main__":
    main()
