//! `pegel job` with real launchers: ssh to a real sshd on loopback, Open MPI's mpirun, and a real
//! Slurm; how jobs end, and what they leave behind.

mod endings;
mod launchers;
mod slurm;
mod ssh_server;
mod test_job;
mod tunnels;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
