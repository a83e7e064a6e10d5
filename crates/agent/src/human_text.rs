//! Formats durations and paths for messages.

use std::path::Path;
use std::time::Duration;

/// `2 days`, `5 minutes`, `90 s`.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    for (unit, name) in [(86_400.0, "day"), (3600.0, "hour"), (60.0, "minute")] {
        let count = seconds / unit;
        if count >= 1.0 && count.fract() == 0.0 {
            let plural = if count == 1.0 { "" } else { "s" };
            return format!("{count} {name}{plural}");
        }
    }
    format!("{seconds} s")
}

/// A path with `~` for the home directory.
pub fn format_path(path: &Path, home: Option<&Path>) -> String {
    let below = home
        .filter(|home| home.parent().is_some())
        .and_then(|home| path.strip_prefix(home).ok());
    match below {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_words() {
        for (seconds, text) in [
            (172_800.0, "2 days"),
            (86_400.0, "1 day"),
            (300.0, "5 minutes"),
            (90.0, "90 s"),
            (0.5, "0.5 s"),
            (5400.0, "90 minutes"),
        ] {
            assert_eq!(format_duration(Duration::from_secs_f64(seconds)), text);
        }
    }

    #[test]
    fn home_is_a_tilde() {
        let home = Some(Path::new("/home/ada"));
        assert_eq!(format_path(Path::new("/home/ada/x/y"), home), "~/x/y");
        assert_eq!(format_path(Path::new("/home/adam/x"), home), "/home/adam/x");
        assert_eq!(format_path(Path::new("/x"), Some(Path::new("/"))), "/x");
        assert_eq!(format_path(Path::new("/x"), None), "/x");
    }
}
