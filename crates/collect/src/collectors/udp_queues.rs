//! Bytes waiting in the queues of UDP sockets, from `/proc/net/udp` and `/proc/net/udp6`.

use pegel_metric::SampleGroup;

use crate::dynamic_series::DynamicSeries;
use crate::families::families;
use crate::file_collector::{FileParser, open_files, parsed_file};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, check_heading, non_empty_lines, parse_hex};
use crate::{CollectorEntry, Context, OpenResult, Tier};

families! {
    QUEUES Gauge 2 "node_udp_queues" "" "Number of bytes in the send (tx) or receive (rx) queues of all UDP sockets.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("udp_queues", Tier::FiveSeconds, FAMILIES, open);

fn open(context: &Context) -> OpenResult {
    open_files(
        [("proc/net/udp", "v4"), ("proc/net/udp6", "v6")].map(|(path, ip)| {
            let readings = UdpQueueReadings {
                ip,
                series: DynamicSeries::default(),
            };
            parsed_file(context, path, ReadMode::UntilEof, readings)
        }),
    )
}

#[derive(Debug)]
struct UdpQueueReadings {
    ip: &'static str,
    series: DynamicSeries,
}

impl FileParser for UdpQueueReadings {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        let (sent, received) = sum_queues(text)?;
        let mut put = self.series.begin_pass(out);
        for (queue, bytes) in [("tx", sent), ("rx", received)] {
            put.set(&QUEUES, &[("ip", self.ip), ("queue", queue)], bytes as f64)?;
        }
        Ok(())
    }
}

/// Sums the queues of lines such as `0: 0100007F:0035 00000000:0000 07 00000000:00000000 …`, whose
/// fifth word has both.
fn sum_queues(text: &[u8]) -> Result<(u64, u64), ProcParseError> {
    let mut lines = non_empty_lines(text)?;
    check_heading(&mut lines, b"sl ", "expected the header of sockets")?;
    let (mut sent, mut received) = (0_u64, 0_u64);
    for (number, line) in lines {
        let malformed = ProcParseError::at_line(number, "expected a socket and its queues");
        let queues = Words(line).nth(4).and_then(|word| {
            let colon = word.iter().position(|&byte| byte == b':')?;
            Some((parse_hex(&word[..colon])?, parse_hex(&word[colon + 1..])?))
        });
        let (send, receive) = queues.ok_or(malformed)?;
        sent = sent.saturating_add(send);
        received = received.saturating_add(receive);
    }
    Ok((sent, received))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::update_fails;

    const HEADING: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr\n";

    #[test]
    fn queues_are_added_up() {
        let text = format!(
            "{HEADING} 1: 0100007F:0035 00000000:0000 07 00000001:000000FF 00:0\n\
             12: 0100007F:0035 00000000:0000 07 00000002:00000001 00:0\n"
        );
        assert_eq!(sum_queues(text.as_bytes()), Ok((3, 256)));
        assert_eq!(sum_queues(HEADING.as_bytes()), Ok((0, 0)));
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let what = "expected a socket and its queues";
        let bad = |line: &str| format!("{HEADING}{line}");
        update_fails(
            |text| sum_queues(text).map(|_| ()),
            &[
                ("", 0, "empty file"),
                ("0: a b c 1:2\n", 1, "expected the header of sockets"),
                (&bad("0: a b c 1:2"), 2, "the last line is cut off"),
                (&bad("0: a b c\n"), 2, what),
                (&bad("0: a b c 12\n"), 2, what),
                (&bad("0: a b c 1:\n"), 2, what),
            ],
        );
    }
}
