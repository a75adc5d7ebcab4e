#!/usr/bin/env python3
"""Shows that each rule of scripts/check_includes.py can fail, and that it does not where it should not."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "check_includes.py"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPT.parent))
import check_includes

CLEAN = {
    "src/main.cpp": '#include <cstdlib>\n\n#include "base/error.h"\n\nint main() { return std::getenv("X") == nullptr; }\n',
    "src/base/error.h": "#pragma once\n#include <string>\n",
    "src/config/load.h": '#pragma once\n#include "base/error.h"\n',
    "src/input/dataset.h": "#pragma once\n#include <span>\n",
    "src/input/transforms.h": "#pragma once\n#include <torch/types.h>\n",
    "src/cuda/module.cpp": "#include <cuda_runtime_api.h>\n#include <ATen/cuda/CUDAContext.h>\n",
    "src/world/world.cpp": "extern char** environ;\n",
    "src/session/network.cpp": '#include "datasets/registry.h"\n#include "models/registry.h"\n',
    "models/registry.h": '#pragma once\n#include <torch/torch.h>\n#include "config/load.h"\n',
    "datasets/registry.h": '#pragma once\n#include "input/dataset.h"\n',
    "tests/unit/base/error_test.cpp": '#include <cstdlib>\n#include "engine/trainer.h"\n#include "commands/train.h"\n',
}


def check(changes):
    return list(check_includes.violations({**CLEAN, **changes}))


class CheckIncludes(unittest.TestCase):
    def refused(self, path, text, line, words):
        found = check({path: text})
        self.assertEqual([(path, line)], [violation[:2] for violation in found], found)
        self.assertIn(words, found[0][2])

    def accepted(self, path, text):
        self.assertEqual([], check({path: text}))

    def test_clean_tree(self):
        self.assertEqual([], check({}))

    def test_every_arrow_that_is_not_in_the_table_is_refused(self):
        headers = {room: f"src/{room}/probe.h" for room in check_includes.ROOMS if room not in ("models", "datasets", "main")}
        headers |= {room: f"{room}/probe.h" for room in ("models", "datasets")}
        changes = {header: "#pragma once\n" for header in headers.values()}
        for room, allowed in check_includes.ROOMS.items():
            source = "src/main.cpp" if room == "main" else headers[room].replace("probe.h", "source.cpp")
            text = "".join(f'#include "{header.removeprefix("src/")}"\n' for header in headers.values())
            found = [(path, line, what.split(" (may")[0]) for path, line, what in check({**changes, source: text})]
            self.assertEqual([(source, line, f"{room} may not include {target}")
                              for line, target in enumerate(headers, 1) if target not in allowed], found)

    def test_the_arrows_have_no_circle(self):
        left = {room: targets - {room} for room, targets in check_includes.ROOMS.items()}
        while left:
            free = [room for room, targets in left.items() if not targets & left.keys()]
            self.assertTrue(free, f"each of these reaches itself: {sorted(left)}")
            for room in free:
                del left[room]

    def test_new_room(self):
        self.refused("src/attic/box.h", "#pragma once\n", 1, "the room attic is not in the table")

    def test_own_header_by_another_path(self):
        self.refused("src/config/load.cpp", '\n#include "load.h"\n', 2, '"load.h" is no file of the project')

    def test_torch_in_a_torch_free_room(self):
        for header in ("torch/torch.h", "ATen/ATen.h", "c10/util/Half.h"):
            self.refused("src/run/lock.cpp", f"#include <vector>\n#include <{header}>\n", 2, "run is built without LibTorch")

    def test_torch_by_way_of_another_room(self):
        self.refused("datasets/cifar.cpp", '\n\n#include "input/transforms.h"\n', 3, "input/transforms.h -> torch/types.h")

    def test_cuda_headers_outside_of_cuda(self):
        for header in ("cuda_runtime_api.h", "nccl.h", "cudnn.h", "cublas_v2.h", "ATen/cuda/CUDAContext.h", "c10/cuda/CUDAGuard.h",
                       "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"):
            self.refused("src/engine/step.cpp", f"#include <{header}>\n", 1, f"only src/cuda may include <{header}>")

    def test_torchs_cpu_headers_are_no_cuda_headers(self):
        self.accepted("src/engine/step.cpp", "#include <torch/cuda.h>\n#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>\n")

    def test_environment(self):
        self.refused("src/base/log.cpp", '\nauto x = std::getenv("NO_COLOR");\n', 2, "getenv")
        self.refused("src/config/load.cpp", "extern char** environ;\n", 1, "environ")

    def test_words_in_comments_and_literals_do_not_count(self):
        self.accepted("src/base/log.cpp", '// getenv\n/* environ\n #include <torch/torch.h>\n*/ auto x = "getenv"; auto y = R"(" environ)";\n')

    def test_includes_in_comments_do_not_count(self):
        self.accepted("src/base/log.cpp", '// #include "engine/trainer.h"\n/*\n#include <torch/torch.h>\n*/\n')

    def test_code_after_a_literal_counts(self):
        self.refused("src/base/log.cpp", "auto c = '\"'; auto n = 1'000; auto x = getenv(\"A\"); // \"\n", 1, "getenv")

    def test_both_registries(self):
        both = '#include "datasets/registry.h"\n#include "models/registry.h"\n'
        self.refused("src/session/session.cpp", both, 2, "both registries")
        self.accepted("src/engine/trainer.cpp", '#include "models/registry.h"\n')
        self.accepted("src/session/registries.cpp", both)

    def test_lengths(self):
        for path, limit in (("src/base/long.h", 150), ("src/base/long.cpp", 400), ("models/long.cpp", 400), ("tests/unit/long.cpp", 500),
                            ("bench/long.cpp", 500)):
            self.accepted(path, "\n" * limit)
            self.refused(path, "\n" * (limit + 1), limit + 1, f"at most {limit}")

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "src/base/log.cpp"
            source.parent.mkdir(parents=True)
            source.write_text("#include <torch/torch.h>\n", encoding="utf-8")
            command = [sys.executable, "-B", SCRIPT, folder]
            bad = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(1, bad.returncode)
            self.assertTrue(bad.stdout.startswith("src/base/log.cpp:1: base is built without LibTorch"), bad.stdout)
            source.write_text("", encoding="utf-8")
            good = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual((0, ""), (good.returncode, good.stdout))


if __name__ == "__main__":
    unittest.main()
