#!/usr/bin/env python3
"""Packs the folder of a -cuda bundle into a Python wheel, which uses the torch package of the environment where it is installed. The same
folder gives the same bytes.

usage: wheel.py BUNDLE VERSION TORCH_VERSION GLIBC OUTPUT_FOLDER, where TORCH_VERSION is like 2.15 and GLIBC like 2.35"""

import base64
import hashlib
import pathlib
import sys
import zipfile

MODULES = pathlib.Path(__file__).resolve().parent / "python"
METADATA = """Metadata-Version: 2.4
Name: trainer
Version: {version}
Summary: Trains image classifiers with distributed data parallelism on LibTorch, from a YAML file
License-Expression: Apache-2.0
License-File: LICENSE
License-File: THIRD_PARTY_NOTICES.md
Requires-Python: >=3.9
Requires-Dist: torch=={torch}.*
Description-Content-Type: text/markdown

{readme}"""


def main():
    bundle, version, torch, glibc, output = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], pathlib.Path(sys.argv[5])
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"
    about = f"trainer-{version}.dist-info"
    documents = bundle / "share/doc/trainer"
    # A wheel cannot contain links; nothing needs those of the bundle.
    files = {f"trainer_program/{path.relative_to(bundle)}": (path.read_bytes(), path.stat().st_mode)
             for path in sorted(bundle.rglob("*")) if path.is_file() and not path.is_symlink()}
    for path in sorted(MODULES.glob("*.py")):
        files[path.name] = (path.read_bytes(), 0o644)
    texts = {"METADATA": METADATA.format(version=version, torch=torch, readme=(documents / "README.md").read_text()),
             "WHEEL": f"Wheel-Version: 1.0\nGenerator: trainer\nRoot-Is-Purelib: false\nTag: {tag}\n",
             "entry_points.txt": "[console_scripts]\ntrainer = trainer:main\n"}
    for name in ("LICENSE", "THIRD_PARTY_NOTICES.md"):
        texts[f"licenses/{name}"] = (documents / name).read_text()
    files |= {f"{about}/{name}": (text.encode(), 0o644) for name, text in texts.items()}
    record = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}" for name, (data, _) in files.items()]
    files[f"{about}/RECORD"] = ("\n".join([*record, f"{about}/RECORD,,"]) + "\n").encode(), 0o644
    path = output / f"trainer-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if mode & 0o100 else 0o100644) << 16
            wheel.writestr(entry, data)
    print(path)


main()
