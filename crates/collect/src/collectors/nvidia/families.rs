//! The families of the collector `nvidia`. Every series has the label `gpu`, the index that
//! nvidia-smi shows.

use crate::families::families;

families! {
    UP Gauge 3 "node_nvidia_up" "" "1 if the GPU responds, 0 if it fell off the bus.";
    INFO Gauge 3 "node_nvidia_info" "" "Name, UUID, driver and firmware version of the GPU; always 1.";
    GPU_UTILIZATION Gauge 3 "node_nvidia_gpu_utilization_ratio" "ratio" "Share of the driver's last measuring period in which a kernel was running.";
    MEMORY_UTILIZATION Gauge 3 "node_nvidia_memory_utilization_ratio" "ratio" "Share of the driver's last measuring period in which GPU memory was read or written.";
    ENCODER Gauge 3 "node_nvidia_encoder_utilization_ratio" "ratio" "Utilization of the video encoders.";
    DECODER Gauge 3 "node_nvidia_decoder_utilization_ratio" "ratio" "Utilization of the video decoders.";
    JPEG Gauge 3 "node_nvidia_jpeg_utilization_ratio" "ratio" "Utilization of the JPEG engines.";
    OFA Gauge 3 "node_nvidia_ofa_utilization_ratio" "ratio" "Utilization of the optical flow accelerator.";
    MEMORY_TOTAL Gauge 3 "node_nvidia_memory_total_bytes" "bytes" "Size of the GPU's memory, in bytes.";
    MEMORY_USED Gauge 3 "node_nvidia_memory_used_bytes" "bytes" "GPU memory in use, in bytes; excludes reserved memory if the driver reports that separately.";
    MEMORY_FREE Gauge 3 "node_nvidia_memory_free_bytes" "bytes" "Free GPU memory, in bytes.";
    MEMORY_RESERVED Gauge 3 "node_nvidia_memory_reserved_bytes" "bytes" "GPU memory reserved by the driver and the firmware, in bytes.";
    BAR1_TOTAL Gauge 3 "node_nvidia_bar1_memory_total_bytes" "bytes" "Size of the BAR1 window, through which the host and other devices access GPU memory, in bytes.";
    BAR1_USED Gauge 3 "node_nvidia_bar1_memory_used_bytes" "bytes" "Used part of the BAR1 window, in bytes.";
    POWER Gauge 3 "node_nvidia_power_watts" "watts" "Power drawn by the GPU, in watts; on newer GPUs the average over one second.";
    POWER_INSTANT Gauge 3 "node_nvidia_power_instant_watts" "watts" "Instantaneous power drawn by the GPU, in watts.";
    MEMORY_POWER Gauge 3 "node_nvidia_memory_power_watts" "watts" "Power drawn by the GPU's memory, in watts.";
    POWER_LIMIT Gauge 3 "node_nvidia_power_limit_watts" "watts" "Power limit in effect, in watts.";
    ENERGY Counter 3 "node_nvidia_energy_joules_total" "joules" "Total energy used since the driver was loaded, in joules.";
    TEMPERATURE Gauge 3 "node_nvidia_temperature_celsius" "celsius" "Temperature of the GPU, in degrees Celsius.";
    MEMORY_TEMPERATURE Gauge 3 "node_nvidia_memory_temperature_celsius" "celsius" "Temperature of the GPU's memory, in degrees Celsius.";
    TEMPERATURE_MARGIN Gauge 3 "node_nvidia_temperature_margin_celsius" "celsius" "Margin to the temperature at which the GPU slows down, in degrees Celsius.";
    CLOCK Gauge 3 "node_nvidia_clock_hertz" "hertz" "Clock frequency, in hertz.";
    CLOCK_MAX Gauge 3 "node_nvidia_clock_max_hertz" "hertz" "Maximum clock frequency, in hertz.";
    CLOCKS_EVENT Gauge 3 "node_nvidia_clocks_event" "" "1 if the clocks are reduced for this reason, otherwise 0.";
    CLOCKS_EVENT_SECONDS Counter 3 "node_nvidia_clocks_event_seconds_total" "seconds" "Total time in which the clocks were reduced for this reason, in seconds.";
    PERFORMANCE_STATE Gauge 3 "node_nvidia_performance_state" "" "Performance state, from 0 (fastest) to 15.";
    FAN Gauge 3 "node_nvidia_fan_speed_ratio" "ratio" "Fan speed as a share of its maximum.";
    PCIE_GENERATION Gauge 3 "node_nvidia_pcie_link_generation" "" "Current generation of the PCIe link.";
    PCIE_WIDTH Gauge 3 "node_nvidia_pcie_link_width" "" "Current number of lanes of the PCIe link.";
    PCIE_GENERATION_MAX Gauge 3 "node_nvidia_pcie_link_max_generation" "" "Highest PCIe generation that the GPU and the slot support.";
    PCIE_WIDTH_MAX Gauge 3 "node_nvidia_pcie_link_max_width" "" "Largest number of PCIe lanes that the GPU and the slot support.";
    PCIE_RECEIVE Gauge 3 "node_nvidia_pcie_receive_bytes_per_second" "bytes_per_second" "Rate at which the GPU receives over PCIe, measured over 20 ms, in bytes per second.";
    PCIE_TRANSMIT Gauge 3 "node_nvidia_pcie_transmit_bytes_per_second" "bytes_per_second" "Rate at which the GPU sends over PCIe, measured over 20 ms, in bytes per second.";
    PCIE_REPLAYS Counter 3 "node_nvidia_pcie_replays_total" "" "Total number of PCIe packets that were sent again.";
    ECC_ENABLED Gauge 3 "node_nvidia_ecc_enabled" "" "1 if error correction (ECC) of the memory is enabled, otherwise 0.";
    ECC_ERRORS Counter 3 "node_nvidia_ecc_errors_total" "" "Total number of memory errors, since the driver was loaded (volatile) or over the GPU's life (aggregate).";
    REMAPPED_ROWS Counter 3 "node_nvidia_remapped_rows_total" "" "Total number of memory rows replaced by spare rows.";
    REMAP_PENDING Gauge 3 "node_nvidia_row_remap_pending" "" "1 if rows will be remapped at the next reset, otherwise 0.";
    REMAP_FAILED Gauge 3 "node_nvidia_row_remap_failed" "" "1 if remapping a row failed, otherwise 0.";
    RETIRED_PAGES Counter 3 "node_nvidia_retired_pages_total" "" "Total number of memory pages taken out of use.";
    RETIREMENT_PENDING Gauge 3 "node_nvidia_page_retirement_pending" "" "1 if pages will be taken out of use at the next reset, otherwise 0.";
    XID_ERRORS Counter 3 "node_nvidia_xid_errors_total" "" "Total number of errors that the driver reported since the agent started, by Xid.";
    XID_LAST Gauge 3 "node_nvidia_xid_last" "" "Xid of the last error that the driver reported since the agent started; 0 if none.";
    PROCESSES Gauge 3 "node_nvidia_processes" "" "Number of processes that use the GPU.";
    PROCESS_MEMORY Gauge 4 "node_nvidia_process_memory_bytes" "bytes" "GPU memory used by the process, in bytes; only the 64 largest.";
    MIG_ENABLED Gauge 3 "node_nvidia_mig_enabled" "" "1 if the GPU is partitioned into MIG devices, otherwise 0.";
    MIG_INFO Gauge 3 "node_nvidia_mig_info" "" "UUID and instances of the MIG device; always 1.";
    MIG_MULTIPROCESSORS Gauge 3 "node_nvidia_mig_multiprocessors" "" "Number of multiprocessors of the MIG device.";
    MIG_TOTAL Gauge 3 "node_nvidia_mig_memory_total_bytes" "bytes" "Size of the MIG device's memory, in bytes.";
    MIG_USED Gauge 3 "node_nvidia_mig_memory_used_bytes" "bytes" "Memory of the MIG device in use, in bytes.";
    MIG_FREE Gauge 3 "node_nvidia_mig_memory_free_bytes" "bytes" "Free memory of the MIG device, in bytes.";
    LINK_UP Gauge 3 "node_nvidia_nvlink_up" "" "1 if the NVLink is active, otherwise 0.";
    LINK_RECEIVE Counter 3 "node_nvidia_nvlink_receive_bytes_total" "bytes" "Total number of bytes received over the NVLink.";
    LINK_TRANSMIT Counter 3 "node_nvidia_nvlink_transmit_bytes_total" "bytes" "Total number of bytes sent over the NVLink.";
    LINK_ERRORS Counter 3 "node_nvidia_nvlink_errors_total" "" "Total number of errors of the NVLink, by kind.";
    DRAGON_UTILIZATION Gauge 3 "DeviceUtilization" "" "Share of time in which the GPU was busy, in percent; Dragon's name.";
    DRAGON_MEMORY Gauge 3 "DeviceMemoryUtilization" "" "Share of the GPU's memory in use, in percent; Dragon's name.";
    DRAGON_POWER Gauge 3 "DevicePowerUsage" "" "Power drawn by the GPU, in watts; Dragon's name.";
}
