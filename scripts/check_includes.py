#!/usr/bin/env python3
"""Checks what the compiler does not: which module may include which, and how long a file may be (docs/design.md).

usage: scripts/check_includes.py [--write] [ROOT]
Prints each violation as file:line: what, and exits with 1 when there is one. A module may include the headers of the modules that its LINKS
name: the calls of trainer_module in the CMakeLists.txt of src/, models/ and datasets/ are the one place where that is written.
  --write   first writes the table of modules in docs/design.md anew
"""

import re
import sys
from pathlib import Path

MODULE_LISTS = ("src/CMakeLists.txt", "models/CMakeLists.txt", "datasets/CMakeLists.txt")
MODULE = re.compile(r"\btrainer_module\(\s*(?P<name>\w+)(?P<arguments>[^)]*)\)")
# The executable, which is src/main.cpp, and the shared library of src/cuda are no modules of trainer_module.
OTHER_TARGETS = {"trainer": "main", "trainer_cuda": "cuda"}
LINKS_OF_OTHERS = re.compile(r"\btarget_link_libraries\(\s*(?P<name>trainer|trainer_cuda) (?P<arguments>[^)]*)\)")

DESIGN = "docs/design.md"
TABLE_BEGIN = "<!-- modules and what they may include: written by scripts/check_includes.py --write -->"
TABLE_END = "<!-- end of that table -->"

TORCH_HEADER = re.compile(r"(torch|ATen|c10|caffe2)/")

CUDA_HEADER = re.compile(
    r"(cuda|cudnn|nccl|cublas|cufft|curand|cusolver|cusparse|cupti|nvrtc|nvml|nvToolsExt)\w*\.h"
    r"|(ATen|c10|ATen/native|torch/csrc)/(cuda|cudnn)/|torch/csrc/distributed/c10d/(NCCL|ProcessGroupNCCL)")

ENVIRONMENT_READERS = {"main", "world", "launch"}
ENVIRONMENT = re.compile(r"\b(getenv|secure_getenv|environ)\b")

REGISTRIES = {"models/registry.h", "datasets/registry.h"}
KNOWS_BOTH_REGISTRIES = re.compile(r"src/session/(network|registries)\w*\.(h|cpp)")

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


class Module:
    """A folder of sources: the modules whose headers it may include, in the order of its LINKS, and whether it is built with LibTorch."""

    def __init__(self, arguments, names):
        links = arguments[arguments.index("LINKS") + 1:] if "LINKS" in arguments else arguments if "PRIVATE" in arguments else []
        targets = (link.removeprefix("trainer_").removesuffix("_headers") for link in links if link.startswith("trainer_"))
        self.links = [target for target in targets if target in names]
        self.with_torch = "TORCH" in arguments or "torch::cuda" in arguments


def read_modules(lists):
    """Name -> Module, from the texts of the CMakeLists.txt."""
    text = re.sub(r"#[^\n]*", "", "\n".join(lists))
    arguments = {match["name"]: match["arguments"].split() for match in MODULE.finditer(text)}
    for match in LINKS_OF_OTHERS.finditer(text):
        arguments[OTHER_TARGETS[match["name"]]] = match["arguments"].split()
    return {name: Module(words, arguments.keys()) for name, words in arguments.items()}


class File:
    """One source file: its path from the root, its module (None where it belongs to none) and its includes as (line, quoted, header)."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.num_lines = self.text.count("\n")
        parts = Path(path).parts
        if path == "src/main.cpp":
            self.module = "main"
        elif parts[0] == "src":
            self.module = parts[1]
        else:
            self.module = parts[0] if parts[0] in ("models", "datasets") else None
        # A quoted name would be blanked like any literal.
        uncommented = code_lines(re.sub(r'#\s*include\s*"([^"\n]+)"', r"#include <:\1>", self.text))
        self.includes = []
        for number, line in enumerate(uncommented, 1):
            match = INCLUDE.match(line)
            if match:
                self.includes.append((number, match.group(2).startswith(":"), match.group(2).lstrip(":")))


def read_texts(root):
    """Path from the root -> text, of every C++ file of the project, of the lists of its modules and of the page with their table."""
    paths = [root / path for path in (*MODULE_LISTS, DESIGN)]
    texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths if path.exists()}
    for folder in ("src", "models", "datasets", "tests", "bench"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                texts[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return texts


def own_file(files, header):
    """The project's file that an include names, or None."""
    return files.get(header if header.split("/")[0] in ("models", "datasets") else "src/" + header)


