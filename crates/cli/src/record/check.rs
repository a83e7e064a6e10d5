//! `pegel record check`: lists every damaged, missing and repeated block.

use pegel_record::{BlockContent, RecordBlockKind, RecordEvent, RecordReader};

use super::source::LoadedRecord;
use crate::command_error::{CommandError, FAILED};
use crate::output;

/// List the damaged, missing and repeated blocks of a record
///
/// Exits with 0 if the record is complete, with 1 if blocks are damaged or missing. Repeated
/// blocks lose nothing. A record that has not ended is complete up to its last block.
#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    /// Part, folder or URL of a record, or - for standard input
    record: String,
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<()> {
    let record = LoadedRecord::load(&args.record)?;
    let mut damages = 0_u64;
    let mut blocks = 0_u64;
    let mut has_ended = false;
    for event in RecordReader::new(&record.bytes) {
        if let RecordEvent::Block { header, .. } = &event {
            blocks += 1;
            has_ended |= header.kind == RecordBlockKind::End;
        }
        if let Some(problem) = BlockProblem::of(&event, &record) {
            damages += u64::from(problem.is_damage);
            output::write(None, &format!("{}\n", problem.text))?;
        }
    }
    let end = match has_ended {
        true => "",
        false => "; it has no end: the task still runs, or its node was lost",
    };
    if damages > 0 {
        return Err(CommandError::with_code(
            FAILED,
            format!("{}: the record is damaged{end}", record.location),
        ));
    }
    let line = format!("{}: {blocks} blocks, no damage{end}\n", record.location);
    output::write(None, &line)
}

/// The description of an irregularity of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BlockProblem {
    /// Whether content is lost.
    pub is_damage: bool,
    pub text: String,
}

impl BlockProblem {
    /// Describes the irregularity of an event of the reader; `None` for a block that was read.
    pub(super) fn of(event: &RecordEvent, record: &LoadedRecord) -> Option<BlockProblem> {
        if record.is_expected_start(event) {
            return None;
        }
        let damage = |text: String| BlockProblem {
            is_damage: true,
            text,
        };
        Some(match event {
            RecordEvent::Block {
                header,
                position,
                content: BlockContent::Undecodable,
            } => damage(format!(
                "block {} at {}: samples depend on a missing or damaged block",
                header.sequence,
                record.position_text(*position)
            )),
            RecordEvent::Block { .. } => return None,
            RecordEvent::Repeated { header, position } => BlockProblem {
                is_damage: false,
                text: format!(
                    "block {} at {}: repeated, ignored",
                    header.sequence,
                    record.position_text(*position)
                ),
            },
            RecordEvent::Missing { first, last } if first == last => {
                damage(format!("block {first}: missing"))
            }
            RecordEvent::Missing { first, last } => {
                damage(format!("blocks {first} to {last}: missing"))
            }
            RecordEvent::Damaged {
                position,
                bytes,
                sequence,
                damage: reason,
            } => {
                let block = match sequence {
                    Some(sequence) => format!("block {sequence}"),
                    None => "damage".to_owned(),
                };
                damage(format!(
                    "{block} at {}: {reason}; {bytes} bytes skipped",
                    record.position_text(*position)
                ))
            }
            RecordEvent::Malformed {
                header,
                position,
                error,
            } => damage(format!(
                "block {} at {}: {error}",
                header.sequence,
                record.position_text(*position)
            )),
        })
    }
}
