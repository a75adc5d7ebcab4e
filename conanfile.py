"""Recipe for Conan 2: `conan create .` builds and packages the program and the libraries (docs/library.md)."""
import os
import pathlib
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt


class TrainerRecipe(ConanFile):
    name = "trainer"
    description = "Config-driven training of image classifiers on LibTorch"
    license = "Apache-2.0"
    topics = ("deep-learning", "image-classification", "libtorch", "distributed-training")
    package_type = "shared-library"
    settings = "os", "compiler", "build_type", "arch"
    exports = "scripts/common.sh"
    exports_sources = "*", "!build/*", "!.deps/*", "!.git/*", "!runs/*"

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "include", "trainer", "version.h"))
        self.version = re.search(r'TRAINER_VERSION "(.*)"', header)[1]

    def layout(self):
        cmake_layout(self)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("trainer is only for Linux")
        if not self._torch_folder.joinpath("lib", "libtorch_cpu.so").exists():
            raise ConanInvalidConfiguration(f"no LibTorch in '{self._torch_folder}'; set TRAINER_TORCH_DIR to a folder with LibTorch's lib/ and "
                                            "include/, such as the Python package torch")

    def system_requirements(self):
        """The lists of packages of scripts/setup.sh."""
        lists = re.findall(r"^(?:library|image)_packages=\((.*?)\)", load(self, os.path.join(self.recipe_folder, "scripts", "common.sh")), re.MULTILINE | re.DOTALL)
        Apt(self).install(" ".join(lists).split(), check=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update({"TRAINER_BUILD_TESTS": False, "TRAINER_TORCH_DIR": str(self._torch_folder)})
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install(component="development")
        for name in ("LICENSE", "THIRD_PARTY_NOTICES.md"):
            copy(self, name, self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # The package has CMake files of its own: find_package(trainer), find_package(trainer_predict).
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake"]
        self.cpp_info.libs = ["trainer", "trainer_predict"]
        self.runenv_info.append_path("PATH", os.path.join(self.package_folder, "bin"))

    @property
    def _torch_folder(self):
        return pathlib.Path(os.environ.get("TRAINER_TORCH_DIR", ""))