def check_length(file):
    if file.module is None:
        limit = MAX_TEST_LINES
    else:
        limit = MAX_HEADER_LINES if file.path.endswith(".h") else MAX_SOURCE_LINES
    if file.num_lines > limit:
        yield limit + 1, f"{file.num_lines} lines, at most {limit}: split it by concern"


def check_links(file, files, modules):
    if file.module not in modules:
        yield 1, f"the module {file.module} is not in src/CMakeLists.txt"
        return
    allowed = modules[file.module].links
    for line, quoted, header in file.includes:
        if not quoted or header in GENERATED:
            continue
        target = own_file(files, header)
        if target is None:
            yield line, f'"{header}" is no file of the project (its path begins at src/ or at the root; others go in <>)'
        elif target.module != file.module and target.module not in allowed:
            yield line, f"{file.module} does not link {target.module} (it links: {', '.join(allowed) or 'no other module'})"


def check_cycles(modules):
    left = {name: set(module.links) for name, module in modules.items()}
    while left:
        free = [name for name, links in left.items() if not links & left.keys()]
        if not free:
            yield MODULE_LISTS[0], 1, f"modules link each other in a circle: {', '.join(sorted(left))}"
            return
        for name in free:
            del left[name]


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


def check_torch_free(file, files, modules):
    if file.module not in modules or modules[file.module].with_torch:
        return
    for line, quoted, header in file.includes:
        chain = torch_path(header, quoted, files, set())
        if chain:
            yield line, f"{file.module} is built without LibTorch: {' -> '.join(chain)}"


def check_cuda(file):
    if file.module == "cuda":
        return
    for line, quoted, header in file.includes:
        if not quoted and CUDA_HEADER.match(header):
            yield line, f"only src/cuda may include <{header}>"


def check_environment(file):
    if file.module in ENVIRONMENT_READERS:
        return
    for number, line in enumerate(code_lines(file.text), 1):
        match = ENVIRONMENT.search(line)
        if match:
            yield number, f"only src/main.cpp, src/world and src/launch may read the environment ({match.group()})"


def check_registries(file):
    lines = {header: line for line, quoted, header in file.includes if quoted and header in REGISTRIES}
    if len(lines) == 2 and not KNOWS_BOTH_REGISTRIES.fullmatch(file.path):
        yield max(lines.values()), "only src/session/network* and src/session/registries* may include both registries"


def table_of(modules):
    rows = [f"| `{name}` | {', '.join(module.links)} | {'yes' if module.with_torch else 'no'} |" for name, module in modules.items()]
    return "\n".join([TABLE_BEGIN, "| module | may include | LibTorch |", "|---|---|---|", *rows, TABLE_END])


def with_table(design, modules):
    """The text of docs/design.md with the table as it should be, or None where it has no place for one."""
    begin, end = design.find(TABLE_BEGIN), design.find(TABLE_END)
    return None if begin < 0 or end < begin else design[:begin] + table_of(modules) + design[end + len(TABLE_END):]


def check_design(design, modules):
    expected = with_table(design, modules)
    if expected is None:
        yield DESIGN, 1, f"the lines {TABLE_BEGIN} and {TABLE_END} are missing"
    elif expected != design:
        yield DESIGN, design[:design.index(TABLE_BEGIN)].count("\n") + 1, "the table is out of date: scripts/check_includes.py --write"


def violations(texts):
    """All violations in the texts (path -> text, as of read_texts), as (path, line, what)."""
    modules = read_modules([texts.get(path, "") for path in MODULE_LISTS])
    files = {path: File(path, text) for path, text in texts.items() if path.endswith((".h", ".cpp"))}
    yield from check_cycles(modules)
    yield from check_design(texts.get(DESIGN, ""), modules)
    for file in files.values():
        found = list(check_length(file))
        if file.module is not None:
            found += check_links(file, files, modules)
            found += check_torch_free(file, files, modules)
            found += check_cuda(file)
            found += check_environment(file)
            found += check_registries(file)
        for line, what in sorted(found):
            yield file.path, line, what


def main(arguments):
    write = "--write" in arguments
    roots = [argument for argument in arguments if argument != "--write"]
    root = Path(roots[0]) if roots else Path(__file__).resolve().parent.parent
    texts = read_texts(root)
    if write:
        texts[DESIGN] = with_table(texts[DESIGN], read_modules([texts[path] for path in MODULE_LISTS])) or texts[DESIGN]
        (root / DESIGN).write_text(texts[DESIGN], encoding="utf-8")
    found = list(violations(texts))
    for path, line, what in found:
        print(f"{path}:{line}: {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
