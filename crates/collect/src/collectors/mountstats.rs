//! Traffic and operations of each NFS mount, from `/proc/self/mountstats`.
//!
//! Runs on the sampler's thread. An operation gets its series with its first request.

use pegel_metric::SampleGroup;

use super::mountstats_parse::{NfsMountStats, parse};
use crate::families::families;
use crate::file_collector::{FileParser, open_list};
use crate::proc_parse::{ProcParseError, label_value};
use crate::series_table::SeriesTable;
use crate::{CollectorEntry, Tier};

/// The number of values per mount: its age, and its byte and page counts.
const MOUNT: usize = 9;

// In the order of the file: first the values of a mount, then those of an operation.
families! {
    AGE Counter 3 "node_mountstats_nfs_age_seconds_total" "seconds" "Age of the mount, in seconds.";
    READ Counter 3 "node_mountstats_nfs_read_bytes_total" "bytes" "Total number of bytes read by programs through the page cache.";
    WRITE Counter 3 "node_mountstats_nfs_write_bytes_total" "bytes" "Total number of bytes written by programs through the page cache.";
    DIRECT_READ Counter 3 "node_mountstats_nfs_direct_read_bytes_total" "bytes" "Total number of bytes read by programs with O_DIRECT.";
    DIRECT_WRITE Counter 3 "node_mountstats_nfs_direct_write_bytes_total" "bytes" "Total number of bytes written by programs with O_DIRECT.";
    TOTAL_READ Counter 3 "node_mountstats_nfs_total_read_bytes_total" "bytes" "Total number of bytes read from the server.";
    TOTAL_WRITE Counter 3 "node_mountstats_nfs_total_write_bytes_total" "bytes" "Total number of bytes written to the server.";
    READ_PAGES Counter 3 "node_mountstats_nfs_read_pages_total" "" "Total number of pages read from the server.";
    WRITE_PAGES Counter 3 "node_mountstats_nfs_write_pages_total" "" "Total number of pages written to the server.";
    REQUESTS Counter 3 "node_mountstats_nfs_operations_requests_total" "" "Total number of requests, by operation.";
    TRANSMISSIONS Counter 3 "node_mountstats_nfs_operations_transmissions_total" "" "Total number of transmissions of requests including retransmissions, by operation.";
    TIMEOUTS Counter 3 "node_mountstats_nfs_operations_major_timeouts_total" "" "Total number of requests with a major timeout, by operation.";
    SENT Counter 3 "node_mountstats_nfs_operations_sent_bytes_total" "bytes" "Total number of bytes sent, by operation.";
    RECEIVED Counter 3 "node_mountstats_nfs_operations_received_bytes_total" "bytes" "Total number of bytes received, by operation.";
    QUEUED Counter 3 "node_mountstats_nfs_operations_queue_time_seconds_total" "seconds" "Total time that requests waited before they were sent, by operation, in seconds.";
    ANSWERED Counter 3 "node_mountstats_nfs_operations_response_time_seconds_total" "seconds" "Total time from sending a request to its response, by operation, in seconds.";
    TAKEN Counter 3 "node_mountstats_nfs_operations_request_time_seconds_total" "seconds" "Total time from queueing a request to its completion, by operation, in seconds.";
}

/// Index of the first value of an operation that is a time, in milliseconds.
const FIRST_TIME: usize = 5;

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("mountstats", Tier::FiveSeconds, FAMILIES, |context| {
        open_list(context, "proc/self/mountstats", MountstatsReadings::new())
    });

#[derive(Debug)]
struct MountstatsReadings {
    /// By export, protocol and address of the mount.
    mounts: SeriesTable,
    /// By mount and operation.
    operations: SeriesTable,
    key: Vec<u8>,
}

impl MountstatsReadings {
    fn new() -> MountstatsReadings {
        MountstatsReadings {
            mounts: SeriesTable::new(&FAMILIES[..MOUNT]),
            operations: SeriesTable::new(&FAMILIES[MOUNT..]),
            key: Vec::new(),
        }
    }

    fn set(
        &mut self,
        mount: &NfsMountStats<'_>,
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        let parts = [mount.export, mount.protocol, mount.address];
        self.key.clear();
        for part in parts {
            self.key.extend_from_slice(part);
            self.key.push(b'\n');
        }
        let [export, protocol, address] = parts.map(label_value);
        let [export, protocol, address] = [
            ("export", &*export),
            ("protocol", &*protocol),
            ("mountaddr", &*address),
        ];
        let values = [mount.age].into_iter().chain(mount.bytes);
        let values = values.map(|value| Some(value as f64));
        self.mounts
            .set(out, &self.key, &[export, protocol, address], values)?;
        let mount_bytes = self.key.len();
        for operation in mount.operations() {
            let (name, numbers) = operation?;
            // Skip operations without requests: they would be most of the series.
            if numbers[0] == 0 {
                continue;
            }
            self.key.truncate(mount_bytes);
            self.key.extend_from_slice(name);
            let operation = label_value(name);
            let labels = [export, protocol, address, ("operation", &*operation)];
            let values = numbers.into_iter().enumerate().map(|(index, number)| {
                let scale = if index < FIRST_TIME { 1.0 } else { 1000.0 };
                Some(number as f64 / scale)
            });
            self.operations.set(out, &self.key, &labels, values)?;
        }
        Ok(())
    }
}

impl FileParser for MountstatsReadings {
    /// Parses the file. A node without NFS mounts has only lines about other file systems.
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        self.mounts.begin_pass();
        self.operations.begin_pass();
        parse(text, |mount| self.set(mount, out))?;
        self.mounts.end_pass(out);
        self.operations.end_pass(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::present_series;

    #[test]
    fn mounts_and_operations_appear_and_disappear() {
        let (mut readings, mut group) = (
            MountstatsReadings::new(),
            SampleGroup::new("mountstats", 3, 1000),
        );
        let text = "device proc mounted on /proc with fstype proc\n\
                    device srv:/home mounted on /home with fstype nfs4 statvers=1.1\n\
                    \topts:\trw,vers=4.2,proto=tcp,addr=192.0.2.1\n\tage:\t60\n\
                    \tbytes:\t1 2 3 4 5 6 7 8\n\tper-op statistics\n\
                    \t        NULL: 0 0 0 0 0 0 0 0\n\t        READ: 2 3 0 5 6 7 8 2500 0\n\n";
        readings.update(text.as_bytes(), &mut group).expect("valid");
        let found = present_series(&mut group);
        assert_eq!(found.len(), FAMILIES.len(), "{found:?}");
        let labels = "export=\"srv:/home\",mountaddr=\"192.0.2.1\"";
        assert_eq!(
            found[8],
            format!("node_mountstats_nfs_write_pages_total{{{labels},protocol=\"tcp\"}} 8")
        );
        let expected = format!(
            "node_mountstats_nfs_operations_request_time_seconds_total{{{labels},operation=\"READ\",protocol=\"tcp\"}} 2.5"
        );
        assert_eq!(found[16], expected);
        group.clear();
        let text = b"device proc mounted on /proc with fstype proc\n";
        readings.update(text, &mut group).expect("valid");
        assert!(present_series(&mut group).is_empty());
    }
}
