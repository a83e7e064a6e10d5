//! Vendor and model of the machine, from the firmware's DMI strings. Serial numbers, the machine's
//! UUID and asset tags are left out; one asset tag, the same on all Azure machines, only identifies
//! that cloud.

use serde::Serialize;

use pegel_machine::MachineFiles;

/// Value of `chassis_asset_tag` on every virtual machine in Azure.
const AZURE_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Firmware {
    pub vendor: Option<String>,
    pub product: Option<String>,
    pub version: Option<String>,
    pub board_vendor: Option<String>,
    pub board: Option<String>,
    pub bios_vendor: Option<String>,
    pub bios_version: Option<String>,
    pub bios_date: Option<String>,
    /// Whether the machine was booted with UEFI.
    pub efi: bool,
    /// Whether the processors have the `hypervisor` flag.
    pub is_virtual: bool,
    /// Name of the hypervisor, if the kernel knows it.
    pub hypervisor: Option<String>,
    #[serde(skip)]
    pub(crate) has_azure_tag: bool,
}

pub(crate) fn read(machine: &MachineFiles, flags: &[String]) -> Firmware {
    let of = |file: &str| {
        let text = machine.text(format!("sys/class/dmi/id/{file}"))?;
        let placeholders = [
            "To be filled by O.E.M.",
            "Default string",
            "None",
            "Not Specified",
        ];
        (!placeholders
            .iter()
            .any(|placeholder| text.eq_ignore_ascii_case(placeholder)))
        .then_some(text)
    };
    Firmware {
        vendor: of("sys_vendor"),
        // Arm servers without DMI have a device tree.
        product: of("product_name").or_else(|| machine.text("proc/device-tree/model")),
        version: of("product_version"),
        board_vendor: of("board_vendor"),
        board: of("board_name"),
        bios_vendor: of("bios_vendor"),
        bios_version: of("bios_version"),
        bios_date: of("bios_date"),
        efi: machine.exists("sys/firmware/efi"),
        is_virtual: flags.iter().any(|flag| flag == "hypervisor"),
        hypervisor: machine.text("sys/hypervisor/type"),
        has_azure_tag: of("chassis_asset_tag").as_deref() == Some(AZURE_TAG),
    }
}
