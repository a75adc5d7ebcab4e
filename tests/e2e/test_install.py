"""The .tar.gz of the build TRAINER_BUILD_DIR runs from any folder, with the LibTorch that it includes, and examples/ needs only its library
to build. The unpacked archive and the examples stay in TRAINER_BUILD_DIR/installed, for tests of the examples."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest


ROOT = pathlib.Path(__file__).resolve().parents[2]


def torch_folder():
    cache = (pathlib.Path(os.environ["TRAINER_BUILD_DIR"]) / "CMakeCache.txt").read_text()
    return re.search(r"^TRAINER_TORCH_DIR:\w+=(.*)$", cache, re.MULTILINE)[1] or ROOT / ".deps" / "torch"


class InstallTest(unittest.TestCase):
    def build_examples(self, folder, prefix):
        """Builds examples/ against the installed library, in a folder without the project."""
        shutil.copytree(ROOT / "examples", folder / "examples")
        configure = ["cmake", "-S", folder / "examples", "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
        other = folder / "other_torch"
        (other / "include/torch/headeronly").mkdir(parents=True)
        (other / "include/torch/headeronly/version.h").write_text(
            "#define TORCH_VERSION_MAJOR 1\n#define TORCH_VERSION_MINOR 2\n#define TORCH_VERSION_PATCH 3\n#define TORCH_VERSION_ABI_TAG 0\n")
        for torch, message in ((folder / "none", "There is no LibTorch in TRAINER_TORCH_DIR"), (other, "but LibTorch 1.2.3 was found")):
            refused = subprocess.run([*configure, f"-DTRAINER_TORCH_DIR={torch}"], capture_output=True, text=True)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(message, " ".join(refused.stderr.split()))
        subprocess.run([*configure, f"-DTRAINER_TORCH_DIR={torch_folder()}"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", folder / "build", "-j2"], check=True, stdout=subprocess.DEVNULL)

    def build_predict_example(self, folder, prefix):
        """Builds the example with find_package and with pkg-config, without LibTorch's headers. Called without images, the example only
        opens the network."""
        source = folder / "predict"
        source.mkdir()
        (source / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(predict C)\nfind_package(trainer_predict 0.1 CONFIG REQUIRED)\n"
                                               f"add_executable(predict {ROOT}/examples/predict/predict.c)\ntarget_link_libraries(predict trainer::predict)\n")
        subprocess.run(["cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={prefix}"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", source / "build"], check=True, stdout=subprocess.DEVNULL)
        programs = [(source / "build" / "predict", {})]
        if shutil.which("pkg-config"):
            flags = subprocess.run(["pkg-config", "--cflags", "--libs", "trainer_predict"], check=True, capture_output=True, text=True,
                                   env={**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}).stdout
            subprocess.run(["cc", ROOT / "examples/predict/predict.c", "-o", source / "linked", *shlex.split(flags)], check=True)
            programs.append((source / "linked", {"LD_LIBRARY_PATH": str(prefix / "lib")}))
        for program, variables in programs:
            run = subprocess.run([program, prefix / "share/trainer/runs/quickstart/checkpoints/best.pt"], capture_output=True, text=True,
                                 env={**os.environ, **variables})
            self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))

    def link_by_pkg_config(self, folder, prefix):
        source = folder / "linked.cpp"
        source.write_text("#include <trainer/random.h>\nint main() { return trainer::mix_seed(1, 2) == 0; }\n")
        flags = subprocess.run(["pkg-config", f"--define-variable=torch={torch_folder()}", "--cflags", "--libs", "trainer"], check=True, capture_output=True,
                               text=True, env={**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}).stdout
        subprocess.run(["c++", source, "-o", folder / "linked", *shlex.split(flags)], check=True)
        subprocess.run([folder / "linked"], check=True, env={**os.environ, "LD_LIBRARY_PATH": prefix / "lib"})

    def run_own_loop(self, folder):
        run = subprocess.run([os.environ["TRAINER_BINARY"], "launch", "--nproc-per-node", "2", "--no-python", folder / "build" / "own_loop",
                              folder / "last.pt"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue((folder / "last.pt").exists())

    def check_search_paths(self, folders, least=9):
        """The loader takes an empty or relative element of a search path for the current folder, whose libraries would be loaded."""
        files = [file for folder in folders for file in sorted(folder.rglob("*"))
                 if file.is_file() and not file.is_symlink() and file.open("rb").read(4) == b"\x7fELF"]
        self.assertGreaterEqual(len(files), least)
        found = subprocess.run(["readelf", "--wide", "--dynamic", *files], check=True, capture_output=True, text=True).stdout
        paths = re.findall(r"Library r(?:un)?path: \[(.*)\]", found)
        self.assertGreaterEqual(len(paths), min(least, 5))
        for path in paths:
            for element in path.split(":"):
                self.assertTrue(element.startswith(("/", "$ORIGIN")), f"'{element}' in '{path}'")

    def test_the_archive_is_relocatable(self):
        folder = pathlib.Path(os.environ["TRAINER_BUILD_DIR"]) / "installed"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        subprocess.run(["cpack", "--config", f"{os.environ['TRAINER_BUILD_DIR']}/CPackConfig.cmake", "-G", "TGZ", "-B", folder / "packages",
                        "-D", "CPACK_COMPONENTS_ALL=trainer"], check=True, stdout=subprocess.DEVNULL)
        archive, = (folder / "packages").glob("trainer-*.tar.gz")
        prefix = folder / "a new place"
        prefix.mkdir()
        subprocess.run(["tar", "-xzf", archive, "-C", prefix, "--strip-components=1"], check=True)
        shutil.rmtree(folder / "packages")
        program = prefix / "bin" / "trainer"
        brought = {file.name for file in (prefix / "lib").rglob("*.so*")}
        self.assertIn("libtorch_cpu.so", brought)
        found = subprocess.run(["ldd", program, prefix / "lib/libtrainer.so.0.1", prefix / "lib/trainer/torch/lib/libtorch_cpu.so"], capture_output=True, text=True).stdout
        for line in found.splitlines():
            name, _, path = line.strip().partition(" => ")
            if name in brought:
                self.assertTrue(path.startswith(str(prefix)), line)
        self.assertNotIn("not found", found)
        self.check_search_paths([prefix, pathlib.Path(os.environ["TRAINER_BUILD_DIR"]) / "bin"])
        run = subprocess.run(
            [program, "launch", "--nproc-per-node", "2", "--config", "configs/quickstart.yaml", "training.epochs=1", "dataloader.global_batch_size=500"],
            cwd=prefix / "share" / "trainer",
            capture_output=True,
            text=True,
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue((prefix / "share/trainer/runs/quickstart/summary.json").exists())
        self.assertTrue((prefix / "share/doc/trainer/LICENSE").exists())
        self.build_examples(folder, prefix)
        for plugin in ("mobilenet_v2", "segmentation", "components"):
            symbols = subprocess.run(["nm", "--dynamic", "--defined-only", folder / f"build/lib{plugin}.so"], check=True, capture_output=True, text=True).stdout
            self.assertEqual({line.split()[-1] for line in symbols.splitlines()}, {"trainer_plugin_register", "trainer_plugin_version"})
        if shutil.which("pkg-config"):
            self.link_by_pkg_config(folder, prefix)
        self.build_predict_example(folder, prefix)
        self.run_own_loop(folder)
        for file in ("trainer/slurm/train.sbatch", "trainer/kubernetes/job.yaml", "doc/trainer/docs/running.md", "bash-completion/completions/trainer", "zsh/vendor-completions/_trainer", "fish/vendor_completions.d/trainer.fish",
                     "man/man1/trainer.1", "man/man1/trainer-launch.1"):
            self.assertTrue((prefix / "share" / file).exists(), file)
        self.assertEqual(self.dead_links(prefix / "share/doc/trainer"), {"bench/README.md", "tests/parity/test_own_loop.py", ".github/workflows/release.yml"})

    def test_the_component_development_uses_the_libtorch_of_the_build(self):
        with tempfile.TemporaryDirectory(prefix="trainer-development-") as folder:
            prefix = pathlib.Path(folder) / "a place"
            subprocess.run(["cmake", "--install", os.environ["TRAINER_BUILD_DIR"], "--prefix", prefix, "--component", "development"], check=True,
                           stdout=subprocess.DEVNULL)
            files = [file for file in prefix.rglob("*") if file.is_file() and not file.is_symlink()]
            self.assertFalse([file for file in files if "torch" in file.name and file.suffix == ".so"])
            self.assertTrue((prefix / "include/trainer/trainer.h").exists())
            self.assertTrue((prefix / "lib/cmake/trainer/trainerConfig.cmake").exists())
            self.check_search_paths([prefix], least=3)
            run = subprocess.run([prefix / "bin/trainer", "list", "losses"], capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertIn("cross_entropy", run.stdout)

    @staticmethod
    def dead_links(folder):
        """The links of the pages in the folder to files that are not installed."""
        links = {os.path.normpath(page.parent / link) for page in [*folder.glob("*.md"), *folder.glob("docs/*.md")]
                 for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", page.read_text()) if ":" not in link}
        return {os.path.relpath(link, folder) for link in links if not os.path.exists(link)}


if __name__ == "__main__":
    unittest.main()
