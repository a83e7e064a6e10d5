"""Adds the program and the SBOM to the wheel of the client, reproducibly.

Arguments: the client's wheel, the program, the SBOM, the output directory, the time of every file in
seconds since 1970, the level of compression. Prints the name of the new wheel.
"""

import base64
import hashlib
import pathlib
import re
import sys
import time
import zipfile


def newest_glibc(binary: bytes) -> int:
    """Returns the minor version of glibc that a binary requires."""
    return max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", binary))


def main() -> None:
    client, program, sbom, out = (pathlib.Path(arg) for arg in sys.argv[1:5])
    epoch, level = int(sys.argv[5]), int(sys.argv[6])
    name, version, python, abi, platform = client.stem.split("-")
    arch = platform.split("linux_", 1)[1]
    arch = re.sub(r"^[0-9_]*(?=[a-z])", "", arch)

    with zipfile.ZipFile(client) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}
    script = f"{name}-{version}.data/scripts/pegel"
    files[script] = program.read_bytes()
    info_dir = f"{name}-{version}.dist-info"
    files[f"{info_dir}/sboms/pegel.cdx.json"] = sbom.read_bytes()

    # The wheel runs where both the module and the program do.
    native = [contents for path, contents in files.items() if path.endswith(".so")]
    glibc = max(newest_glibc(binary) for binary in [files[script], *native])
    platform = f"manylinux_2_{glibc}_{arch}"
    tag = f"{python}-{abi}-{platform}"
    wheel = files[f"{info_dir}/WHEEL"].decode()
    files[f"{info_dir}/WHEEL"] = re.sub(r"(?m)^Tag: .*$", f"Tag: {tag}", wheel).encode()

    record = f"{info_dir}/RECORD"
    del files[record]
    lines = []
    for path in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[path]).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(files[path])}\n")
    files[record] = "".join([*lines, f"{record},,\n"]).encode()

    # Times in zip files begin in 1980.
    when = time.gmtime(max(epoch, 315532800))[:6]
    target = out / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        # The metadata last, as recommended, so that it can be read without the rest.
        for path in sorted(files, key=lambda path: (path.startswith(info_dir), path)):
            info = zipfile.ZipInfo(path, when)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            mode = 0o755 if path == script or path.endswith(".so") else 0o644
            info.external_attr = (0o100000 | mode) << 16
            archive.writestr(info, files[path], compresslevel=level)
    print(target.name)


main()
