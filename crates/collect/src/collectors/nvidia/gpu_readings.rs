//! The readings of a GPU, cached until their query is due again.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Family, SampleGroup, SeriesError, Slot};

use super::abi::{DRIVER_NOT_LOADED, UNINITIALIZED};
use super::abi::{FieldValue, GPU_LOST, GPU_NOT_FOUND, NvmlDevice, NvmlError, RESET_REQUIRED};
use super::fields::FIELDS;
use super::functions::Functions;
use super::queries::{GpuSeriesSpec, NvmlQuery, QUERIES, VALUES_MAX};
use super::query_interval::{DueTime, PassBudget, QueryInterval};

/// An error that ends the pass over a GPU.
#[derive(Debug)]
pub(super) enum GpuError {
    /// The GPU is lost.
    GpuLost(NvmlError),
    /// The driver is gone: no GPU will respond.
    DriverLost(NvmlError),
    Series(SeriesError),
}

impl From<SeriesError> for GpuError {
    fn from(error: SeriesError) -> GpuError {
        GpuError::Series(error)
    }
}

impl GpuError {
    /// Returns `None` for errors that concern only one reading, which is then absent.
    pub(super) fn from_nvml(error: NvmlError) -> Option<GpuError> {
        match error {
            GPU_LOST | RESET_REQUIRED | GPU_NOT_FOUND => Some(GpuError::GpuLost(error)),
            UNINITIALIZED | DRIVER_NOT_LOADED => Some(GpuError::DriverLost(error)),
            _ => None,
        }
    }
}

/// Declares a series of one GPU.
pub(super) fn declare_gpu_series(
    out: &mut SampleGroup,
    family: &Family,
    gpu: &str,
    labels: &[(&str, &str)],
) -> Result<Slot, SeriesError> {
    let mut all = vec![("gpu", gpu)];
    all.extend_from_slice(labels);
    out.declare(&Arc::new(family.clone()), &all)
}

/// A series of a GPU, declared with its first value.
#[derive(Debug, Default)]
pub(super) struct GpuSeries(Option<Slot>);

impl GpuSeries {
    pub(super) fn set(
        &mut self,
        out: &mut SampleGroup,
        family: &Family,
        gpu: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) -> Result<(), SeriesError> {
        let slot = match self.0 {
            Some(slot) => slot,
            None => *self.0.insert(declare_gpu_series(out, family, gpu, labels)?),
        };
        out.set(slot, value);
        Ok(())
    }

    pub(super) fn retire(&mut self, out: &mut SampleGroup) {
        if let Some(slot) = self.0.take() {
            out.retire(slot);
        }
    }
}

/// The last result of one query.
#[derive(Debug, Default)]
struct CachedReading {
    due: DueTime,
    /// One for each series, declared with the first result.
    slots: Vec<Slot>,
    values: Option<[f64; VALUES_MAX]>,
}

impl CachedReading {
    fn is_due(&self, interval: QueryInterval, pass: &PassBudget) -> bool {
        // The first pass runs every query, however long that takes.
        let has_time =
            interval != QueryInterval::Blocking || pass.allows_blocking || self.slots.is_empty();
        self.due.is_due(pass.now) && has_time
    }

    /// Stores a result. After an error the reading is absent until the next success.
    fn store(
        &mut self,
        result: Result<[f64; VALUES_MAX], NvmlError>,
        interval: QueryInterval,
        now: Duration,
    ) -> Result<(), GpuError> {
        match result {
            Ok(values) => {
                self.values = Some(values);
                self.due.succeeded(interval, now);
            }
            Err(error) => {
                self.values = None;
                self.due.failed(now);
                if let Some(fatal) = GpuError::from_nvml(error) {
                    return Err(fatal);
                }
            }
        }
        Ok(())
    }

    fn set(
        &mut self,
        readings: &[GpuSeriesSpec],
        gpu: &str,
        out: &mut SampleGroup,
    ) -> Result<(), SeriesError> {
        let Some(values) = self.values else {
            return Ok(());
        };
        if self.slots.is_empty() {
            for reading in readings {
                let slot = declare_gpu_series(out, reading.family, gpu, reading.labels)?;
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

/// The cached results of all [`QUERIES`] and [`FIELDS`] of a GPU.
#[derive(Debug)]
pub(super) struct GpuReadings {
    queries: Vec<CachedReading>,
    fields: Vec<CachedReading>,
    /// The fields of the current request; `requested_fields` has their indexes in [`FIELDS`].
    request: Vec<FieldValue>,
    requested_fields: Vec<usize>,
}

impl GpuReadings {
    pub(super) fn new() -> GpuReadings {
        let answers = |count| (0..count).map(|_| CachedReading::default()).collect();
        GpuReadings {
            queries: answers(QUERIES.len()),
            fields: answers(FIELDS.len()),
            request: Vec::with_capacity(FIELDS.len()),
            requested_fields: Vec::with_capacity(FIELDS.len()),
        }
    }

    /// Retires the series of a lost GPU.
    pub(super) fn retire_all(&mut self, out: &mut SampleGroup) {
        for answer in self.queries.iter_mut().chain(&mut self.fields) {
            let retired = std::mem::take(answer);
            retired.slots.into_iter().for_each(|slot| out.retire(slot));
        }
    }

    pub(super) fn collect(
        &mut self,
        nvml: &Functions,
        device: NvmlDevice,
        gpu: &str,
        pass: &mut PassBudget,
        out: &mut SampleGroup,
    ) -> Result<(), GpuError> {
        for (query, answer) in QUERIES.iter().zip(&mut self.queries) {
            if answer.is_due(query.interval, pass) {
                answer.store(run_query(query, nvml, device), query.interval, pass.now)?;
                pass.allows_blocking &= query.interval != QueryInterval::Blocking;
            }
            answer.set(query.series, gpu, out)?;
        }
        self.query_fields(nvml, device, pass)?;
        for (field, answer) in FIELDS.iter().zip(&mut self.fields) {
            answer.set(std::slice::from_ref(&field.series), gpu, out)?;
        }
        Ok(())
    }

    /// Queries all fields that are due, in one call.
    fn query_fields(
        &mut self,
        nvml: &Functions,
        device: NvmlDevice,
        pass: &PassBudget,
    ) -> Result<(), GpuError> {
        self.request.clear();
        self.requested_fields.clear();
        for (index, (field, answer)) in FIELDS.iter().zip(&self.fields).enumerate() {
            if answer.is_due(field.interval, pass) {
                self.request.push(FieldValue {
                    id: field.id,
                    scope: field.scope,
                    ..FieldValue::default()
                });
                self.requested_fields.push(index);
            }
        }
        if self.request.is_empty() {
            return Ok(());
        }
        let result = nvml.fields.query(device, &mut self.request);
        for (&index, value) in self.requested_fields.iter().zip(&self.request) {
            let (field, answer) = (&FIELDS[index], &mut self.fields[index]);
            let result = result.and_then(|()| field.value(value));
            answer.store(result, field.interval, pass.now)?;
        }
        Ok(())
    }
}

fn run_query(
    query: &NvmlQuery,
    nvml: &Functions,
    device: NvmlDevice,
) -> Result<[f64; VALUES_MAX], NvmlError> {
    let mut values = [f64::NAN; VALUES_MAX];
    (query.run)(nvml, device, &mut values)?;
    Ok(values)
}
