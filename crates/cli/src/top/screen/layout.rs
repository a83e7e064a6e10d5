//! Divides the rows of the screen between header, body and footer.

/// Below this size only a message is drawn.
pub const WIDTH_MIN: u16 = 40;
pub const HEIGHT_MIN: u16 = 10;
/// Rows of title and tabs above the body, and of keys below.
pub const HEAD_ROWS: u16 = 2;
pub const FOOT_ROWS: u16 = 1;
/// Rows above a list: the counts and the column titles.
pub const LIST_HEAD_ROWS: u16 = 2;

pub fn body_rows(height: u16) -> u16 {
    height.saturating_sub(HEAD_ROWS + FOOT_ROWS)
}

/// Returns the rows of the details.
pub fn detail_rows(height: u16) -> u16 {
    (body_rows(height) / 2).min(14)
}

/// Returns the number of series that a list shows at once.
pub fn list_rows(height: u16, has_detail: bool) -> usize {
    let detail = if has_detail { detail_rows(height) } else { 0 };
    body_rows(height)
        .saturating_sub(LIST_HEAD_ROWS + detail)
        .into()
}
