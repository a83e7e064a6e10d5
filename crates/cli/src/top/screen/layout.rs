//! How the rows of the screen are divided.

/// Below this there is only a sentence.
pub const WIDTH_MIN: u16 = 40;
pub const HEIGHT_MIN: u16 = 10;
/// Title and tabs above, keys below.
pub const HEAD_ROWS: u16 = 2;
pub const FOOT_ROWS: u16 = 1;
/// Above a list: how many there are, and the titles of the columns.
pub const LIST_HEAD_ROWS: u16 = 2;

pub fn body_rows(height: u16) -> u16 {
    height.saturating_sub(HEAD_ROWS + FOOT_ROWS)
}

/// Rows for all about one series.
pub fn detail_rows(height: u16) -> u16 {
    (body_rows(height) / 2).min(14)
}

/// Series that a list shows at once.
pub fn list_rows(height: u16, has_detail: bool) -> usize {
    let detail = if has_detail { detail_rows(height) } else { 0 };
    body_rows(height)
        .saturating_sub(LIST_HEAD_ROWS + detail)
        .into()
}
