//! Properties and link state of each network interface, from `/sys/class/net`.

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

// With the file of each value.
families! {
    sources: &str;
    ADDRESS_TYPE Gauge 2 "node_network_address_assign_type" "" "Origin of the hardware address: 0 permanent, 1 random, 2 stolen from another interface, 3 set by user space." <- "addr_assign_type";
    CARRIER Gauge 2 "node_network_carrier" "" "1 if the interface has a carrier, otherwise 0." <- "carrier";
    CARRIER_CHANGES Counter 2 "node_network_carrier_changes_total" "" "Total number of carrier changes." <- "carrier_changes";
    CARRIER_UP Counter 2 "node_network_carrier_up_changes_total" "" "Total number of changes to carrier up." <- "carrier_up_count";
    CARRIER_DOWN Counter 2 "node_network_carrier_down_changes_total" "" "Total number of changes to carrier down." <- "carrier_down_count";
    DEVICE_ID Gauge 2 "node_network_device_id" "" "Device ID, which distinguishes interfaces with the same hardware address." <- "dev_id";
    DORMANT Gauge 2 "node_network_dormant" "" "1 if the interface waits for an external event before it can pass packets, otherwise 0." <- "dormant";
    FLAGS Gauge 2 "node_network_flags" "" "Flags of the interface as a bit mask." <- "flags";
    INDEX Gauge 2 "node_network_iface_id" "" "Index of the interface." <- "ifindex";
    LINK Gauge 2 "node_network_iface_link" "" "Index of the underlying interface; the interface's own index if there is none." <- "iflink";
    LINK_MODE Gauge 2 "node_network_iface_link_mode" "" "Link mode: 0 default, 1 the interface becomes dormant when its link comes up." <- "link_mode";
    MTU Gauge 2 "node_network_mtu_bytes" "bytes" "Maximum transmission unit, in bytes." <- "mtu";
    NAME_TYPE Gauge 2 "node_network_name_assign_type" "" "Origin of the interface name: 1 enumerated by the kernel, 2 predictable, 3 set by user space, 4 renamed." <- "name_assign_type";
    GROUP Gauge 2 "node_network_net_dev_group" "" "Group of the interface, set by an administrator." <- "netdev_group";
    SPEED Gauge 2 "node_network_speed_bytes" "bytes" "Speed of the link, in bytes per second; absent if the driver does not report it." <- "speed";
    QUEUE Gauge 2 "node_network_transmit_queue_length" "" "Maximum length of the transmit queue, in packets." <- "tx_queue_len";
    PROTOCOL Gauge 2 "node_network_protocol_type" "" "Type of the hardware: 1 Ethernet, 32 InfiniBand, 772 loopback." <- "type";
    NO_HANDLER Counter 2 "node_network_receive_nohandler_total" "" "Total number of packets received on an inactive interface and dropped." <- "statistics/rx_nohandler";
    UP Gauge 2 "node_network_up" "" "1 if the operational state of the interface is up, otherwise 0.";
    INFO Gauge 2 "node_network_info" "" "Addresses and state of the interface; always 1.";
}

const INFO_FILES: [&str; 5] = ["address", "broadcast", "duplex", "operstate", "ifalias"];

/// Runs on a thread of its own, because drivers query the hardware for some attributes.
pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("netclass", Tier::Minute, FAMILIES, |context| {
        open_walk(context, "sys/class/net", NetworkInterfaces)
    });

#[derive(Debug)]
struct NetworkInterfaces;

impl SysfsWalk for NetworkInterfaces {
    fn walk(&mut self, class: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        for device in class.names() {
            // Skips files such as `bonding_masters`.
            let Some(folder) = class.subdir(&device) else {
                continue;
            };
            put.set_current_path(folder.path());
            walk_interface(&device, &folder, put)?;
        }
        Ok(())
    }
}

fn walk_interface(
    device: &str,
    folder: &SysfsDir,
    put: &mut SeriesWriter<'_>,
) -> Result<(), ProcParseError> {
    let labels = [("device", device)];
    for (family, file) in SOURCES {
        let value = folder.number(file);
        let value = match *file {
            // In Mbit/s; unknown is -1 or all bits set.
            "speed" => value
                .filter(|speed| (0.0..4e9).contains(speed))
                .map(|mbit| mbit * 1e6 / 8.0),
            _ => value,
        };
        put.set_if_some(family, &labels, value)?;
    }
    let info = INFO_FILES.map(|file| (file, folder.text(file).unwrap_or_default()));
    let is_up = info.contains(&("operstate", "up".to_owned()));
    put.set(&UP, &labels, f64::from(u8::from(is_up)))?;
    put.set_info(&INFO, &labels, &info)
}
