//! The latest pass of the collector `top_processes`, shared with the server, and the GPU memory of
//! processes that the GPU collectors contribute to it. Locks are held for a copy of pointers only.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pegel_metric::ProcessTable;

/// The processes of this node as of the latest pass.
#[derive(Debug, Default)]
pub struct LiveProcesses {
    table: Mutex<Option<Arc<ProcessTable>>>,
    /// By GPU: its processes and the memory that each uses.
    gpu_memory: Mutex<BTreeMap<String, Vec<(u32, u64)>>>,
}

impl LiveProcesses {
    /// Returns the latest pass; `None` before the first.
    pub fn table(&self) -> Option<Arc<ProcessTable>> {
        self.table.lock().clone()
    }

    pub(crate) fn set_table(&self, table: ProcessTable) {
        *self.table.lock() = Some(Arc::new(table));
    }

    pub(crate) fn clear_table(&self) {
        *self.table.lock() = None;
    }

    /// Replaces the processes of a GPU.
    pub(crate) fn set_gpu(&self, gpu: &str, processes: impl Iterator<Item = (u32, u64)>) {
        let processes: Vec<(u32, u64)> = processes.collect();
        let mut gpus = self.gpu_memory.lock();
        if processes.is_empty() {
            gpus.remove(gpu);
        } else {
            gpus.insert(gpu.to_owned(), processes);
        }
    }

    /// Returns the memory of each process on all GPUs together, in bytes.
    pub(crate) fn gpu_memory(&self) -> BTreeMap<u32, u64> {
        let mut sums = BTreeMap::new();
        for (pid, bytes) in self.gpu_memory.lock().values().flatten() {
            let sum: &mut u64 = sums.entry(*pid).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_on_several_gpus_adds_up_until_a_gpu_is_gone() {
        let live = LiveProcesses::default();
        live.set_gpu("0", [(7, 100), (8, u64::MAX)].into_iter());
        live.set_gpu("1", [(7, 20), (8, 1)].into_iter());
        assert_eq!(live.gpu_memory(), BTreeMap::from([(7, 120), (8, u64::MAX)]));
        live.set_gpu("0", [].into_iter());
        assert_eq!(live.gpu_memory(), BTreeMap::from([(7, 20), (8, 1)]));
    }
}
