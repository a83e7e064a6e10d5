//! The cost of a line between the kernel and the store: parsing, lookup of its name, aggregation.

use std::sync::Arc;

use pegel_bench::{BenchReport, FigureGate, cpu_time};
use pegel_ingest::admission::{Admission, AdmissionSettings, SenderLimits};
use pegel_ingest::statsd::{LineOrigin, StatsdInput, StatsdSettings};
use pegel_metric::Input;

use crate::load;

pub(crate) fn measure(report: &mut BenchReport) {
    let settings = AdmissionSettings {
        series_max: 100_000,
        senders: SenderLimits::of_series(100_000),
        text_bytes_max: 64 << 20,
        ..AdmissionSettings::for_tests()
    };
    let gate = Arc::new(Admission::new(settings, Arc::default()));
    let statsd = StatsdInput::new(&StatsdSettings::default(), &gate);
    let origin = LineOrigin {
        sender: gate.sender(Input::Statsd, "bench"),
        id: 1,
    };
    let datagrams = load::datagrams(20);
    let round = || {
        for datagram in &datagrams {
            statsd.apply_lines(datagram, &origin).expect("valid lines");
        }
    };
    round();
    const ROUNDS: usize = 1000;
    let figures = (0..report.repetitions(9))
        .map(|_| {
            let before = cpu_time();
            (0..ROUNDS).for_each(|_| round());
            (cpu_time() - before).as_nanos() as f64 / (ROUNDS * load::NAMES) as f64
        })
        .collect();
    report.row(
        "a line into the table, 20 per datagram",
        "ns",
        FigureGate::AtMost(60.0),
        figures,
    );
}
