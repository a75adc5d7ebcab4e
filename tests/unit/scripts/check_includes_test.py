#!/usr/bin/env python3
"""Tests that each rule of scripts/check_includes.py rejects violations and accepts valid code."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "check_includes.py"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPT.parent))
import check_includes

LISTS = {
    "src/CMakeLists.txt": """# trainer_module(attic LINKS trainer_base)
trainer_module(base SOURCES base/log.cpp LINKS spdlog::spdlog)
trainer_module(config SOURCES config/load.cpp
  LINKS trainer_base yaml-cpp)
trainer_module(launch LINKS trainer_base)  # a comment
trainer_module(data TORCH LINKS trainer_base trainer_config Threads::Threads)
target_link_libraries(trainer_images PRIVATE trainer_base_headers trainer_opencv trainer_warnings)
trainer_module(engine TORCH FOLDERS steps LINKS trainer_base trainer_models trainer_datasets trainer_deflate)
trainer_module(run TORCH LINKS trainer_base trainer_models trainer_datasets)
add_executable(trainer main.cpp)
target_link_libraries(trainer PRIVATE trainer_base trainer_engine trainer_warnings)
target_link_libraries(trainer_cuda PRIVATE trainer_base_headers torch::cuda trainer_warnings)
""",
    "models/CMakeLists.txt": "trainer_module(models TORCH LINKS trainer_base trainer_config)\n",
    "datasets/CMakeLists.txt": "trainer_module(datasets LINKS trainer_base trainer_data_headers CURL::libcurl)\n",
}
MODULES = check_includes.read_modules(LISTS.values())
CLEAN = {
    **LISTS,
    "docs/design.md": f"# Architecture\n\n{check_includes.table_of(MODULES)}\n\nMore.\n",
    "src/main.cpp": '#include <cstdlib>\n\n#include "base/error.h"\n\nint main() { return std::getenv("X") == nullptr; }\n',
    "src/base/error.h": "#pragma once\n#include <string>\n",
    "include/trainer/error.h": "#pragma once\n#include <string>\n",
    "src/config/load.h": '#pragma once\n#include "base/error.h"\n',
    "src/data/dataset.h": "#pragma once\n#include <span>\n",
    "src/data/pipeline.h": "#pragma once\n#include <torch/types.h>\n",
    "src/device/cuda/module.cpp": "#include <cuda_runtime_api.h>\n#include <ATen/cuda/CUDAContext.h>\n",
    "src/launch/world.cpp": "extern char** environ;\n",
    "src/base/log.cpp": "",
    "src/run/recipe/build.cpp": '#include "datasets/dataset_registry.h"\n#include "models/model_registry.h"\n',
    "models/model_registry.h": '#pragma once\n#include <torch/torch.h>\n#include "config/load.h"\n',
    "datasets/dataset_registry.h": '#pragma once\n#include "data/dataset.h"\n',
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

    def test_links_are_read(self):
        links = {name: " ".join(module.links) for name, module in MODULES.items()}
        self.assertEqual({"base": "", "config": "base", "launch": "base", "data": "base config", "engine": "base models datasets", "run": "base models datasets",
                          "models": "base config", "datasets": "base data", "main": "base engine", "images": "base", "cuda": "base"}, links)
        self.assertEqual({"data", "engine", "run", "models", "cuda"}, {name for name, module in MODULES.items() if module.with_torch})

    def test_every_include_without_a_link_is_refused(self):
        headers = {module: f"src/{module}/probe.h" for module in MODULES if module not in ("models", "datasets", "main")}
        headers |= {module: f"{module}/probe.h" for module in ("models", "datasets")}
        headers |= {"cuda": "src/device/cuda/probe.h", "images": "src/data/images/probe.h"}
        changes = {header: "#pragma once\n" for header in headers.values()}
        for name, module in MODULES.items():
            source = "src/main.cpp" if name == "main" else headers[name].replace("probe.h", "source.cpp")
            text = "".join(f'#include "{header.removeprefix("src/")}"\n' for header in headers.values())
            found = [(path, line, what.split(" (it")[0]) for path, line, what in check({**changes, source: text})]
            self.assertEqual([(source, line, f"{name} does not link {target}")
                              for line, target in enumerate(headers, 1) if target not in [name, *module.links]], found)

    def test_a_link_of_a_linked_module_does_not_count(self):
        self.refused("src/engine/step.cpp", '#include "config/load.h"\n', 1, "engine does not link config (it links: base, models, datasets)")

    def test_a_cycle_of_links(self):
        found = check({"datasets/CMakeLists.txt": "trainer_module(datasets LINKS trainer_base trainer_data trainer_engine)\n"})
        self.assertIn(("src/CMakeLists.txt", 1, "modules form a cycle: datasets, engine, main, run"), found)

    def test_the_table_is_out_of_date(self):
        changed = CLEAN["docs/design.md"].replace("| `launch` | base |", "| `launch` | base, config |")
        self.refused("docs/design.md", changed, 3, "the table is out of date; run scripts/check_includes.py --write")
        self.refused("docs/design.md", changed.replace(check_includes.TABLE_END, ""), 1, "are missing")
        self.assertEqual(CLEAN["docs/design.md"], check_includes.with_table(changed, MODULES))

    def test_new_module(self):
        self.refused("src/attic/box.h", "#pragma once\n", 1, "the module attic is not in src/CMakeLists.txt")

    def test_the_tree_itself(self):
        texts = check_includes.read_texts(SCRIPT.parents[1])
        modules = check_includes.read_modules([texts[path] for path in check_includes.MODULE_LISTS])
        self.assertEqual({Path(path).parts[1] for path in texts if path.startswith("src/") and path.count("/") > 1},
                         modules.keys() - {"main", "models", "datasets", "cuda", "images"})

    def test_own_header_by_another_path(self):
        self.refused("src/config/load.cpp", '\n#include "load.h"\n', 2, '"load.h" is not a file of the project')

    def test_torch_in_a_module_without_it(self):
        for header in ("torch/torch.h", "ATen/ATen.h", "c10/util/Half.h"):
            self.refused("src/config/lock.cpp", f"#include <vector>\n#include <{header}>\n", 2, "config is built without LibTorch")

    def test_torch_through_another_module(self):
        self.refused("datasets/cifar.cpp", '\n\n#include "data/pipeline.h"\n', 3, "data/pipeline.h -> torch/types.h")

    def test_cuda_headers_outside_of_cuda(self):
        for header in ("cuda_runtime_api.h", "nccl.h", "cudnn.h", "cublas_v2.h", "ATen/cuda/CUDAContext.h", "c10/cuda/CUDAGuard.h",
                       "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"):
            self.refused("src/engine/step.cpp", f"#include <{header}>\n", 1, f"only src/device/cuda may include <{header}>")

    def test_torchs_cpu_headers_are_not_cuda_headers(self):
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
        both = '#include "datasets/dataset_registry.h"\n#include "models/model_registry.h"\n'
        self.refused("src/run/session/session.cpp", both, 2, "both registries")
        self.accepted("src/engine/trainer.cpp", '#include "models/model_registry.h"\n')
        self.accepted("src/run/recipe/registries.cpp", both)

    def test_folders_of_a_module(self):
        found = check({"src/engine/steps/step.h": "#pragma once\n", "src/engine/trainer.h": "#pragma once\n",
                       "src/engine/trainer.cpp": '#include "engine/steps/step.h"\n', "src/engine/steps/step.cpp": '#include "engine/trainer.h"\n'})
        self.assertEqual([("src/engine/steps/step.cpp", 1, "a folder may only include those before it in FOLDERS of engine (steps)")], found)

    def test_headers_of_the_library(self):
        self.accepted("src/config/other.h", '#include "trainer/error.h"\n')
        self.accepted("include/trainer/data.h", '#include "trainer/error.h"\n')
        self.refused("include/trainer/options.h", '#include "config/load.h"\n', 1, "base does not link config")

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in CLEAN.items():
                (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / path).write_text(text, encoding="utf-8")
            source = Path(folder) / "src/base/log.cpp"
            source.write_text("#include <torch/torch.h>\n", encoding="utf-8")
            command = [sys.executable, "-B", SCRIPT, folder]
            bad = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(1, bad.returncode)
            self.assertTrue(bad.stdout.startswith("src/base/log.cpp:1: base is built without LibTorch"), bad.stdout)
            source.write_text("", encoding="utf-8")
            good = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual((0, ""), (good.returncode, good.stdout))
            design = Path(folder) / "docs/design.md"
            design.write_text(CLEAN["docs/design.md"].replace("| `launch` | base |", "| `launch` | |"), encoding="utf-8")
            written = subprocess.run([*command, "--write"], capture_output=True, text=True, check=False)
            self.assertEqual((0, ""), (written.returncode, written.stdout))
            self.assertEqual(CLEAN["docs/design.md"], design.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
