//! Properties and link state of each network interface, from `/sys/class/net`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::attribute::{attribute_number, attribute_text, directory_names};
use crate::cursor_map::CursorMap;
use crate::device_slots::{DeviceSlots, shared_families};
use crate::info_series::InfoSeries;
use crate::proc_parse::{ProcParseError, label_value};
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, CurrentOperation,
    Execution, OpenOutcome, Tier,
};

macro_rules! attributes {
    ($($static:ident $kind:ident $name:literal $unit:literal $file:literal $help:literal;)*) => {
        $(static $static: Family =
            Family::new(concat!("node_network_", $name), MetricKind::$kind, $unit, 2, $help);)*
        const FILES: &[&str] = &[$($file),*];
        static FAMILIES: &[&Family] = &[$(&$static,)* &UP];
        static ALL_FAMILIES: &[&Family] = &[$(&$static,)* &UP, &INFO];
    };
}

attributes! {
    ADDRESS_TYPE Gauge "address_assign_type" "" "addr_assign_type" "Origin of the hardware address: 0 permanent, 1 random, 2 stolen from another interface, 3 set by user space.";
    CARRIER Gauge "carrier" "" "carrier" "1 if the interface has a carrier, otherwise 0.";
    CARRIER_CHANGES Counter "carrier_changes_total" "" "carrier_changes" "Total number of carrier changes.";
    CARRIER_UP Counter "carrier_up_changes_total" "" "carrier_up_count" "Total number of changes to carrier up.";
    CARRIER_DOWN Counter "carrier_down_changes_total" "" "carrier_down_count" "Total number of changes to carrier down.";
    DEVICE_ID Gauge "device_id" "" "dev_id" "Device ID, which distinguishes interfaces with the same hardware address.";
    DORMANT Gauge "dormant" "" "dormant" "1 if the interface waits for an external event before it can pass packets, otherwise 0.";
    FLAGS Gauge "flags" "" "flags" "Flags of the interface as a bit mask.";
    INDEX Gauge "iface_id" "" "ifindex" "Index of the interface.";
    LINK Gauge "iface_link" "" "iflink" "Index of the underlying interface; the interface's own index if there is none.";
    LINK_MODE Gauge "iface_link_mode" "" "link_mode" "Link mode: 0 default, 1 the interface becomes dormant when its link comes up.";
    MTU Gauge "mtu_bytes" "bytes" "mtu" "Maximum transmission unit, in bytes.";
    NAME_TYPE Gauge "name_assign_type" "" "name_assign_type" "Origin of the interface name: 1 enumerated by the kernel, 2 predictable, 3 set by user space, 4 renamed.";
    GROUP Gauge "net_dev_group" "" "netdev_group" "Group of the interface, set by an administrator.";
    SPEED Gauge "speed_bytes" "bytes" "speed" "Speed of the link, in bytes per second; absent if the driver does not report it.";
    QUEUE Gauge "transmit_queue_length" "" "tx_queue_len" "Maximum length of the transmit queue, in packets.";
    PROTOCOL Gauge "protocol_type" "" "type" "Type of the hardware: 1 Ethernet, 32 InfiniBand, 772 loopback.";
    NO_HANDLER Counter "receive_nohandler_total" "" "statistics/rx_nohandler" "Total number of packets received on an inactive interface and dropped.";
}
static UP: Family = Family::new(
    "node_network_up",
    MetricKind::Gauge,
    "",
    2,
    "1 if the operational state of the interface is up, otherwise 0.",
);
static INFO: Family = Family::new(
    "node_network_info",
    MetricKind::Gauge,
    "",
    2,
    "Addresses and state of the interface; always 1.",
);

const INFO_KEYS: [&str; 5] = ["address", "broadcast", "duplex", "operstate", "ifalias"];

/// Runs on a thread of its own, because drivers query the hardware for some attributes.
pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "netclass",
    tier: Tier::Minute,
    execution: Execution::Threaded,
    level: 2,
    families: ALL_FAMILIES,
    open,
};

#[derive(Debug)]
struct Netclass {
    folder: PathBuf,
    operation: CurrentOperation,
    families: Vec<Arc<Family>>,
    interfaces: CursorMap<InterfaceSeries>,
}

#[derive(Debug)]
struct InterfaceSeries {
    slots: DeviceSlots,
    info: InfoSeries,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let folder = context.host.sys.join("class/net");
    if !folder.is_dir() {
        return Ok(OpenOutcome::Absent { looked_for: folder });
    }
    Ok(OpenOutcome::Active(Box::new(Netclass {
        folder,
        operation: context.operation.clone(),
        families: shared_families(FAMILIES),
        interfaces: CursorMap::new(),
    })))
}

impl Collector for Netclass {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.interfaces.begin_pass();
        for name in directory_names(&self.folder) {
            let path = self.folder.join(&name);
            // Skip files such as `bonding_masters`.
            if !path.is_dir() {
                continue;
            }
            self.operation.set(&path.to_string_lossy());
            let set = self.set(&path, name.as_bytes(), out);
            set.map_err(|fault| fault.at_path(&path))?;
        }
        self.interfaces.sweep(|mut interface| {
            interface.slots.retire(out);
            interface.info.retire(out);
        });
        Ok(())
    }
}

impl Netclass {
    fn set(
        &mut self,
        path: &Path,
        name: &[u8],
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        let families = &self.families;
        let interface = self.interfaces.entry(name, || {
            Ok(InterfaceSeries {
                slots: DeviceSlots::new(families),
                info: InfoSeries::new(&INFO),
            })
        })?;
        let device = label_value(name);
        let labels = [("device", &*device)];
        for (index, file) in FILES.iter().enumerate() {
            let Some(value) = attribute_number(&path.join(file)) else {
                continue;
            };
            let value = match *file {
                // In Mbit/s; unknown is -1 or all bits set.
                "speed" if !(0.0..4e9).contains(&value) => continue,
                "speed" => value * 1e6 / 8.0,
                _ => value,
            };
            interface.slots.set(out, families, index, &labels, value)?;
        }
        let info: Vec<(&str, String)> = INFO_KEYS
            .map(|key| (key, attribute_text(&path.join(key)).unwrap_or_default()))
            .into();
        let is_up = info.contains(&("operstate", "up".to_owned()));
        let value = f64::from(u8::from(is_up));
        // UP is the last family, after those with a file.
        interface
            .slots
            .set(out, families, FILES.len(), &labels, value)?;
        let mut labels = vec![("device", device.clone().into_owned())];
        labels.extend(info);
        Ok(interface.info.set(out, labels, 1.0)?)
    }
}
