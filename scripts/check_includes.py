#!/usr/bin/env python3
"""Checks what the compiler does not: which room may include which, and how long a file may be (docs/design.md).

usage: scripts/check_includes.py [ROOT]
Prints each violation as file:line: what, and ends with 1 when there is one.
"""

import re
import sys
from pathlib import Path

# Room -> rooms that it may include. A room is a folder of src/, or models/ or datasets/; "main" is src/main.cpp.
ARROWS = {
    "base": "",
    "config": "base",
    "world": "base",
    "launch": "base world",
    "distributed": "base config device world",
    "metrics": "base distributed state",
    "run": "base",
    "state": "base",
    "checkpoint": "base state",
    "amp": "base device state",
    "device": "base config",
    "input": "base config",
    "optim": "base config state",
    "nn": "base config device distributed",
    "cuda": "base device",
    "reporting": "base run metrics",
    "models": "base config nn",
    "datasets": "base config input",
    "engine": "base config device world distributed nn amp optim input metrics run state checkpoint reporting models datasets",
    "commands": "base config device world launch distributed input run state checkpoint reporting datasets engine",
    "main": "base commands",
}
ROOMS = {room: set(targets.split()) | {room} for room, targets in ARROWS.items()}

# These rooms build without LibTorch: no header of theirs may reach one of torch's, by way of another room either.
TORCH_FREE = {"base", "config", "world", "launch", "run", "reporting", "datasets"}
TORCH_HEADER = re.compile(r"(torch|ATen|c10|caffe2)/")

CUDA_HEADER = re.compile(
    r"(cuda|cudnn|nccl|cublas|cufft|curand|cusolver|cusparse|cupti|nvrtc|nvml|nvToolsExt)\w*\.h"
    r"|(ATen|c10|ATen/native|torch/csrc)/(cuda|cudnn)/|torch/csrc/distributed/c10d/(NCCL|ProcessGroupNCCL)")

ENVIRONMENT_READERS = {"main", "world", "launch"}
ENVIRONMENT = re.compile(r"\b(getenv|secure_getenv|environ)\b")

REGISTRIES = {"models/registry.h", "datasets/registry.h"}
KNOWS_BOTH_REGISTRIES = re.compile(r"src/engine/(builder|registries)\w*\.(h|cpp)")

MAX_HEADER_LINES = 150
MAX_SOURCE_LINES = 400
MAX_TEST_LINES = 500

# Written by the build.
GENERATED = {"git_revision.h"}

INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')
# Comments, and string and character literals, in which words mean nothing.
NOT_CODE = re.compile(r"""
    //[^\n]*
  | /\*.*?\*/
  | R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"
  | "(?:\\.|[^"\\\n])*"
  | '(?:\\.[^'\n]*|[^'\\\n])'
""", re.DOTALL | re.VERBOSE)


def code_lines(text):
    """The lines of a source with comments and literals blanked."""
    return NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text).split("\n")


class File:
    """One source file: its path from the root, its room (None outside of the rooms) and its includes as (line, quoted, header)."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.num_lines = self.text.count("\n")
        parts = Path(path).parts
        if path == "src/main.cpp":
            self.room = "main"
        elif parts[0] == "src":
            self.room = parts[1]
        else:
            self.room = parts[0] if parts[0] in ROOMS else None
        # A quoted name would be blanked like any literal.
        uncommented = code_lines(re.sub(r'#\s*include\s*"([^"\n]+)"', r"#include <:\1>", self.text))
        self.includes = []
        for number, line in enumerate(uncommented, 1):
            match = INCLUDE.match(line)
            if match:
                self.includes.append((number, match.group(2).startswith(":"), match.group(2).lstrip(":")))


def read_sources(root):
    """Path from the root -> text, of every C++ file of the project."""
    sources = {}
    for folder in ("src", "models", "datasets", "tests", "bench"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                sources[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return sources


def own_file(files, header):
    """The project's file that an include names, or None."""
    return files.get(header if header.split("/")[0] in ("models", "datasets") else "src/" + header)


def check_length(file):
    if file.room is None:
        limit = MAX_TEST_LINES
    else:
        limit = MAX_HEADER_LINES if file.path.endswith(".h") else MAX_SOURCE_LINES
    if file.num_lines > limit:
        yield limit + 1, f"{file.num_lines} lines, at most {limit}: split it by concern"


def check_arrows(file, files):
    if file.room not in ROOMS:
        yield 1, f"the room {file.room} is not in the table of scripts/check_includes.py"
        return
    for line, quoted, header in file.includes:
        if not quoted or header in GENERATED:
            continue
        target = own_file(files, header)
        if target is None:
            yield line, f'"{header}" is no file of the project (its path begins at src/ or at the root; others go in <>)'
        elif target.room not in ROOMS[file.room]:
            allowed = ", ".join(sorted(ROOMS[file.room] - {file.room})) or "no other room"
            yield line, f"{file.room} may not include {target.room} (may: {allowed})"


def torch_path(header, quoted, files, seen):
    """The chain of includes that leads from this one to a header of torch, or None."""
    if not quoted:
        return [header] if TORCH_HEADER.match(header) else None
    target = own_file(files, header)
    if target is None or header in seen:
        return None
    seen.add(header)
    for _, inner_quoted, inner in target.includes:
        rest = torch_path(inner, inner_quoted, files, seen)
        if rest:
            return [header] + rest
    return None


def check_torch_free(file, files):
    if file.room not in TORCH_FREE:
        return
    for line, quoted, header in file.includes:
        chain = torch_path(header, quoted, files, set())
        if chain:
            yield line, f"{file.room} is built without LibTorch: {' -> '.join(chain)}"


def check_cuda(file):
    if file.room == "cuda":
        return
    for line, quoted, header in file.includes:
        if not quoted and CUDA_HEADER.match(header):
            yield line, f"only src/cuda may include <{header}>"


def check_environment(file):
    if file.room in ENVIRONMENT_READERS:
        return
    for number, line in enumerate(code_lines(file.text), 1):
        match = ENVIRONMENT.search(line)
        if match:
            yield number, f"only src/main.cpp, src/world and src/launch may read the environment ({match.group()})"


def check_registries(file):
    lines = {header: line for line, quoted, header in file.includes if quoted and header in REGISTRIES}
    if len(lines) == 2 and not KNOWS_BOTH_REGISTRIES.fullmatch(file.path):
        yield max(lines.values()), "only src/engine/builder* and src/engine/registries* may include both registries"


def violations(sources):
    """All violations in the sources (path -> text), as (path, line, what)."""
    files = {path: File(path, text) for path, text in sources.items()}
    for file in files.values():
        found = list(check_length(file))
        if file.room is not None:
            found += check_arrows(file, files)
            found += check_torch_free(file, files)
            found += check_cuda(file)
            found += check_environment(file)
            found += check_registries(file)
        for line, what in sorted(found):
            yield file.path, line, what


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(violations(read_sources(root)))
    for path, line, what in found:
        print(f"{path}:{line}: {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
