//! Keys, and what they ask for. The help and the footer are made from the same table.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::app::{Action, View};

/// Keys, and what they do, in the words of the help.
pub const KEYS: [(&str, &str); 12] = [
    ("q, Ctrl-C", "quit"),
    ("?", "this help"),
    ("1 to 7", "a view, by its number at the top"),
    ("tab, left, right", "the next view, the one before"),
    ("up, down, j, k", "choose a series, scroll a table"),
    ("page up/down, home, end", "the same in larger steps"),
    ("enter", "all about the chosen series"),
    ("/", "filter: words that the series must contain"),
    ("esc", "drop the filter, close what is open"),
    ("s", "sort by name, value or rate"),
    ("space", "pause and go on"),
    ("Ctrl-Z, Ctrl-L", "suspend; draw everything anew"),
];

/// None for keys without a meaning.
pub fn action(key: KeyEvent, is_typing: bool) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Action::Quit),
            KeyCode::Char('z') => Some(Action::Suspend),
            KeyCode::Char('l') => Some(Action::Redraw),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Up => Some(Action::Move(-1)),
        KeyCode::Down => Some(Action::Move(1)),
        KeyCode::PageUp => Some(Action::Page(-1)),
        KeyCode::PageDown => Some(Action::Page(1)),
        KeyCode::Home => Some(Action::First),
        KeyCode::End => Some(Action::Last),
        KeyCode::Esc => Some(Action::Escape),
        KeyCode::Tab => Some(Action::Turn(1)),
        KeyCode::BackTab => Some(Action::Turn(-1)),
        KeyCode::Enter if is_typing => Some(Action::Accept),
        KeyCode::Backspace if is_typing => Some(Action::Erase),
        KeyCode::Char(character) if is_typing => Some(Action::Type(character)),
        KeyCode::Enter => Some(Action::Detail),
        KeyCode::Right => Some(Action::Turn(1)),
        KeyCode::Left => Some(Action::Turn(-1)),
        KeyCode::Char(character) => plain(character),
        _ => None,
    }
}

fn plain(character: char) -> Option<Action> {
    Some(match character {
        'q' => Action::Quit,
        '?' | 'h' => Action::Help,
        '/' => Action::Filter,
        's' => Action::Sort,
        ' ' | 'p' => Action::Pause,
        'j' => Action::Move(1),
        'k' => Action::Move(-1),
        'g' => Action::First,
        'G' => Action::Last,
        '1'..='7' => Action::Show(View::ALL[character as usize - '1' as usize]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_typing_letters_are_letters() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert_eq!(action(key(KeyCode::Char('q')), false), Some(Action::Quit));
        assert_eq!(
            action(key(KeyCode::Char('q')), true),
            Some(Action::Type('q'))
        );
        assert_eq!(action(key(KeyCode::Enter), true), Some(Action::Accept));
        assert_eq!(action(key(KeyCode::Enter), false), Some(Action::Detail));
        assert_eq!(
            action(key(KeyCode::Char('7')), false),
            Some(Action::Show(View::Metrics))
        );
        assert_eq!(action(key(KeyCode::Char('8')), false), None);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(control, true), Some(Action::Quit));
    }
}
