//! The configuration of a process as a writer of lanes: read once, with its first series.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::clock;
use crate::identity::{self, ProcessId};
use crate::lane_list;
use crate::layout::{self, HEADER_BYTES, RING_OFFSET, RING_POINTS, header, put_bytes};
use crate::mpi_state::AREA_BYTES;
use crate::series_spec::CreateError;
use crate::writer_directory::{self, WriterDirectory};
use crate::writer_lane::WriterLane;

#[derive(Debug)]
pub(crate) struct WriterConfig {
    pub source: WriterConfigSource,
    /// The directory of the lanes; `None`: the lanes are private memory.
    pub directory: Option<WriterDirectory>,
    /// The list to which new lanes are appended; see `lane_list`.
    pub lane_list: Option<CString>,
    /// The parts of the header that are the same for all lanes, including those of children.
    pub template: [u8; HEADER_BYTES],
}

#[derive(Debug)]
pub(crate) enum WriterConfigSource {
    Environment,
    Directory(PathBuf),
    /// `directory` and `template` are set.
    Resolved,
    Disabled,
}

impl WriterConfig {
    pub(crate) fn resolve(&mut self) -> Result<(), CreateError> {
        let place = match &self.source {
            WriterConfigSource::Resolved => return Ok(()),
            WriterConfigSource::Environment if writer_directory::is_disabled() => {
                self.source = WriterConfigSource::Disabled;
                return Err(CreateError::Disabled);
            }
            WriterConfigSource::Disabled => return Err(CreateError::Disabled),
            WriterConfigSource::Environment => {
                self.lane_list = lane_list::configured_list();
                WriterDirectory::choose()
            }
            WriterConfigSource::Directory(path) => WriterDirectory::in_path(path.clone()),
        };
        self.directory = place;
        self.fill_template();
        self.source = WriterConfigSource::Resolved;
        Ok(())
    }

    fn fill_template(&mut self) {
        let template = &mut self.template;
        put_bytes(template, header::MAGIC, &layout::MAGIC);
        put_bytes(template, header::VERSION, &layout::VERSION.to_le_bytes());
        put_bytes(
            template,
            header::HEADER_BYTES,
            &(HEADER_BYTES as u32).to_le_bytes(),
        );
        let mut command = [0; 64];
        let command = identity::command_name(&mut command);
        put_text(template, header::COMMAND, header::COMMAND_BYTES, command);
        let rank = identity::rank().unwrap_or_default();
        put_text(template, header::RANK, header::RANK_BYTES, rank.as_bytes());
        let job = identity::job_id().unwrap_or_default();
        put_text(template, header::JOB, header::JOB_BYTES, job.as_bytes());
    }

    /// Writes the header of one lane of this process.
    pub(crate) fn fill_header(
        &self,
        memory: &mut [u8],
        id: [u8; 16],
        number: usize,
        lane: &WriterLane,
    ) {
        put_bytes(memory, 0, &self.template);
        let process = ProcessId::of_self();
        let uid = rustix::process::geteuid().as_raw();
        let now = clock::now_ms();
        put_bytes(memory, header::ID, &id);
        put_bytes(memory, header::PID, &process.pid.to_le_bytes());
        put_bytes(memory, header::UID, &uid.to_le_bytes());
        put_bytes(
            memory,
            header::START_TICKS,
            &process.start_ticks.to_le_bytes(),
        );
        put_bytes(
            memory,
            header::PID_NAMESPACE,
            &process.pid_namespace.to_le_bytes(),
        );
        put_bytes(memory, header::CREATED_MS, &now.to_le_bytes());
        let bytes = lane.bytes.load(Ordering::Relaxed) as u32;
        put_bytes(memory, header::FILE_BYTES, &bytes.to_le_bytes());
        if lane.has_ring.load(Ordering::Relaxed) {
            put_bytes(
                memory,
                header::RING_OFFSET,
                &(RING_OFFSET as u32).to_le_bytes(),
            );
            put_bytes(
                memory,
                header::RING_POINTS,
                &(RING_POINTS as u32).to_le_bytes(),
            );
        }
        if lane.has_mpi_state.load(Ordering::Relaxed) {
            let length = AREA_BYTES as u32;
            let offset = bytes.saturating_sub(length);
            put_bytes(memory, header::MPI_STATE_OFFSET, &offset.to_le_bytes());
            put_bytes(memory, header::MPI_STATE_BYTES, &length.to_le_bytes());
        }
        put_bytes(memory, header::NUMBER, &(number as u32).to_le_bytes());
        let used = lane.used.load(Ordering::Relaxed) as u64;
        put_bytes(memory, header::PUBLISHED, &used.to_le_bytes());
    }
}

/// Writes as much of a text as fits before a zero byte, in whole characters.
fn put_text(bytes: &mut [u8], at: usize, space: usize, text: &[u8]) {
    let mut end = text.len().min(space - 1);
    while end > 0 && end < text.len() && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    put_bytes(bytes, at, text.get(..end).unwrap_or_default());
}
