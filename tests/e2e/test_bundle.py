"""The archives and the Python wheel of scripts/bundle.sh, in root folders of Debian releases without a network and without Python. TRAINER_BUILD_DIR is the
build; TRAINER_FAKE_CUDA names the libraries that are preloaded to imitate a GPU (tests/fake_cuda)."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "testing"))
from debian_roots import copy_root, needs_roots, run_checked, run_inside  # noqa: E402
from test_install import torch_folder  # noqa: E402

BUILD = pathlib.Path(os.environ["TRAINER_BUILD_DIR"])
# A file for each library that decodes images: libjpeg, libpng and libwebp (both called by OpenCV), and libtiff.
IMAGES = ("baseline_420.jpg", "mode_rgb.png", "lossy_rgb.webp", "adobe_deflate.tif")


def setUpModule():
    if "VERSION_CODENAME=bookworm\n" not in pathlib.Path("/etc/os-release").read_text():
        raise unittest.SkipTest("a bundle is made on Debian 12")
    needs_roots("patchelf", "zstd")


def make_bundle(folder, *arguments):
    """Returns the unpacked folder, and the output of the script."""
    run = run_checked([ROOT / "scripts" / "bundle.sh", "--output", folder, "--level", "1", *arguments])
    [archive] = folder.glob("*.tar.zst")
    run_checked(["tar", "--zstd", "-xf", archive, "-C", folder])
    name = archive.name.removesuffix(".tar.zst")
    archive.unlink()
    return folder / name, run.stdout


class BundleCase(unittest.TestCase):
    arguments = ()

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-bundle-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.bundle, cls.text = make_bundle(cls.folder, *cls.arguments)

    def check_bill(self):
        """Returns the bill of materials, after a check against the schema if the Python environment of the parity tests is there."""
        file = self.bundle / "share/doc/trainer/bill_of_materials.cdx.json"
        python = ROOT / ".deps/venv/bin/python"
        if list(python.parents[1].glob("lib/python3*/site-packages/cyclonedx")):
            run_checked([python, ROOT / "tests/testing/check_cyclonedx.py", file])
        return json.loads(file.read_text())

    def check_openmp(self):
        """The bundle must have only LibTorch's OpenMP library, because the distribution's would start threads of its own."""
        self.assertEqual(list((self.bundle / "lib/trainer/system").glob("libgomp*")), [])


class CpuTest(BundleCase):
    def test_what_it_holds(self):
        self.check_openmp()
        self.assertRegex(self.text, r"\.tar\.zst: \d+ MB, \d+ MB unpacked; needs glibc 2\.\d\d and libstdc\+\+ with GLIBCXX_3\.4\.\d+\n$")
        licences = self.bundle / "share/doc/trainer/licences"
        self.assertTrue(list(licences.glob("torch-*/**/LICENSE")), list(licences.iterdir()))
        self.assertTrue((self.bundle / "configs/quickstart.yaml").exists())
        self.assertTrue((self.bundle / "datasets/cifar10_sample/README.md").exists())
        self.assertTrue((self.bundle / "README.md").exists())
        self.assertTrue((self.bundle / "docs/get_started.md").exists())
        bill = self.check_bill()
        files = {file["name"] for part in (bill["metadata"]["component"], *bill["components"]) for file in part.get("components", [])}
        libraries = {str(path.relative_to(self.bundle)) for path in (self.bundle / "lib").rglob("*.so*") if not path.is_symlink()}
        self.assertEqual(files, libraries | {"bin/trainer"})
        self.assertLessEqual({"torch", "libyaml-cpp0.7", "nlohmann-json3-dev", "uPlot"}, {part["name"] for part in bill["components"]})
        for part in bill["components"]:
            if part["purl"].startswith("pkg:deb/"):
                self.assertTrue((licences / "debian" / part["name"]).exists(), part)

    def check_in(self, release, packages=()):
        root = self.folder / release
        copy_root(release, root, packages)
        (root / "images").mkdir()
        for image in IMAGES:
            shutil.copy(ROOT / "tests/golden/images" / image, root / "images" / image)
        shutil.copy(ROOT / "scripts/bundle/try.sh", root)
        place = root / "opt" / self.bundle.name
        place.mkdir()
        run = run_inside(root, f"/try.sh /opt/{self.bundle.name} /images /tmp", [(self.bundle, place)])
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertRegex(run.stdout, r"(?m)^trainer \d")
        self.assertRegex(run.stdout, r"gloo: 16\.0 MiB in ")
        for image in IMAGES:
            self.assertIn(image, run.stdout)
        self.assertIn("world_size 2", run.stderr)
        self.assertTrue((root / "tmp/run/summary.json").exists())
        self.assertGreater((root / "tmp/network.onnx").stat().st_size, 1_000_000)

    def test_bookworm(self):
        self.check_in("bookworm")

    def test_trixie(self):
        # With Python, as in test_gpu_kit.py, so that both tests share one root folder.
        self.check_in("trixie", ("python3",))


@unittest.skipUnless((BUILD / "bin/libtrainer_cuda.so").exists(), "this build has no CUDA module")
class CudaTest(BundleCase):
    arguments = ("--cuda",)

    def trainer(self, *words, **variables):
        environment = {name: value for name, value in os.environ.items() if name not in ("TRAINER_TORCH_DIR", "LD_LIBRARY_PATH")}
        return subprocess.run([self.bundle / "bin/trainer", *words], env={**environment, **variables}, capture_output=True, text=True, timeout=300,
                              cwd=self.bundle)

    def test_on_an_imitated_gpu(self):
        self.check_openmp()
        [torch] = [part for part in self.check_bill()["components"] if part["name"] == "torch"]
        self.assertEqual(torch["scope"], "excluded")
        run = self.trainer("--config", "configs/quickstart.yaml", "--run-dir", self.folder / "run", "training.epochs=1", "runtime.device=cuda",
                           TRAINER_TORCH_DIR=str(torch_folder()), LD_PRELOAD=os.environ["TRAINER_FAKE_CUDA"], FAKE_CUDA_FOLDER=str(self.folder))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("quickstart: cuda:0", run.stderr)

    def test_it_finds_the_package_of_the_active_environment(self):
        environment = self.folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        [packages] = environment.glob("lib/python3*/site-packages")
        path = f"{environment}/bin:{os.environ['PATH']}"
        run = self.trainer("list", "models", PATH=path)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertRegex(run.stderr, r"^trainer: this bundle needs .* of a torch package, but none was found; .* \(pip install 'torch==\d+\.\d+\.\*'\), or set TRAINER_TORCH_DIR .*\n$")
        (packages / "torch").symlink_to(torch_folder())
        run = self.trainer("doctor", "--output-dir", self.folder, PATH=path)
        self.assertIn(run.returncode, (0, 1), run.stderr)
        self.assertIn("LibTorch", run.stdout)

    def test_the_wheel_in_an_empty_environment(self):
        [wheel] = self.folder.glob("trainer-*.whl")
        environment = self.folder / "wheel environment"
        run_checked([sys.executable, "-m", "venv", environment])
        run_checked([environment / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", wheel])
        variables = {name: value for name, value in os.environ.items() if name not in ("TRAINER_TORCH_DIR", "LD_LIBRARY_PATH", "LD_PRELOAD")}

        def run(*words):
            return subprocess.run(words, env=variables, capture_output=True, text=True, timeout=300, cwd=self.folder)

        trainer = environment / "bin/trainer"
        self.assertIn("ImportError: trainer needs the package torch; install it in this environment", run(trainer, "--version").stderr)
        [packages] = environment.glob("lib/python3*/site-packages")
        (packages / "torch").symlink_to(torch_folder())
        data = ROOT / "tests/golden/images"
        done = run(trainer, "launch", "--nproc-per-node", "2", "--config", ROOT / "configs/quickstart.yaml", f"dataset.root={ROOT}/datasets/cifar10_sample",
                   "training.epochs=1", "runtime.device=cpu", "--run-dir", "wheel_run")
        self.assertEqual(done.returncode, 0, done.stderr)
        predicted = run(trainer, "predict", "--checkpoint", "wheel_run", data / "mode_rgb.png", "--json", "runtime.device=cpu")
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        program = f"""if True:
            import trainer_predict
            with trainer_predict.Predictor("wheel_run", device="cpu") as predictor:
                probabilities, features = predictor.predict("{data}/mode_rgb.png", features=True)
                assert probabilities == predictor.predict(open("{data}/mode_rgb.png", "rb").read())
                assert len(features) == 64
                heat = predictor.heatmap("{data}/mode_rgb.png", label=3)
                assert predictor.input_size == (len(heat), len(heat[0])) == (32, 32) and 0.9 < max(map(max, heat)) <= 1
                print(predictor.classes[predictor.decide(probabilities)], max(probabilities))
                try:
                    predictor.predict("/nowhere.png")
                except trainer_predict.PredictError as error:
                    print(error)
            try:
                trainer_predict.Predictor("/nowhere")
            except trainer_predict.PredictError as error:
                print(error)
        """
        applied = run(environment / "bin/python", "-c", program)
        self.assertEqual(applied.returncode, 0, applied.stderr)
        best, no_image, no_network = applied.stdout.splitlines()
        [row] = map(json.loads, predicted.stdout.splitlines())
        self.assertEqual(best, f"{row['classes'][0]['name']} {row['classes'][0]['probability']}")
        self.assertIn("/nowhere.png", no_image)
        self.assertIn("/nowhere", no_network)

    def test_a_package_that_does_not_fit(self):
        version = self.folder / "share/cmake/Torch/TorchConfigVersion.cmake"
        version.parent.mkdir(parents=True)
        version.write_text('set(PACKAGE_VERSION "1.13.1")\n')
        folder = str(self.folder)
        run = self.trainer("--version", TRAINER_TORCH_DIR=folder)
        self.assertEqual((run.returncode, run.stderr.split(",")[0]), (2, f"trainer: {folder} has LibTorch 1.13.1"))
        shutil.copy(pathlib.Path(torch_folder(), "share/cmake/Torch/TorchConfigVersion.cmake"), version)
        (self.folder / "lib").mkdir()
        (self.folder / "lib/libc10_cuda.so").write_text("libcudart.so.99")
        run = self.trainer("--version", TRAINER_TORCH_DIR=folder)
        self.assertEqual(run.returncode, 2)
        self.assertRegex(run.stderr, r"^trainer: the torch package in .* is for another CUDA; install one with libcudart\.so\.\d+, or one for CPUs\n$")
        run = self.trainer("--version", TRAINER_TORCH_DIR="/nowhere")
        self.assertEqual(run.returncode, 2)
        self.assertRegex(run.stderr, r"^trainer: /nowhere is not the folder of a torch package; set TRAINER_TORCH_DIR to one with LibTorch \S+\n$")


if __name__ == "__main__":
    unittest.main()
