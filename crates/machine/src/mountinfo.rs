//! Mounted file systems, from `/proc/self/mountinfo`.

use crate::Words;

/// One mount. Names need not be UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountInfo {
    pub mountpoint: Vec<u8>,
    pub fs_type: Vec<u8>,
    pub source: Vec<u8>,
    /// Options of the mount, then those of the file system, separated by commas.
    pub options: Vec<u8>,
}

impl MountInfo {
    /// Parses a line such as `36 35 98:0 /root /mnt/point rw,noatime shared:1 - ext3 /dev/root
    /// rw,errors=continue`. Any number of optional words may stand between the mount options and
    /// the dash.
    pub fn parse(line: &[u8]) -> Option<MountInfo> {
        let mut words = Words(line);
        let mountpoint = words.nth(4)?;
        let mount_options = words.next()?;
        words.find(|word| *word == b"-")?;
        let (fs_type, source, fs_options) = (words.next()?, words.next()?, words.next()?);
        Some(MountInfo {
            mountpoint: unescape_octal(mountpoint),
            fs_type: unescape_octal(fs_type),
            source: unescape_octal(source),
            options: [mount_options, fs_options].join(&b','),
        })
    }

    pub fn options(&self) -> impl Iterator<Item = &[u8]> {
        self.options.split(|&byte| byte == b',')
    }

    pub fn has_option(&self, option: &str) -> bool {
        self.options().any(|known| known == option.as_bytes())
    }
}

/// Parses all lines; malformed ones are skipped.
pub fn parse_mountinfo(text: &[u8]) -> Vec<MountInfo> {
    let lines = text.split(|&byte| byte == b'\n');
    lines.filter_map(MountInfo::parse).collect()
}

/// Decodes spaces, newlines and backslashes, which the kernel writes as `\` and three octal
/// digits.
fn unescape_octal(word: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(word.len()), word);
    while let [first, after @ ..] = rest {
        (rest, _) = match rest {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] => (
                after,
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')),
            ),
            _ => (after, bytes.push(*first)),
        };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed() {
        let line = br"36 35 98:0 /a /mnt/my\040disk\134 rw,noatime shared:1 master:2 - ext4 /dev/sd\011a rw,errors=x";
        let mount = MountInfo::parse(line).expect("valid");
        assert_eq!(mount.mountpoint, b"/mnt/my disk\\");
        assert_eq!(
            (&*mount.source, &*mount.fs_type),
            (&b"/dev/sd\ta"[..], &b"ext4"[..])
        );
        assert_eq!(mount.options, b"rw,noatime,rw,errors=x");
        let without =
            MountInfo::parse(b"1 2 0:1 / / ro - tmpfs none rw").expect("no optional words");
        assert!(without.has_option("ro") && !without.has_option("r"));
        for bad in ["", "1 2 0:1 / / rw", "1 2 0:1 / / rw - tmpfs", "x"] {
            assert_eq!(MountInfo::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(
            parse_mountinfo(b"1 2 0:1 / / rw - tmpfs none rw\nrubbish\n").len(),
            1
        );
    }
}
