# The recipe of Pegel for Spack 1.0 and later. `cargo xtask dist` writes a Spack repository with it beside the source
# archive; docs/packages.md describes how to install from there.

import os

from spack_repo.builtin.build_systems.cargo import CargoPackage

from spack.package import *


class Pegel(CargoPackage):
    """Telemetry agent for compute nodes: records metrics of a node and of the programs on it, and shows them live and
    in retrospect. It needs no root privileges, no database and no other service."""

    # The source archive is searched for in the current directory.
    manual_download = True
    url = f"file://{os.getcwd()}/pegel-0.1.0.tar.xz"

    license("Apache-2.0 OR MIT")

    # cargo xtask dist: the version and its checksum

    variant("prometheus", default=False, description="Install Prometheus, which scrapes the agents")

    depends_on("c", type="build")
    depends_on("rust@1.90:", type="build")
    depends_on("prometheus", type="run", when="+prometheus")

    # Only Linux has what the agent reads.
    conflicts("platform=darwin")
    conflicts("platform=windows")
    conflicts("platform=freebsd")

    @property
    def build_directory(self):
        return join_path(self.stage.source_path, "crates", "cli")

    @property
    def build_args(self):
        return ["--locked"]

    @run_after("install")
    def install_manual_and_completions(self):
        pegel = Executable(self.prefix.bin.pegel)
        pegel("man", "--dir", self.prefix.share.man)
        for shell, directory, name in (
            ("bash", bash_completion_path(self.prefix), "pegel"),
            ("fish", fish_completion_path(self.prefix), "pegel.fish"),
            ("zsh", zsh_completion_path(self.prefix), "_pegel"),
        ):
            mkdirp(directory)
            with open(join_path(directory, name), "w") as file:
                pegel("completions", shell, output=file)

    def test_version(self):
        """check that the installed program starts"""
        pegel = Executable(self.prefix.bin.pegel)
        assert str(self.spec.version) in pegel("--version", output=str.split)
