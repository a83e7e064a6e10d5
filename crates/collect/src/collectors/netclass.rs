//! What each network interface is and whether it works, from `/sys/class/net`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_metric::{Family, Group, Kind};

use crate::attribute::{names, number, text};
use crate::fact::Fact;
use crate::places::{Places, shared};
use crate::roster::Roster;
use crate::scan::{Fault, label};
use crate::{CollectError, Collector, Context, Entry, Note, OpenError, Opened, Pace, Tier};

macro_rules! attributes {
    ($($static:ident $kind:ident $name:literal $unit:literal $file:literal $help:literal;)*) => {
        $(static $static: Family =
            Family::new(concat!("node_network_", $name), Kind::$kind, $unit, 2, $help);)*
        const FILES: &[&str] = &[$($file),*];
        static FAMILIES: &[&Family] = &[$(&$static,)* &UP];
        static ALL_FAMILIES: &[&Family] = &[$(&$static,)* &UP, &INFO];
    };
}

attributes! {
    ADDRESS_TYPE Gauge "address_assign_type" "" "addr_assign_type" "How the interface got its address: 0 from the hardware, 1 at random, 2 from another interface, 3 set.";
    CARRIER Gauge "carrier" "" "carrier" "1 if the link is there.";
    CARRIER_CHANGES Counter "carrier_changes_total" "" "carrier_changes" "Times that the link went or came.";
    CARRIER_UP Counter "carrier_up_changes_total" "" "carrier_up_count" "Times that the link came.";
    CARRIER_DOWN Counter "carrier_down_changes_total" "" "carrier_down_count" "Times that the link went.";
    DEVICE_ID Gauge "device_id" "" "dev_id" "Tells interfaces apart that share an address.";
    DORMANT Gauge "dormant" "" "dormant" "1 if the interface waits for something outside before it can be used.";
    FLAGS Gauge "flags" "" "flags" "The interface's flags, as one number.";
    INDEX Gauge "iface_id" "" "ifindex" "The interface's number.";
    LINK Gauge "iface_link" "" "iflink" "The number of the interface below this one; its own if there is none.";
    LINK_MODE Gauge "iface_link_mode" "" "link_mode" "1 if the interface stays dormant when its link comes.";
    MTU Gauge "mtu_bytes" "bytes" "mtu" "The largest packet that can be sent.";
    NAME_TYPE Gauge "name_assign_type" "" "name_assign_type" "How the interface got its name: 1 by count, 2 predictable, 3 by a program, 4 renamed.";
    GROUP Gauge "net_dev_group" "" "netdev_group" "The group that an administrator put the interface into.";
    SPEED Gauge "speed_bytes" "bytes" "speed" "Bytes per second that the link can carry; absent where the driver does not know.";
    QUEUE Gauge "transmit_queue_length" "" "tx_queue_len" "Packets that may wait to be sent.";
    PROTOCOL Gauge "protocol_type" "" "type" "The kind of hardware: 1 Ethernet, 32 InfiniBand, 772 loopback.";
    NO_HANDLER Counter "receive_nohandler_total" "" "statistics/rx_nohandler" "Packets received on an interface that is not in use.";
}
static UP: Family = Family::new(
    "node_network_up",
    Kind::Gauge,
    "",
    2,
    "1 if the interface can carry packets.",
);
static INFO: Family = Family::new(
    "node_network_info",
    Kind::Gauge,
    "",
    2,
    "Addresses and state of the interface; always 1.",
);

const INFO_KEYS: [&str; 5] = ["address", "broadcast", "duplex", "operstate", "ifalias"];

/// Aside, because drivers answer some of it by talking to the hardware.
pub static ENTRY: Entry = Entry {
    name: "netclass",
    tier: Tier::Minute,
    pace: Pace::Aside,
    level: 2,
    families: ALL_FAMILIES,
    open,
};

#[derive(Debug)]
struct Netclass {
    folder: PathBuf,
    operation: Note,
    families: Vec<Arc<Family>>,
    interfaces: Roster<InterfaceSeries>,
}

#[derive(Debug)]
struct InterfaceSeries {
    slots: Places,
    info: Fact,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let folder = context.host.sys.join("class/net");
    if !folder.is_dir() {
        return Ok(Opened::Absent { looked_for: folder });
    }
    Ok(Opened::Active(Box::new(Netclass {
        folder,
        operation: context.note.clone(),
        families: shared(FAMILIES),
        interfaces: Roster::new(),
    })))
}

impl Collector for Netclass {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        self.interfaces.begin();
        for name in names(&self.folder) {
            let path = self.folder.join(&name);
            // `bonding_masters` lies there too.
            if !path.is_dir() {
                continue;
            }
            self.operation.set(&path.to_string_lossy());
            let set = self.set(&path, name.as_bytes(), out);
            set.map_err(|fault| fault.at(&path))?;
        }
        self.interfaces.sweep(|mut interface| {
            interface.slots.retire(out);
            interface.info.retire(out);
        });
        Ok(())
    }
}

impl Netclass {
    fn set(&mut self, path: &Path, name: &[u8], out: &mut Group) -> Result<(), Fault> {
        let families = &self.families;
        let interface = self.interfaces.entry(name, || {
            Ok(InterfaceSeries {
                slots: Places::new(families),
                info: Fact::new(&INFO),
            })
        })?;
        let device = label(name);
        let labels = [("device", &*device)];
        for (index, file) in FILES.iter().enumerate() {
            let Some(value) = number(&path.join(file)) else {
                continue;
            };
            let value = match *file {
                // Megabits; -1 or all bits when it is not known.
                "speed" if !(0.0..4e9).contains(&value) => continue,
                "speed" => value * 1e6 / 8.0,
                _ => value,
            };
            interface.slots.set(out, families, index, &labels, value)?;
        }
        let said: Vec<(&str, String)> = INFO_KEYS
            .map(|key| (key, text(&path.join(key)).unwrap_or_default()))
            .into();
        let is_up = said.contains(&("operstate", "up".to_owned()));
        let value = f64::from(u8::from(is_up));
        // The last family, after those that have a file.
        interface
            .slots
            .set(out, families, FILES.len(), &labels, value)?;
        let mut facts = vec![("device", device.clone().into_owned())];
        facts.extend(said);
        Ok(interface.info.set(out, facts, 1.0)?)
    }
}
