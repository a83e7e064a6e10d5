//! What a GPU answered, kept until it is asked again.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Family, Group, SeriesError, Slot};

use super::abi::{DRIVER_NOT_LOADED, UNINITIALIZED};
use super::abi::{Device, FieldValue, GPU_LOST, GPU_NOT_FOUND, RESET_REQUIRED, Refusal};
use super::beat::{Beat, Due, Pass};
use super::fields::FIELDS;
use super::functions::Functions;
use super::questions::{QUESTIONS, Question, Reading, VALUES_MAX};

/// What ends a pass over a GPU.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The GPU is gone.
    Gpu(Refusal),
    /// The driver is: no GPU will answer.
    Driver(Refusal),
    Series(SeriesError),
}

impl From<SeriesError> for Trouble {
    fn from(error: SeriesError) -> Trouble {
        Trouble::Series(error)
    }
}

impl Trouble {
    /// Most refusals concern one answer only: it is absent then.
    pub(super) fn of(refusal: Refusal) -> Option<Trouble> {
        match refusal {
            GPU_LOST | RESET_REQUIRED | GPU_NOT_FOUND => Some(Trouble::Gpu(refusal)),
            UNINITIALIZED | DRIVER_NOT_LOADED => Some(Trouble::Driver(refusal)),
            _ => None,
        }
    }
}

/// Declares series of one GPU.
pub(super) fn declare(
    out: &mut Group,
    family: &Family,
    gpu: &str,
    labels: &[(&str, &str)],
) -> Result<Slot, SeriesError> {
    let mut all = vec![("gpu", gpu)];
    all.extend_from_slice(labels);
    out.declare(&Arc::new(family.clone()), &all)
}

/// The answer to one question.
#[derive(Debug, Default)]
struct Answer {
    due: Due,
    /// One for each reading, from the first answer on.
    slots: Vec<Slot>,
    values: Option<[f64; VALUES_MAX]>,
}

impl Answer {
    fn is_due(&self, beat: Beat, pass: &Pass) -> bool {
        // The first answer comes in the first pass, however long that takes.
        let has_time = beat != Beat::Long || pass.has_time || self.slots.is_empty();
        self.due.is_due(pass.now) && has_time
    }

    /// Keeps what came; an answer that was refused is absent from now on.
    fn keep(
        &mut self,
        result: Result<[f64; VALUES_MAX], Refusal>,
        beat: Beat,
        now: Duration,
    ) -> Result<(), Trouble> {
        match result {
            Ok(values) => {
                self.values = Some(values);
                self.due.answered(beat, now);
            }
            Err(refusal) => {
                self.values = None;
                self.due.refused(now);
                if let Some(trouble) = Trouble::of(refusal) {
                    return Err(trouble);
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, readings: &[Reading], gpu: &str, out: &mut Group) -> Result<(), SeriesError> {
        let Some(values) = self.values else {
            return Ok(());
        };
        if self.slots.is_empty() {
            for reading in readings {
                let slot = declare(out, reading.family, gpu, reading.labels)?;
                self.slots.push(slot);
            }
        }
        for (&slot, value) in self.slots.iter().zip(values) {
            if !value.is_nan() {
                out.set(slot, value);
            }
        }
        Ok(())
    }
}

/// All answers of a GPU to [`QUESTIONS`] and [`FIELDS`].
#[derive(Debug)]
pub(super) struct Answers {
    questions: Vec<Answer>,
    fields: Vec<Answer>,
    /// The fields of one request, and whose they are.
    request: Vec<FieldValue>,
    asked: Vec<usize>,
}

impl Answers {
    pub(super) fn new() -> Answers {
        let answers = |count| (0..count).map(|_| Answer::default()).collect();
        Answers {
            questions: answers(QUESTIONS.len()),
            fields: answers(FIELDS.len()),
            request: Vec::with_capacity(FIELDS.len()),
            asked: Vec::with_capacity(FIELDS.len()),
        }
    }

    /// Of a GPU that is gone nothing is known.
    pub(super) fn forget(&mut self, out: &mut Group) {
        for answer in self.questions.iter_mut().chain(&mut self.fields) {
            let gone = std::mem::take(answer);
            gone.slots.into_iter().for_each(|slot| out.retire(slot));
        }
    }

    pub(super) fn collect(
        &mut self,
        nvml: &Functions,
        device: Device,
        gpu: &str,
        pass: &mut Pass,
        out: &mut Group,
    ) -> Result<(), Trouble> {
        for (question, answer) in QUESTIONS.iter().zip(&mut self.questions) {
            if answer.is_due(question.beat, pass) {
                answer.keep(ask(question, nvml, device), question.beat, pass.now)?;
                pass.has_time &= question.beat != Beat::Long;
            }
            answer.set(question.readings, gpu, out)?;
        }
        self.ask_fields(nvml, device, pass)?;
        for (field, answer) in FIELDS.iter().zip(&mut self.fields) {
            answer.set(std::slice::from_ref(&field.reading), gpu, out)?;
        }
        Ok(())
    }

    /// All that are due, in one request.
    fn ask_fields(&mut self, nvml: &Functions, device: Device, pass: &Pass) -> Result<(), Trouble> {
        self.request.clear();
        self.asked.clear();
        for (index, (field, answer)) in FIELDS.iter().zip(&self.fields).enumerate() {
            if answer.is_due(field.beat, pass) {
                self.request.push(FieldValue {
                    id: field.id,
                    scope: field.scope,
                    ..FieldValue::default()
                });
                self.asked.push(index);
            }
        }
        if self.request.is_empty() {
            return Ok(());
        }
        let result = nvml.fields.ask(device, &mut self.request);
        for (&index, value) in self.asked.iter().zip(&self.request) {
            let (field, answer) = (&FIELDS[index], &mut self.fields[index]);
            let result = result.and_then(|()| field.value(value));
            answer.keep(result, field.beat, pass.now)?;
        }
        Ok(())
    }
}

fn ask(
    question: &Question,
    nvml: &Functions,
    device: Device,
) -> Result<[f64; VALUES_MAX], Refusal> {
    let mut values = [f64::NAN; VALUES_MAX];
    (question.ask)(nvml, device, &mut values)?;
    Ok(values)
}
