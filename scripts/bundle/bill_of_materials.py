#!/usr/bin/env python3
"""Writes a bill of materials in the format CycloneDX 1.6 for a bundle: every library that it contains, or that was compiled into it, with
version, licences and package URL, and the SHA-256 of every binary file. Prints the names of the Debian packages.

usage: bill_of_materials.py BUNDLE VERSION TORCH_FOLDER COMPILED_IN_PACKAGE..."""

import email.parser
import filecmp
import hashlib
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def component(name, version, url, licences, **others):
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url,
            "licenses": [{"license": {"name": licence}} for licence in licences], **others}


def file_component(path, bundle):
    return {"type": "file", "name": str(path.relative_to(bundle)),
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]}


def debian_package(name):
    """The component of an installed package. Its licences are the short names that its copyright file gives, if that is machine-readable."""
    form = "${Version} ${Architecture} ${source:Package} ${source:Version}"
    version, architecture, source, source_version = output_of("dpkg-query", "-W", "-f", form, name).split()
    text = pathlib.Path("/usr/share/doc", name, "copyright").read_text()
    licences = sorted(set(re.findall(r"^License:[ \t]*(\S.*?)\s*$", text, re.MULTILINE))) if text.startswith("Format:") else []
    return component(name, version, f"pkg:deb/debian/{name}@{version}?arch={architecture}&upstream={source}@{source_version}",
                     licences or [f"see licences/debian/{name}"])


def packages_of(folder):
    """The Debian package of each library in `folder`: {path: name}. Libraries that differ from the distribution's are the bundle's own."""
    known = dict(re.findall(r"^\s*(\S+) \(.*x86-64.*\) => (\S+)$", output_of("/sbin/ldconfig", "-p"), re.MULTILINE))
    found = {}
    for path in folder.iterdir():
        original = pathlib.Path(known[path.name]).resolve()
        if not filecmp.cmp(path, original, shallow=False):
            continue
        # dpkg of Debian 12 lists some files under /lib, which is a link to /usr/lib.
        for name in (str(original), str(original).removeprefix("/usr")):
            owner = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
            if owner.returncode == 0:
                found[path] = owner.stdout.split(":")[0]
                break
        else:
            raise SystemExit(f"bill_of_materials: no package has {original}; install it as a package")
    return found


def wheels(packages, names, files):
    """The components of the installed wheels in the folder `packages` that contain one of the files, or that are in `names`."""
    for folder in sorted(packages.glob("*.dist-info")):
        about = email.parser.Parser().parsestr((folder / "METADATA").read_text())
        record = {line.split(",")[0] for line in (folder / "RECORD").read_text().splitlines()}
        contained = [path for name, path in files.items() if name in record]
        if contained or about["Name"] in names:
            licence = about["License-Expression"] or about["License"]
            yield component(about["Name"], about["Version"], f"pkg:pypi/{about['Name']}@{about['Version']}", [licence]), contained


def main():
    bundle, version, torch = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    components = []
    debian = packages_of(bundle / "lib/trainer/system")
    packages = sorted({*debian.values(), *sys.argv[4:]})
    for name in packages:
        files = sorted(path for path, owner in debian.items() if owner == name)
        components.append(debian_package(name) | {"components": [file_component(path, bundle) for path in files]})
    included = {str(path.relative_to(bundle / "lib/trainer")): path for kind in ("torch", "nvidia") for path in (bundle / "lib/trainer" / kind).rglob("*.so*")}
    for part, files in wheels(torch.parent, () if included else ("torch",), included):
        if files:
            part["components"] = [file_component(path, bundle) for path in sorted(files)]
        else:
            part |= {"scope": "excluded", "description": "not in the archive: loaded from the user's torch package"}
        components.append(part)
    name, number, licence = re.match(r"(\w+) (\S+) \((\w+)", (ROOT / "third_party/uPlot/README.md").read_text()).groups()
    components.append(component(name, number, f"pkg:npm/{name.lower()}@{number}", [licence]))
    own = sorted(path for folder in ("bin", "libexec", "lib") for path in (bundle / folder).rglob("*")
                 if path.is_file() and not path.is_symlink() and path not in debian and path not in included.values() and b"\x7fELF" == path.read_bytes()[:4])
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "trainer", "name": "trainer", "version": version,
                                   "licenses": [{"license": {"id": "Apache-2.0"}}], "components": [file_component(path, bundle) for path in own]}},
        "components": components,
        "dependencies": [{"ref": "trainer", "dependsOn": [part["bom-ref"] for part in components]}],
    }
    (bundle / "share/doc/trainer/bill_of_materials.cdx.json").write_text(json.dumps(document, indent=1) + "\n")
    print(*packages, sep="\n")


main()
