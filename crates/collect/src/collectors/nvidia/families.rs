//! What is published about NVIDIA GPUs. Every series has the label `gpu`, the number that the
//! driver's own tool shows.

use pegel_metric::{Family, Kind};

macro_rules! families {
    ($($static:ident $kind:ident $level:literal $name:literal $unit:literal $help:literal;)*) => {
        $(pub(super) static $static: Family =
            Family::new($name, Kind::$kind, $unit, $level, $help);)*
        pub(super) static ALL: &[&Family] = &[$(&$static),*];
    };
}

families! {
    UP Gauge 3 "node_nvidia_up" "" "1 if the GPU answers, 0 if it fell off the bus.";
    INFO Gauge 3 "node_nvidia_info" "" "What the GPU is; always 1.";
    GPU_UTILIZATION Gauge 3 "node_nvidia_gpu_utilization_ratio" "ratio" "Share of the last moments in which a kernel ran.";
    MEMORY_UTILIZATION Gauge 3 "node_nvidia_memory_utilization_ratio" "ratio" "Share of the last moments in which the GPU's memory was read or written.";
    ENCODER Gauge 3 "node_nvidia_encoder_utilization_ratio" "ratio" "Utilisation of the video encoders.";
    DECODER Gauge 3 "node_nvidia_decoder_utilization_ratio" "ratio" "Utilisation of the video decoders.";
    JPEG Gauge 3 "node_nvidia_jpeg_utilization_ratio" "ratio" "Utilisation of the JPEG engines.";
    OFA Gauge 3 "node_nvidia_ofa_utilization_ratio" "ratio" "Utilisation of the optical flow accelerator.";
    MEMORY_TOTAL Gauge 3 "node_nvidia_memory_total_bytes" "bytes" "Memory of the GPU.";
    MEMORY_USED Gauge 3 "node_nvidia_memory_used_bytes" "bytes" "Memory in use; without what the driver reserves, where it says that apart.";
    MEMORY_FREE Gauge 3 "node_nvidia_memory_free_bytes" "bytes" "Memory that is free.";
    MEMORY_RESERVED Gauge 3 "node_nvidia_memory_reserved_bytes" "bytes" "Memory that the driver and the firmware keep for themselves.";
    BAR1_TOTAL Gauge 3 "node_nvidia_bar1_memory_total_bytes" "bytes" "Size of the window through which others reach the GPU's memory.";
    BAR1_USED Gauge 3 "node_nvidia_bar1_memory_used_bytes" "bytes" "Part of that window in use.";
    POWER Gauge 3 "node_nvidia_power_watts" "watts" "Power drawn; on newer GPUs the average of the last second.";
    POWER_INSTANT Gauge 3 "node_nvidia_power_instant_watts" "watts" "Power drawn at this moment.";
    MEMORY_POWER Gauge 3 "node_nvidia_memory_power_watts" "watts" "Power drawn by the GPU's memory.";
    POWER_LIMIT Gauge 3 "node_nvidia_power_limit_watts" "watts" "Power that the GPU may draw, all limits considered.";
    ENERGY Counter 3 "node_nvidia_energy_joules_total" "joules" "Energy used since the driver was loaded.";
    TEMPERATURE Gauge 3 "node_nvidia_temperature_celsius" "celsius" "Temperature of the GPU.";
    MEMORY_TEMPERATURE Gauge 3 "node_nvidia_memory_temperature_celsius" "celsius" "Temperature of the GPU's memory.";
    TEMPERATURE_MARGIN Gauge 3 "node_nvidia_temperature_margin_celsius" "celsius" "How much warmer it may get before it slows down.";
    CLOCK Gauge 3 "node_nvidia_clock_hertz" "hertz" "Clock rate.";
    CLOCK_MAX Gauge 3 "node_nvidia_clock_max_hertz" "hertz" "Highest clock rate.";
    CLOCKS_EVENT Gauge 3 "node_nvidia_clocks_event" "" "1 if the clocks are held down for this reason.";
    CLOCKS_EVENT_SECONDS Counter 3 "node_nvidia_clocks_event_seconds_total" "seconds" "Time in which the clocks were held down for this reason.";
    PERFORMANCE_STATE Gauge 3 "node_nvidia_performance_state" "" "Performance state, from 0 (fastest) to 15.";
    FAN Gauge 3 "node_nvidia_fan_speed_ratio" "ratio" "Fan speed as a share of its highest.";
    PCIE_GENERATION Gauge 3 "node_nvidia_pcie_link_generation" "" "Generation at which the PCIe link runs.";
    PCIE_WIDTH Gauge 3 "node_nvidia_pcie_link_width" "" "Lanes of the PCIe link.";
    PCIE_GENERATION_MAX Gauge 3 "node_nvidia_pcie_link_max_generation" "" "Highest generation that GPU and slot can do.";
    PCIE_WIDTH_MAX Gauge 3 "node_nvidia_pcie_link_max_width" "" "Most lanes that GPU and slot have.";
    PCIE_RECEIVE Gauge 3 "node_nvidia_pcie_receive_bytes_per_second" "bytes_per_second" "What the GPU received over PCIe, measured over 20 ms.";
    PCIE_TRANSMIT Gauge 3 "node_nvidia_pcie_transmit_bytes_per_second" "bytes_per_second" "What the GPU sent over PCIe, measured over 20 ms.";
    PCIE_REPLAYS Counter 3 "node_nvidia_pcie_replays_total" "" "PCIe packets that were sent again.";
    ECC_ENABLED Gauge 3 "node_nvidia_ecc_enabled" "" "1 if the memory corrects errors.";
    ECC_ERRORS Counter 3 "node_nvidia_ecc_errors_total" "" "Memory errors, since the driver was loaded (volatile) or ever (aggregate).";
    REMAPPED_ROWS Counter 3 "node_nvidia_remapped_rows_total" "" "Rows of memory replaced by spare ones.";
    REMAP_PENDING Gauge 3 "node_nvidia_row_remap_pending" "" "1 if rows will be replaced at the next reset.";
    REMAP_FAILED Gauge 3 "node_nvidia_row_remap_failed" "" "1 if a row could not be replaced.";
    RETIRED_PAGES Counter 3 "node_nvidia_retired_pages_total" "" "Pages of memory taken out of use.";
    RETIREMENT_PENDING Gauge 3 "node_nvidia_page_retirement_pending" "" "1 if pages will be taken out of use at the next reset.";
    XID_ERRORS Counter 3 "node_nvidia_xid_errors_total" "" "Errors that the driver reported while the agent ran, by number.";
    XID_LAST Gauge 3 "node_nvidia_xid_last" "" "Number of the last error that the driver reported; 0 if none while the agent ran.";
    PROCESSES Gauge 3 "node_nvidia_processes" "" "Processes that use the GPU.";
    PROCESS_MEMORY Gauge 4 "node_nvidia_process_memory_bytes" "bytes" "GPU memory in use by a process: the 64 largest.";
    MIG_ENABLED Gauge 3 "node_nvidia_mig_enabled" "" "1 if the GPU is split into instances (MIG).";
    MIG_INFO Gauge 3 "node_nvidia_mig_info" "" "What the MIG device is; always 1.";
    MIG_MULTIPROCESSORS Gauge 3 "node_nvidia_mig_multiprocessors" "" "Multiprocessors of the MIG device.";
    MIG_TOTAL Gauge 3 "node_nvidia_mig_memory_total_bytes" "bytes" "Memory of the MIG device.";
    MIG_USED Gauge 3 "node_nvidia_mig_memory_used_bytes" "bytes" "Memory of the MIG device in use.";
    MIG_FREE Gauge 3 "node_nvidia_mig_memory_free_bytes" "bytes" "Memory of the MIG device that is free.";
    LINK_UP Gauge 3 "node_nvidia_nvlink_up" "" "1 if the NVLink is active.";
    LINK_RECEIVE Counter 3 "node_nvidia_nvlink_receive_bytes_total" "bytes" "Data received over the NVLink.";
    LINK_TRANSMIT Counter 3 "node_nvidia_nvlink_transmit_bytes_total" "bytes" "Data sent over the NVLink.";
    LINK_ERRORS Counter 3 "node_nvidia_nvlink_errors_total" "" "Errors of the NVLink.";
    DRAGON_UTILIZATION Gauge 3 "DeviceUtilization" "" "Share of time in which the GPU worked, in percent, under Dragon's name.";
    DRAGON_MEMORY Gauge 3 "DeviceMemoryUtilization" "" "Share of the GPU's memory in use, in percent, under Dragon's name.";
    DRAGON_POWER Gauge 3 "DevicePowerUsage" "" "Power that the GPU draws, in watts, under Dragon's name.";
}
